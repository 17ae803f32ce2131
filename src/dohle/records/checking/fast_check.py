"""The fast path of validation: accepts the batch that most producers send.

:func:`begin_fast_check` accepts a subset of the batches that ``validation`` accepts and returns
unchanged, and verifies the checksum too, without creating the slow path's objects. It never refuses
a batch: whatever it does not know takes the slow path, which says what is wrong with the batch or
corrects it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dohle.core.checksum import crc32c
from dohle.core.errors import KafkaError
from dohle.core.ids import ProducerId
from dohle.core.steps import Steps
from dohle.records.batch import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
)
from dohle.records.checking.compressed_scan import begin_compressed_scan
from dohle.records.checking.record_scan import Summary, begin_scan
from dohle.records.checking.validation import ValidationRules
from dohle.records.compression.codecs import Codec, codec_of
from dohle.records.record import NO_TIMESTAMP

# Without the named tuple's own constructor, which takes longer.
_new = tuple.__new__


class FastCheckedBatch(NamedTuple):
    """What a log needs to know of a batch whose only flag, if any, is the transactional one.

    It may be compressed.
    """

    buffer: memoryview
    last_offset_delta: int
    max_timestamp: int
    #: -1 if the producer is not idempotent; then epoch and sequence below have no meaning.
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    is_transactional: bool = False


def allows_fast_check(rules: ValidationRules) -> bool:
    """Tell whether ``begin_fast_check`` covers all that a topic's rules require."""
    return not rules.log_append_time and rules.codec in (None, Codec.NONE)


def begin_fast_check(
    view: memoryview, rules: ValidationRules, now_ms: int, *, is_transactional: bool = False
) -> FastCheckedBatch | Steps[FastCheckedBatch | None] | None:
    """Return the single batch that fills ``view``, which must be writable, if it is valid.

    Returns None if the batch must take the slow path, be it only because it is transactional and
    was expected not to be, or the other way round; and the steps that are left, with the same
    result, if there are many records. Requires rules that ``allows_fast_check`` accepts.
    """
    try:
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = BATCH_HEADER.unpack_from(view)
    except struct.error:
        return None
    size = len(view)
    if (
        magic != MAGIC
        or attributes & ~CODEC_MASK != (TRANSACTIONAL_FLAG if is_transactional else 0)
        or base_offset != 0
        or length + LOG_OVERHEAD != size
        or size > rules.max_message_bytes
        or count <= 0
        or count != last_offset_delta + 1
        or (producer_id >= 0 and base_sequence < 0)
        or view.readonly
        or crc32c(view[ATTRIBUTES_AT:]) != crc
    ):
        return None
    records = view[HEADER_SIZE:]
    try:
        if codec := attributes & CODEC_MASK:
            if rules.codec is not None:
                return None
            scan = begin_compressed_scan(
                codec_of(codec),
                records,
                count,
                base_timestamp,
                rules.decompressed_bytes_max,
                may_stop=True,
            )
        else:
            scan = begin_scan(records, count, base_timestamp, may_stop=True)
    except KafkaError:
        return None
    batch = _new(
        FastCheckedBatch,
        (
            view,
            last_offset_delta,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            is_transactional,
        ),
    )
    if isinstance(scan, Summary):
        return batch if _is_plain(scan, max_timestamp, rules, now_ms) else None
    return _finishing(scan, batch, rules, now_ms)


def _finishing(
    scan: Steps[Summary], batch: FastCheckedBatch, rules: ValidationRules, now_ms: int
) -> Steps[FastCheckedBatch | None]:
    try:
        summary = yield from scan
    except KafkaError:
        return None
    return batch if _is_plain(summary, batch.max_timestamp, rules, now_ms) else None


def _is_plain(summary: Summary, max_timestamp: int, rules: ValidationRules, now_ms: int) -> bool:
    low, high, is_consecutive, has_null_key = summary
    return (
        is_consecutive
        and not (has_null_key and rules.compacted)
        and high == max_timestamp
        and high >= NO_TIMESTAMP
        and high - now_ms <= rules.timestamp_after_max_ms
        and now_ms - low <= rules.timestamp_before_max_ms
    )
