"""Writes the records of a batch anew: offsets from zero, timestamps from the first on, any codec.

The records are known to be valid. They are read and written piece by piece, in steps
(``core.steps``), and of each only what stands before its key is made anew: the rest is handed on as
it came.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import Room, Steps
from dohle.records.batch import HEADER_SIZE, RecordBatch
from dohle.records.builder import BatchBuilder
from dohle.records.checking.record_reader import RecordReader
from dohle.records.compression.codecs import Codec
from dohle.records.compression.compressor import COMPRESSOR_BYTES, Compressor
from dohle.records.errors import InvalidRecord
from dohle.records.record import ONE_BYTE_VARINTS
from dohle.records.record_writer import RecordWriter
from dohle.records.varint import read_varint, read_varlong

#: How many records are written in one step: what takes about half a millisecond.
_RECORDS_PER_STEP = 256


def rebuilding(
    batch: RecordBatch,
    reader: RecordReader,
    codec: Codec,
    level: int | None,
    *,
    append_time: int | None,
    max_bytes: int,
) -> Steps[RecordBatch]:
    """Return a batch of the same records and producer.

    All records get ``append_time`` if there is one. MESSAGE_TOO_LARGE if the batch is larger than
    ``max_bytes``.
    """
    builder = BatchBuilder(
        codec=codec,
        level=level,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        partition_leader_epoch=batch.partition_leader_epoch,
    )
    rewriting = _Rewriting(batch, append_time)
    room = Room(COMPRESSOR_BYTES, is_for_output=True)
    try:
        if (yield from reader.has_more()) and batch.record_count > _RECORDS_PER_STEP:
            yield room
        compressed = yield from _rewriting(batch, reader, rewriting, codec, level, max_bytes)
    finally:
        reader.close()
        room.release()
    try:
        built = RecordBatch(
            memoryview(
                builder.build_around(
                    compressed,
                    record_count=rewriting.writer.count,
                    base_timestamp=rewriting.writer.base_timestamp,
                    max_timestamp=rewriting.writer.max_timestamp,
                )
            )
        )
    except ValueError as error:
        raise InvalidRecord(str(error)) from error
    if built.size > max_bytes:
        raise _too_large(codec, max_bytes)
    return built


def _rewriting(
    batch: RecordBatch,
    reader: RecordReader,
    rewriting: _Rewriting,
    codec: Codec,
    level: int | None,
    max_bytes: int,
) -> Steps[list[bytes]]:
    compressor = Compressor(codec, level)
    while rewriting.writer.count < batch.record_count:
        compressor.write(rewriting.rewrite_some(reader))
        yield None
        if rewriting.writer.count < batch.record_count and rewriting.is_doubtful:
            head = yield from reader.head()
            left = head.end - reader.place
            compressor.write(rewriting.new_head(head.timestamp_delta, left))
            while left:
                parts = yield from reader.copy(left)
                for part in parts:
                    left -= len(part)
                    compressor.write(part)
                yield None
        if compressor.size + HEADER_SIZE > max_bytes:
            raise _too_large(codec, max_bytes)
    return compressor.finish()


def _too_large(codec: Codec, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch, after compression with {codec.name.lower()}, is above max.message.bytes"
        f" {max_bytes}",
    )


class _Rewriting:
    """How far the records are written."""

    def __init__(self, batch: RecordBatch, append_time: int | None) -> None:
        self._count = batch.record_count
        self._source_timestamp = batch.base_timestamp
        self._append_time = append_time
        self.writer = RecordWriter()
        #: Whether the next record is not whole in the reader's memory.
        self.is_doubtful = False

    def new_head(self, timestamp_delta: int, rest_size: int) -> bytes:
        """Begin the next record: all before its key."""
        timestamp = self._append_time
        if timestamp is None:
            timestamp = self._source_timestamp + timestamp_delta
        return self.writer.head(timestamp, rest_size)

    def rewrite_some(self, reader: RecordReader) -> bytes:
        """Write records that are whole in the reader's memory, as many as a step may have."""
        data, at, end = reader.data, reader.position, reader.end
        one_byte, new_head = ONE_BYTE_VARINTS, self.new_head
        parts: list[bytes | bytearray] = []
        self.is_doubtful = False
        for _ in range(min(_RECORDS_PER_STEP, self._count - self.writer.count)):
            try:
                if (length := one_byte[data[at]]) is not None:
                    at += 1
                else:
                    length, at = read_varint(data, at)
                record_end = at + length
                if record_end > end:
                    self.is_doubtful = True
                    break
                at += 1  # after the attributes
                if (delta := one_byte[data[at]]) is not None:
                    at += 1
                else:
                    delta, at = read_varlong(data, at)
                if one_byte[data[at]] is not None:
                    at += 1
                else:
                    _, at = read_varint(data, at)
            except (IndexError, InvalidRecord):
                self.is_doubtful = True
                break
            parts.append(new_head(delta, record_end - at))
            parts.append(data[at:record_end])
            reader.position = at = record_end
        return b"".join(parts)
