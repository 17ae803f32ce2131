"""The small files: producer snapshots, checkpoints, and the identity of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from dohle.cli.dump.items import DumpedFile, DumpOptions, Item, Note, Problem, Row
from dohle.storage.directory.checkpoints import (
    INT32_MAX,
    INT64_MAX,
    CorruptCheckpoint,
    parse_entries,
    parse_fields,
    parse_int,
)
from dohle.storage.directory.clean_shutdown import read_broker_epoch
from dohle.storage.directory.java_properties import parse_properties
from dohle.storage.directory.meta_properties import InvalidMetaProperties, read_meta_properties
from dohle.storage.directory.partition_dirs import CorruptPartitionMetadata, read_partition_metadata
from dohle.storage.files import OsFileSystem, join
from dohle.storage.producers.snapshot import CorruptSnapshot, decode_snapshot

_FIRST_ENTRY_LINE = 3
#: Stands for the folder where only the file matters.
_FOLDER = "."
#: How deep the values of a quorum's state may be nested; Kafka has an array of objects in it.
_NESTING_MAX = 16


class _GivenFile(OsFileSystem):
    """Presents one file to the readers of whole folders, which open it by its usual name only.

    A temporary or deleted file has a suffix after that name, and a copy may be older than the files
    next to it.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.data = super().read(path)

    def read(self, path: str) -> bytes:
        """Return the contents of the file, whatever its name."""
        return self.data


def dump_producer_snapshot(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the producers of a ``.snapshot``."""
    try:
        producers = decode_snapshot(OsFileSystem().read(source.path))
    except CorruptSnapshot as error:
        yield Problem(str(error), 0)
        return
    for producer in producers[: options.limit]:
        fields: dict[str, object] = {
            "producerId": producer.producer_id,
            "producerEpoch": producer.producer_epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.current_txn_first_offset,
            "lastTimestamp": producer.last_timestamp,
        }
        batch = producer.batches[-1] if producer.batches else None
        fields["firstSequence"] = -1 if batch is None else batch.first_sequence
        fields["lastSequence"] = -1 if batch is None else batch.last_sequence
        fields["lastOffset"] = -1 if batch is None else batch.last_offset
        fields["offsetDelta"] = 0 if batch is None else batch.offset_delta
        yield Row("producer", fields)
    if options.limit is not None and options.limit < len(producers):
        yield Note(f"stopped after {options.limit} of {len(producers)} entries")


def dump_offset_checkpoint(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the offset of each partition."""
    return _dump_checkpoint(source, options, "partitionOffset", ("topic", "partition", "offset"))


def dump_leader_epochs(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the leader epochs of a partition."""
    return _dump_checkpoint(source, options, "leaderEpoch", ("epoch", "startOffset"))


def _dump_checkpoint(
    source: DumpedFile, options: DumpOptions, type: str, names: tuple[str, ...]
) -> Iterator[Item]:
    data = OsFileSystem().read(source.path)
    wrong_count = None
    try:
        entries = parse_entries(source.path, data)
    except CorruptCheckpoint as error:
        if error.line == 1:
            yield Problem(error.problem, line=1)
            return
        # The entries may be valid all the same.
        wrong_count = Problem(error.problem, line=error.line)
        entries = data.splitlines()[2:]
    for number, line in enumerate(entries, _FIRST_ENTRY_LINE):
        if number - _FIRST_ENTRY_LINE == options.limit:
            yield Note(f"stopped after {options.limit} of {len(entries)} entries")
            break
        try:
            fields = _parse_entry(source.path, number, line, names)
        except CorruptCheckpoint as error:
            yield Problem(error.problem, line=number)
            continue
        yield Row(type, fields)
    if wrong_count is not None:
        yield wrong_count


def _parse_entry(path: str, number: int, line: bytes, names: tuple[str, ...]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, text in zip(names, parse_fields(path, number, line, len(names)), strict=True):
        if name == "topic":
            fields[name] = text.decode(errors="backslashreplace")
        else:
            largest = INT64_MAX if name.lower().endswith("offset") else INT32_MAX
            fields[name] = parse_int(path, number, text, largest)
    return fields


def dump_meta_properties(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump ``meta.properties``: all that is in it, and what is missing."""
    given = _GivenFile(source.path)
    try:
        yield Row("metaProperties", dict(parse_properties(given.data)))
        read_meta_properties(given, _FOLDER)
    except InvalidMetaProperties as error:
        yield Problem(_without_path(error, source.name))
    except ValueError as error:
        yield Problem(str(error))


def dump_partition_metadata(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump ``partition.metadata``: the topic's id."""
    from dohle.core.uuid import uuid_to_text

    try:
        topic_id = read_partition_metadata(_GivenFile(source.path), _FOLDER)
    except CorruptPartitionMetadata as error:
        yield Problem(_without_path(error, source.name))
        return
    if topic_id is not None:
        yield Row("partitionMetadata", {"topicId": uuid_to_text(topic_id)})


def dump_clean_shutdown(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump ``.kafka_cleanshutdown``, whose mere existence matters."""
    given = _GivenFile(source.path)
    epoch = read_broker_epoch(given, _FOLDER)
    if epoch is not None:
        yield Row("cleanShutdown", {"brokerEpoch": epoch})
        return
    if given.data:
        try:
            json.loads(given.data)
        except (ValueError, RecursionError) as error:
            yield Note(f"not JSON: {error}; the last stop was clean all the same")
            return
    yield Note("the last stop was clean; no broker epoch is given")


def dump_quorum_state(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump ``quorum-state``: what a voter has promised."""
    try:
        state = json.loads(OsFileSystem().read(source.path))
    except (ValueError, RecursionError) as error:
        yield Problem(f"not JSON: {error}")
        return
    if not isinstance(state, dict) or "leaderEpoch" not in state:
        yield Problem("not the state of a quorum: no object with a leaderEpoch")
        return
    if _is_nested_deeper(state, _NESTING_MAX):
        yield Problem(f"not the state of a quorum: nested more than {_NESTING_MAX} deep")
        return
    yield Row("quorumState", state)


def _is_nested_deeper(value: object, depth: int) -> bool:
    values: Iterable[object] = ()
    if isinstance(value, dict):
        values = value.values()
    elif isinstance(value, list):
        values = value
    return depth < 0 or any(_is_nested_deeper(inner, depth - 1) for inner in values)


def _without_path(error: Exception, name: str) -> str:
    return str(error).removeprefix(join(_FOLDER, name)).lstrip(": ")
