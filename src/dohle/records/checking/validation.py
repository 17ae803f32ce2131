"""What a leader checks in a client's batch before it appends it, and what it corrects.

:func:`produced_batch` takes the batch out of a request; :func:`validating` checks it against
the topic's rules and returns the batch to append, which is almost always the same one. Refused are:
a record that does not parse, a number of records that differs from the header's, a record without a
key in a compacted topic, and a timestamp out of bounds. Corrected are: a wrong largest timestamp in
the header (in place), offset deltas that do not count from zero (the batch is rebuilt), a codec
other than the topic's (rebuilt).

A batch that claims LogAppendTime gives all its records one timestamp, the header's largest. In a
topic with CreateTime that timestamp is accepted, and the batch is then marked as CreateTime; but
without a timestamp, and in a topic with LogAppendTime, it is refused.

The errors of a batch's records are reported together (KIP-467). Kafka lists them all, however many
there are; here the first ``RECORD_ERRORS_MAX`` are, since a few bytes can hold millions of records.
A producer that leaves out what was refused and sends the rest again is told of the others.

Damage in transit has its own code, because only then is it worth sending the batch again: so before
anything is refused or changed the checksum is verified, except for a batch whose base offset or
size is refused in any case. If nothing is refused or changed, the log verifies the checksum when it
appends, and stamps LogAppendTime; neither is done twice.

One rule is stricter than Kafka 4.2: wrong offset deltas are corrected in uncompressed batches too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.core.steps import Steps
from dohle.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    RecordBatch,
    read_batch,
    set_create_time,
)
from dohle.records.checking.compressed_scan import begin_compressed_scan
from dohle.records.checking.rebuild import rebuilding
from dohle.records.checking.record_reader import RecordReader
from dohle.records.checking.record_scan import Summary, begin_scan, memory_of
from dohle.records.compression.codecs import Codec, decompressing
from dohle.records.errors import CorruptBatch, IncompleteBatch, InvalidRecord, WrongOffsets
from dohle.records.record import NO_TIMESTAMP
from dohle.records.varint import INT64_MAX

#: How many refused records of a batch are listed.
RECORD_ERRORS_MAX = 1_000

_NO_KEY = "Compacted topic cannot accept message without key in topic partition"

_ZSTD_VERSION_MIN = 7
#: How many records are looked at in one step.
_RECORDS_PER_STEP = 128


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """A topic's rules for the batches it accepts, under Kafka's names."""

    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    #: ``None`` keeps the producer's.
    codec: Codec | None = None
    level: int | None = None
    max_message_bytes: int = 1_048_588
    #: ``None`` allows what is usual for the size of the batch.
    decompressed_bytes_max: int | None = None


class RecordErrors(KafkaError):
    """Some records are refused, and the batch with them. The texts are Kafka's."""

    def __init__(self, code: ErrorCode, record_errors: Iterable[tuple[int, str]]) -> None:
        listed = tuple(islice(record_errors, RECORD_ERRORS_MAX))
        text = "One or more records have been rejected due to invalid timestamp"
        if code is not ErrorCode.INVALID_TIMESTAMP:
            number = f"{len(listed)} or more" if len(listed) == RECORD_ERRORS_MAX else len(listed)
            shown = ", ".join(
                f"RecordError(batchIndex={index}, message='{error}')" for index, error in listed[:3]
            )
            text = (
                f"One or more records have been rejected due to {number} record errors in total,"
                f" and only showing the first three errors at most: [{shown}]"
            )
        super().__init__(code, text)
        #: For each refused record, its index in the batch and what is wrong with it: the first
        #: ``RECORD_ERRORS_MAX``.
        self.record_errors = listed
        #: How many of those lack the key that they need, and how many are of the wrong format.
        self.without_key = sum(error.startswith(_NO_KEY) for _, error in listed)
        self.of_wrong_format = 0


def append_time_error(index: int) -> str:
    """Say what is wrong with a record of a producer that claims LogAppendTime."""
    return (
        f"Invalid timestamp type in message {index}. Producer should not set timestamp type to"
        " LogAppendTime."
    )


class RecordRules:
    """What one record of a producer must be like, at some time."""

    __slots__ = ("_earliest", "_latest", "_partition", "_rules")

    def __init__(self, rules: ValidationRules, now_ms: int, partition: TopicPartition) -> None:
        self._rules = rules
        self._earliest = now_ms - rules.timestamp_before_max_ms
        self._latest = now_ms + rules.timestamp_after_max_ms
        self._partition = partition

    def error(
        self,
        index: int,
        timestamp: int,
        offset: int,
        *,
        has_key: bool,
        claims_append_time: bool,
    ) -> tuple[ErrorCode, str] | None:
        """Tell what is wrong with a record, if anything is."""
        rules = self._rules
        if rules.compacted and not has_key:
            return ErrorCode.INVALID_RECORD, f"{_NO_KEY} {self._partition}."
        if rules.log_append_time or timestamp == NO_TIMESTAMP:
            if claims_append_time:
                return ErrorCode.INVALID_TIMESTAMP, append_time_error(index)
        elif not self._earliest <= timestamp <= self._latest:
            return (
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {timestamp} of message with offset {offset} is out of range. The"
                f" timestamp should be within [{self._earliest}, {self._latest}]",
            )
        return None


