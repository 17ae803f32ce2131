"""What a leader checks in a client's batch before it takes it, and what it puts right.

:func:`produced_batch` takes the batch out of a request; :func:`validate_batch` holds it against the
topic's rules and returns the batch to append. That is nearly always the same one. Refused are: a
record that does not parse, a number of records other than the header says, a record without a key
in a compacted topic, and a timestamp out of bounds. Put right are: a wrong largest timestamp in the
header (in place), offset deltas that do not count from zero (the batch is built anew), a codec
other than the topic's (built anew).

A batch that claims LogAppendTime gives all its records one timestamp, the header's largest. Where
timestamps are the producer's to set it is taken at its word, and then marked as CreateTime; but
without a timestamp, and where the broker sets them, it is refused.

All errors of the records of a batch are told together (KIP-467). Damage on the way has its own
code, because only that is worth sending again: so before anything is refused or changed the
checksum is computed, unless the batch is one that could not be taken undamaged either: its base
offset or its size forbids it. Where nothing is, the log computes it when it appends, and stamps
LogAppendTime; neither is done twice.

One rule is stricter than Kafka 4.2: wrong offset deltas are put right in uncompressed batches too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    RecordBatch,
    read_batch,
    set_create_time,
)
from dohle.records.builder import BatchBuilder
from dohle.records.checking.compressed_scan import scan_compressed
from dohle.records.checking.record_scan import Summary, scan_frames, scan_records
from dohle.records.compression.codecs import DECOMPRESSED_BYTES_MAX, Codec
from dohle.records.errors import CorruptBatch, IncompleteBatch, InvalidRecord
from dohle.records.record import NO_TIMESTAMP, decode_records
from dohle.records.varint import INT64_MAX

_ZSTD_VERSION_MIN = 7


class Depth(Enum):
    """How closely records are looked at when no rule asks for more."""

    EVERY_RECORD = "every_record"
    """Every record is checked, and compressed batches are decompressed for it, as Kafka does."""
    FRAMES = "frames"
    """Trust what honest clients never get wrong.

    Uncompressed records are followed by their lengths, so that their number and end are sure, and
    the last, whose offset tells of the others', is decoded. Compressed ones are taken as the header
    describes them. What can pass then: fields that do not fill their record, offset deltas that are
    wrong but for the last, a wrong largest timestamp; and in compressed batches any records.
    """


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """A topic's rules for what it takes, under Kafka's names."""

    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    #: ``None`` keeps the producer's.
    codec: Codec | None = None
    level: int | None = None
    max_message_bytes: int = 1_048_588
    depth: Depth = Depth.EVERY_RECORD
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX


class RecordErrors(KafkaError):
    """Some records are refused, and the batch with them."""

    def __init__(self, code: ErrorCode, record_errors: tuple[tuple[int, str], ...]) -> None:
        index, text = record_errors[0]
        super().__init__(
            code, f"{len(record_errors)} records were refused; the first, record {index}: {text}"
        )
        #: For each, its place in the batch and what is wrong with it.
        self.record_errors = record_errors


def produced_batch(records: memoryview | bytes | None, version: int) -> RecordBatch:
    """Return the one batch that a Produce request of version 3 or later may hold for a partition.

    Bytes behind it that are no whole batch are left out.
    """
    view = memoryview(records or b"")
    try:
        batch = read_batch(view)
    except IncompleteBatch:
        raise InvalidRecord("the request has no record batch for the partition") from None
    if not isinstance(batch, RecordBatch):
        raise InvalidRecord(f"format {batch.magic} cannot be produced with version {version}")
    if version < _ZSTD_VERSION_MIN and batch.attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs version {_ZSTD_VERSION_MIN} of Produce, not {version}",
        )
    if batch.size < len(view):
        try:
            read_batch(view, batch.size)
        except IncompleteBatch:
            return batch
        raise InvalidRecord("the request has more than one record batch for the partition")
    return batch


def _check_size(batch: RecordBatch, max_message_bytes: int) -> None:
    """Check what needs no checksum: a batch of another offset or size is no better undamaged."""
    if batch.base_offset != 0:
        raise InvalidRecord(f"the base offset is {batch.base_offset}, not 0")
    if batch.size > max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {batch.size} bytes is above max.message.bytes {max_message_bytes}",
        )


def _check_header(batch: RecordBatch) -> None:
    count = batch.record_count
    if count <= 0 or count != batch.last_offset_delta + 1:
        raise InvalidRecord(f"{count} records, last offset delta {batch.last_offset_delta}")
    if batch.attributes & CONTROL_FLAG:
        raise InvalidRecord("clients may not write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecord(f"producer {batch.producer_id} gave no sequence number")


def validate_batch(batch: RecordBatch, rules: ValidationRules, now_ms: int) -> RecordBatch:
    """Return the batch that the log shall append: this one, put right in place, or a new one.

    A KafkaError says why it is refused; :class:`RecordErrors` if it is for single records.
    """
    _check_size(batch, rules.max_message_bytes)
    try:
        _check_header(batch)
        codec = batch.compression if batch.attributes & CODEC_MASK else Codec.NONE
        target = codec if rules.codec is None else rules.codec
        if (
            rules.depth is Depth.FRAMES
            and target is codec
            and not _header_asks_for_records(batch, rules, now_ms)
            and (codec is not Codec.NONE or _has_good_frames(batch))
        ):
            return batch
        summary = _scan(batch, codec, rules)
    except KafkaError as error:
        batch.ensure_valid()
        if isinstance(error, CorruptBatch):
            # The bytes are those that were sent, so sending them again would not help.
            raise InvalidRecord(f"the records cannot be read: {error.args[0]}") from error
        raise
    if _summary_asks_for_records(batch, summary, rules, now_ms):
        batch.ensure_valid()
        _refuse_records(batch, rules, now_ms)
    if target is not codec or not summary.is_consecutive:
        batch.ensure_valid()
        return _rebuilt(batch, target, rules)
    if batch.attributes & LOG_APPEND_TIME_FLAG:
        return _with_create_time(batch, max(batch.max_timestamp, NO_TIMESTAMP))
    max_timestamp = max(summary.max_timestamp, NO_TIMESTAMP)
    if max_timestamp != batch.max_timestamp and not rules.log_append_time:
        batch.ensure_valid()
        return _with_create_time(batch, max_timestamp)
    return batch


def _scan(batch: RecordBatch, codec: Codec, rules: ValidationRules) -> Summary:
    data, count, timestamp = batch.records_buffer, batch.record_count, batch.base_timestamp
    if codec is Codec.NONE:
        return scan_records(data, count, timestamp)
    return scan_compressed(codec, data, count, timestamp, rules.decompressed_bytes_max)


def _header_asks_for_records(batch: RecordBatch, rules: ValidationRules, now_ms: int) -> bool:
    """Tell whether the rules need what only the records know, or are broken by the header."""
    if rules.compacted or batch.attributes & LOG_APPEND_TIME_FLAG:
        return True
    return not rules.log_append_time and (
        rules.timestamp_before_max_ms != INT64_MAX
        or batch.max_timestamp - now_ms > rules.timestamp_after_max_ms
    )


def _has_good_frames(batch: RecordBatch) -> bool:
    """Follow the records' lengths; False if the offsets inside have to be put right."""
    count = batch.record_count
    data = batch.records_buffer
    last = scan_frames(data, count)
    (record,) = decode_records(bytes(data[last:]), 1, 0, batch.base_timestamp, None)
    return record.offset == count - 1


