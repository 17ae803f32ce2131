"""A replicated metadata log on a simulated disk, and batches for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import Clock
from dohle.raft.membership import Membership, Voter
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.control import build_control_batch
from dohle.server.quorum.metadata_log import open_metadata_log
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.snapshots import SnapshotId, snapshot_path, write_snapshot
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.files import FileSystem
from dohle.storage.open_files import OpenFiles

FOLDER = "/data/__cluster_metadata-0"
NOW_MS = 1_000


def voters(*ids: int) -> Membership:
    return Membership(1, tuple(Voter(BrokerId(id), Uuid(bytes([id]) * 16)) for id in ids))


def open_log(fs: FileSystem, clock: Clock) -> tuple[LogManager, RaftLog]:
    manager = LogManager(fs, clock=clock, rng=random.Random(3), open_files=OpenFiles(2))
    manager.attach(["/data"], Identity("cluster", BrokerId(1)), "/data")
    directory = manager.metadata_directory
    assert directory is not None
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, "log.dirs": "/data"})
    return manager, RaftLog(fs, open_metadata_log(directory, config))


def data_batch(offset: int, epoch: int, count: int = 1, size: int = 10) -> bytearray:
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
    for number in range(count):
        builder.append(NOW_MS, None, b"%d/%d" % (epoch, offset + number) + b"." * size)
    return builder.build()


def voters_batch(offset: int, epoch: int, *ids: int) -> bytearray:
    return build_control_batch(voters(*ids).control_records(), NOW_MS, offset, epoch)


def content(log: RaftLog) -> list[bytes]:
    """Return all batches that are in the log's files."""
    found = [
        bytes(batch.buffer)
        for segment in log.log.segments
        for batch in batches(segment.log_file.file.read_at(0, segment.size))
    ]
    return [batch for batch in found if offset_of(batch) >= log.start_offset]


def offset_of(batch: bytes | bytearray) -> int:
    return int.from_bytes(batch[:8], "big")


def epoch_of(batch: bytes | bytearray) -> int:
    return int.from_bytes(batch[12:16], "big")


def snapshot_bytes(fs: FileSystem, id: SnapshotId, membership: Membership) -> bytes:
    """Return the content of a snapshot, as a leader has it."""
    fs.make_dirs("/elsewhere")
    path = snapshot_path("/elsewhere", id)
    write_snapshot(fs, path, (), membership, epoch=id.epoch, timestamp=NOW_MS)
    return fs.read(path)


def joined(found: Sequence[bytes | bytearray]) -> bytes:
    return b"".join(found)
