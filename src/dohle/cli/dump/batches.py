"""Files of record batches: the segments of a log (``.log``), and snapshots of the metadata log.

Batches are read one by one. A batch with a wrong checksum is shown as such and reading continues
with the next one, as long as lengths are plausible; otherwise the rest of the file cannot be read.
Zeros up to the end of the file are not damage: they were preallocated, or are what a file system
leaves of a write that a crash cut short.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

from dohle.cli.dump.items import DecoderName, DumpedFile, DumpOptions, Item, Note, Problem, Row
from dohle.cli.dump.zero_tail import end_of_data, zero_tail_note
from dohle.cli.values import RecordHeaders
from dohle.core.errors import KafkaError
from dohle.records.batch import (
    Batch,
    LegacyBatch,
    RecordBatch,
    TimestampType,
    sequence_after,
)
from dohle.records.control import ControlRecordType, decode_control_key
from dohle.records.errors import CorruptBatch, IncompleteBatch
from dohle.records.record import Record
from dohle.storage.directory.partition_dirs import NotAPartitionDir, parse_partition_dir
from dohle.storage.files import File, OsFileSystem, file_name, parent
from dohle.storage.segment.batch_scan import scan_batches

_TIMESTAMP_TYPES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def dump_segment(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the batches of a log segment."""
    return _Batches(source, options).dump()


def dump_metadata_snapshot(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the batches of a metadata log snapshot: a complete one ends with a footer."""
    return _Batches(source, options, DecoderName.CLUSTER_METADATA, is_snapshot=True).dump()


class _Batches:
    """The walk through one file."""

    def __init__(
        self,
        source: DumpedFile,
        options: DumpOptions,
        decoder: DecoderName | None = None,
        *,
        is_snapshot: bool = False,
    ) -> None:
        self._source = source
        self._options = options
        self._decoder = options.decoder or decoder
        self._is_snapshot = is_snapshot
        self._ends_with_footer = False
        # Offsets in a snapshot count from 0, whatever its name says.
        self._next_offset = 0 if is_snapshot else source.base_offset or 0
        self._undecodable = 0
        self._first_undecodable = ""

    def dump(self) -> Iterator[Item]:
        with closing(OsFileSystem().open(self._source.path)) as file:
            if self._options.records and self._decoder is None:
                self._decoder = _decoder_of_folder(self._source.path)
            whole = yield from self._walk(file, file.size())
        if self._undecodable:
            count = f"{self._undecodable} record{'s' if self._undecodable > 1 else ''}"
            yield Problem(f"{count} could not be decoded: first {self._first_undecodable}")
        if whole and self._is_snapshot and not self._ends_with_footer:
            yield Problem("the snapshot is incomplete: it does not end with a SNAPSHOT_FOOTER")

    def _walk(self, file: File, size: int) -> Generator[Item, None, bool]:
        """Yield the contents of the batches; return whether the end of the file was reached."""
        batches = scan_batches(file, 0, size)
        shown = 0
        while True:
            try:
                found = next(batches, None)
            except CorruptBatch as error:
                yield from _describe_end(file, size, error)
                return False
            if found is None:
                return True
            if shown == self._options.limit:
                yield Note(f"stopped after {shown} batches, there are more", found[0])
                return False
            shown += 1
            yield from self._dump_batch(*found)

    def _dump_batch(self, position: int, batch: Batch) -> Iterator[Item]:
        problem = _find_problem(batch)
        yield Row("batch", _batch_fields(position, batch, isvalid=problem is None))
        if problem is not None:
            yield Problem(problem, position)
            return
        if batch.last_offset < self._next_offset:
            yield Problem(
                f"the batch ends at offset {batch.last_offset}, where "
                f"{self._next_offset} or a later one must follow",
                position,
            )
        self._next_offset = batch.next_offset
        self._ends_with_footer = False
        try:
            if self._options.records:
                yield from self._dump_records(batch)
            elif self._is_snapshot and batch.is_control:
                for record in batch:
                    self._look_for_footer(record)
        except KafkaError as error:
            yield Problem(error.args[0], position)

    def _look_for_footer(self, record: Record) -> None:
        self._ends_with_footer = decode_control_key(record.key) is ControlRecordType.SNAPSHOT_FOOTER

    def _dump_records(self, batch: Batch) -> Iterator[Item]:
        # Imported here: the decoders load the protocol.
        from dohle.cli.dump.record_decoders import (
            UndecodableRecord,
            decode_control_record,
            decode_record,
        )

        for record in batch:
            sequence = batch.base_sequence
            if sequence >= 0:
                sequence = sequence_after(sequence, record.offset - batch.base_offset)
            fields: dict[str, object] = {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "sequence": sequence,
                "key": record.key,
                "value": record.value,
                "headers": RecordHeaders(record.headers),
            }
            try:
                if batch.is_control:
                    if self._is_snapshot:
                        self._look_for_footer(record)
                    fields["controlType"], fields["value"] = decode_control_record(record)
                    del fields["key"]
                elif self._decoder is not None:
                    fields["key"], fields["value"] = decode_record(self._decoder, record)
            except UndecodableRecord as error:
                self._undecodable += 1
                self._first_undecodable = (
                    self._first_undecodable or f"at offset {record.offset}: {error}"
                )
                fields["problem"] = str(error)
            yield Row("controlRecord" if batch.is_control else "record", fields, nested=True)


def _decoder_of_folder(path: str) -> DecoderName | None:
    import os.path

    from dohle.cli.dump.record_decoders import decoder_of_topic

    try:
        folder = parse_partition_dir(file_name(parent(os.path.abspath(path))))
    except NotAPartitionDir:
        return None
    return decoder_of_topic(folder.topic_partition.topic)


def _find_problem(batch: Batch) -> str | None:
    try:
        batch.ensure_valid()
    except CorruptBatch as error:
        return f"wrong checksum: {error.args[0]}"
    try:
        _ = batch.compression
    except CorruptBatch as error:
        return str(error.args[0])
    return None


def _batch_fields(position: int, batch: Batch, *, isvalid: bool) -> dict[str, object]:
    assert isinstance(batch, RecordBatch | LegacyBatch)
    fields: dict[str, object] = {"offset": batch.last_offset}
    if isinstance(batch, RecordBatch):
        fields = {
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.record_count,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "partitionLeaderEpoch": batch.partition_leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": batch.delete_horizon_ms,
        }
    try:
        codec = batch.compression.name.lower()
    except CorruptBatch:
        codec = "unknown"
    return fields | {
        "position": position,
        "timestampType": _TIMESTAMP_TYPES[batch.timestamp_type],
        "maxTimestamp": batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": codec,
        "crc": batch.crc,
        "isvalid": isvalid,
    }


def _describe_end(file: File, size: int, error: CorruptBatch) -> Iterator[Item]:
    """Say why no batch could be read: there is none, it is torn, or it is invalid."""
    position = error.position or 0
    if end_of_data(file) <= position:
        yield zero_tail_note(position, size)
        return
    what = str(error.args[0]).replace(f" at position {position}", "")
    if isinstance(error, IncompleteBatch):
        what = f"torn batch: {what}; recovery will truncate the file here"
    else:
        what = f"not a batch: {what}; the {size - position} bytes from here on cannot be read"
    yield Problem(what, position)
