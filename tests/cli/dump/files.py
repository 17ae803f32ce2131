"""What the tests of the command line share: a node's real files, and running the command."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.core.seams import ManualClock
from dohle.protocol.record_framing import (
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)
from dohle.protocol.schema import CoordinatorKey, CoordinatorValue, MetadataRecord
from dohle.records.builder import BatchBuilder
from dohle.storage.config import LogConfig
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.files import OsFileSystem
from dohle.storage.log import Log

NOW_MS = 1_700_000_000_000
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = Uuid(bytes(range(16)))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
LEADER_EPOCH = 4
SEGMENT = "00000000000000000000"


class Node:
    """The log directory of a node, on the real disk."""

    def __init__(self, path: Path, node_id: int = 1) -> None:
        self.path = path
        self.manager = LogManager(OsFileSystem(), clock=ManualClock(NOW_MS), rng=random.Random(7))
        identity = Identity(CLUSTER_ID, BrokerId(node_id))
        self.manager.open([str(path)], identity, lambda _: LogConfig())

    def log(self, topic: str, partition: int = 0, config: LogConfig | None = None) -> Log:
        """Return the log of a partition, making it if need be."""
        where = TopicPartition(TopicName(topic), partition)
        return self.manager.get_or_create(where, TOPIC_ID, config or LogConfig())

    def close(self) -> Path:
        """Stop cleanly."""
        self.manager.close(broker_epoch=9)
        return self.path


def batch(
    *values: bytes | None, key: bytes | None = b"key", now_ms: int = NOW_MS, **options: Any
) -> bytearray:
    """Return a batch with these values."""
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(now_ms, key, value)
    return builder.build()


def append(log: Log, *batches: bytearray) -> None:
    """Append as a leader."""
    for one in batches:
        log.append_as_leader(one, LEADER_EPOCH)


def orders(path: Path, batches: int = 3, config: LogConfig | None = None) -> Path:
    """Write a cleanly closed partition of ordinary records; return its folder."""
    node = Node(path)
    log = node.log("orders", config=config)
    for number in range(batches):
        append(log, batch(b"value %d" % number, now_ms=NOW_MS + number))
    node.close()
    return path / "orders-0"


def metadata_batch(
    records: Iterable[tuple[MetadataRecord, int]], base_offset: int = 0
) -> bytearray:
    """Return a batch of metadata records, each with its version."""
    values = [encode_metadata_record(record, version) for record, version in records]
    return batch(*values, key=None, base_offset=base_offset, partition_leader_epoch=LEADER_EPOCH)


def coordinator_batch(
    *records: tuple[CoordinatorKey, CoordinatorValue | None, int], base_offset: int = 0
) -> bytearray:
    """Return a batch of a coordinator's records: key, value (or a tombstone) and its version."""
    builder = BatchBuilder(base_offset=base_offset)
    for key, value, version in records:
        encoded = None if value is None else encode_coordinator_value(value, version)
        builder.append(NOW_MS, encode_coordinator_key(key), encoded)
    return builder.build()


def write_segment(folder: Path, *batches: bytes | bytearray, name: str = f"{SEGMENT}.log") -> Path:
    """Write batches into a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(batches))
    return path


def parse_lines(output: str) -> list[dict[str, Any]]:
    """Return the objects of JSON lines."""
    return [json.loads(line) for line in output.splitlines()]


def of_type(rows: list[dict[str, Any]], type: str) -> list[dict[str, Any]]:
    """Return the rows of one type."""
    return [row for row in rows if row["type"] == type]


def records_of(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0, type: str = "record"
) -> list[dict[str, Any]]:
    """Dump with records and return the rows of one type."""
    assert main(["log", "dump", "--json", "--records", *map(str, arguments)]) == code
    return of_type(parse_lines(capsys.readouterr().out), type)