def _summary_asks_for_records(
    batch: RecordBatch, summary: Summary, rules: ValidationRules, now_ms: int
) -> bool:
    """Tell whether some record may break a rule."""
    if (rules.compacted and summary.has_null_key) or batch.attributes & LOG_APPEND_TIME_FLAG:
        return True
    return not rules.log_append_time and (
        now_ms - summary.min_timestamp > rules.timestamp_before_max_ms
        or summary.max_timestamp - now_ms > rules.timestamp_after_max_ms
    )


def _claimed_append_time(batch: RecordBatch) -> int | None:
    """Return the timestamp of all records, if the producer says that it is one for all."""
    return batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_FLAG else None


def _refuse_records(batch: RecordBatch, rules: ValidationRules, now_ms: int) -> None:
    """Raise what is wrong with single records, if anything is."""
    claimed = _claimed_append_time(batch)
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    data = batch.decompressed(rules.decompressed_bytes_max)
    records = decode_records(data, batch.record_count, 0, batch.base_timestamp, claimed)
    for index, record in enumerate(records):
        timestamp = record.timestamp
        if rules.compacted and record.key is None:
            errors.append((index, "a record of a compacted topic needs a key"))
        elif rules.log_append_time or timestamp == NO_TIMESTAMP:
            if claimed is not None:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, "the time of the append is not the producer's to set"))
        elif not earliest <= timestamp <= latest:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, f"timestamp {timestamp} is not within {earliest} to {latest}"))
    if errors:
        raise RecordErrors(code, tuple(errors))


def _rebuilt(batch: RecordBatch, codec: Codec, rules: ValidationRules) -> RecordBatch:
    """Build the batch anew: same records, same producer, offsets from zero, the given codec."""
    builder = BatchBuilder(
        codec=codec,
        level=None if rules.codec is None else rules.level,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        partition_leader_epoch=batch.partition_leader_epoch,
    )
    append_time = _claimed_append_time(batch)
    data = batch.decompressed(rules.decompressed_bytes_max)
    records = decode_records(data, batch.record_count, 0, batch.base_timestamp, append_time)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    try:
        built = RecordBatch(memoryview(builder.build()))
    except ValueError as error:
        raise InvalidRecord(str(error)) from error
    if built.size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {built.size} bytes, after compression with {codec.name.lower()}, is above "
            f"max.message.bytes {rules.max_message_bytes}",
        )
    return built


def _with_create_time(batch: RecordBatch, max_timestamp: int) -> RecordBatch:
    buffer = batch.buffer
    if buffer.readonly:
        buffer = memoryview(bytearray(buffer))
    set_create_time(buffer, 0, max_timestamp)
    return RecordBatch(buffer)