def produced_batch(records: memoryview | bytes | None, version: int) -> RecordBatch:
    """Return the single batch that a Produce request (version 3 or later) holds for a partition.

    Trailing bytes that are not a whole batch are ignored.
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
    """Check what needs no checksum: a wrong base offset or size is refused even if undamaged."""
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
        raise WrongOffsets(f"{count} records, last offset delta {batch.last_offset_delta}")
    if batch.attributes & CONTROL_FLAG:
        raise WrongOffsets("clients may not write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise WrongOffsets(f"producer {batch.producer_id} gave no sequence number")


def validating(
    batch: RecordBatch, rules: ValidationRules, now_ms: int, partition: TopicPartition
) -> Steps[RecordBatch]:
    """Return the batch to append: this one, corrected in place if need be, or a new one.

    A KafkaError says why the batch is refused; :class:`RecordErrors` if single records are the
    reason.
    """
    _check_size(batch, rules.max_message_bytes)
    try:
        _check_header(batch)
        codec = batch.compression if batch.attributes & CODEC_MASK else Codec.NONE
        target = codec if rules.codec is None else rules.codec
        scan = _begin_scan(batch, codec, rules)
        summary = scan if isinstance(scan, Summary) else (yield from scan)
    except KafkaError as error:
        batch.ensure_valid()
        if isinstance(error, CorruptBatch):
            # The bytes are what was sent, so sending them again would not help.
            raise InvalidRecord(f"the records cannot be read: {error.args[0]}") from error
        raise
    if _summary_asks_for_records(batch, summary, rules, now_ms):
        batch.ensure_valid()
        reader = _reader(batch, codec, rules)
        try:
            yield from _refusing_records(batch, reader, rules, now_ms, partition)
        finally:
            reader.close()
    if target is not codec or not summary.is_consecutive:
        batch.ensure_valid()
        return (
            yield from rebuilding(
                batch,
                _reader(batch, codec, rules),
                target,
                None if rules.codec is None else rules.level,
                append_time=_claimed_append_time(batch),
                max_bytes=rules.max_message_bytes,
            )
        )
    if batch.attributes & LOG_APPEND_TIME_FLAG:
        return _with_create_time(batch, max(batch.max_timestamp, NO_TIMESTAMP))
    max_timestamp = max(summary.max_timestamp, NO_TIMESTAMP)
    if max_timestamp != batch.max_timestamp and not rules.log_append_time:
        batch.ensure_valid()
        return _with_create_time(batch, max_timestamp)
    return batch


def _begin_scan(
    batch: RecordBatch, codec: Codec, rules: ValidationRules
) -> Summary | Steps[Summary]:
    data, count, timestamp = batch.records_buffer, batch.record_count, batch.base_timestamp
    if codec is Codec.NONE:
        return begin_scan(data, count, timestamp)
    return begin_compressed_scan(codec, data, count, timestamp, rules.decompressed_bytes_max)


def _reader(batch: RecordBatch, codec: Codec, rules: ValidationRules) -> RecordReader:
    """Read the records from the first on."""
    if codec is Codec.NONE:
        return RecordReader(*memory_of(batch.records_buffer))
    pieces = decompressing(codec, batch.records_buffer, rules.decompressed_bytes_max)
    return RecordReader(b"", 0, 0, pieces)


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
    """Return the timestamp of all records, if the producer claims LogAppendTime."""
    return batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_FLAG else None


def _refusing_records(
    batch: RecordBatch,
    reader: RecordReader,
    rules: ValidationRules,
    now_ms: int,
    partition: TopicPartition,
) -> Steps[None]:
    """Raise an error for single records that break a rule."""
    claimed = _claimed_append_time(batch)
    of_each = RecordRules(rules, now_ms, partition)
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    # One wrong timestamp decides the code: after that, more errors than are listed say nothing.
    for index in range(batch.record_count):
        if len(errors) >= RECORD_ERRORS_MAX and code is ErrorCode.INVALID_TIMESTAMP:
            break
        if index % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
            yield None
        head = yield from reader.head()
        key_size = yield from reader.varint()
        yield from reader.skip(head.end - reader.place)
        timestamp = batch.base_timestamp + head.timestamp_delta if claimed is None else claimed
        found = of_each.error(
            index,
            timestamp,
            head.offset_delta,
            has_key=key_size >= 0,
            claims_append_time=claimed is not None,
        )
        if found is not None:
            if found[0] is ErrorCode.INVALID_TIMESTAMP:
                code = ErrorCode.INVALID_TIMESTAMP
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append((index, found[1]))
    if errors:
        raise RecordErrors(code, errors)


def _with_create_time(batch: RecordBatch, max_timestamp: int) -> RecordBatch:
    buffer = batch.buffer
    if buffer.readonly:
        buffer = memoryview(bytearray(buffer))
    set_create_time(buffer, 0, max_timestamp)
    return RecordBatch(buffer)
