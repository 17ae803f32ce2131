"""What the tests of the log on disk share: small batches, and a node that is stopped and killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import settings

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.core.seams import ManualClock
from dohle.records.batch import Batch, Codec, Record, batches
from dohle.records.builder import BatchBuilder
from dohle.records.control import build_txn_marker
from dohle.storage import log_read
from dohle.storage.config import LogConfig, LogManagerConfig
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.files import FileSystem, join
from dohle.storage.log import Log
from dohle.storage.log_values import AppendInfo, Isolation
from dohle.storage.moves.places import AssignmentOf
from dohle.storage.open_files import OpenFiles
from dohle.storage.producers.state import AppendOrigin
from dohle.storage.segment.index import IndexMemory
from dohle.testing.simulation.files import SimulatedFileSystem

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition(TopicName("orders"), 0)
TOPIC_ID = Uuid(bytes(range(16)))
IDENTITY = Identity("MkU3OEVBNTcwNTJENDM2Qg", BrokerId(1))
LEADER_EPOCH = 4

#: Batches from ``data()`` with one record have exactly this size, so that sizes can be reckoned.
BATCH_SIZE = 100


def property_test(max_examples: int = 60) -> settings:
    """Settings under which a property test is the same everywhere and is not timed by example."""
    return settings(max_examples=max_examples)


def batch(
    timestamps: Sequence[int] = (NOW_MS,),
    *,
    value: bytes = b"",
    keys: Sequence[bytes | None] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """A batch with one record for each timestamp."""
    builder = BatchBuilder(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        is_control=control,
        codec=codec,
    )
    for number, timestamp in enumerate(timestamps):
        builder.append(timestamp, None if keys is None else keys[number], value)
    return builder.build()


def data(
    count: int = 1, *, timestamp: int = NOW_MS, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """A batch of ``count`` records that is ``BATCH_SIZE`` bytes long, whatever is in it."""
    plain = batch([timestamp] * count)
    room = BATCH_SIZE - len(plain)
    builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=leader_epoch)
    for number in range(count):
        builder.append(timestamp, None, bytes(room) if number == 0 else b"")
    built = builder.build()
    assert len(built) == BATCH_SIZE
    return built


def marker(pid: int, *, commit: bool, epoch: int = 0, timestamp: int = NOW_MS) -> bytearray:
    """The batch that ends a transaction."""
    return build_txn_marker(commit, pid, epoch, 0, timestamp)


def append(log: Log, *found: bytearray) -> list[AppendInfo]:
    """Append batches as a leader, one by one, and let all replicas have them."""
    infos = [log.append_as_leader(one, LEADER_EPOCH) for one in found]
    log.update_high_watermark(log.log_end_offset)
    return infos


def append_transactional(
    log: Log, pid: int, sequence: int, count: int = 1, *, value: bytes = b""
) -> AppendInfo:
    """Append a batch of a transaction that the coordinator knows of."""
    guard = log.producer_state.start_transaction_verification(pid, sequence, 0, False, NOW_MS)
    return log.append_as_leader(
        batch(
            [NOW_MS] * count, value=value, pid=pid, epoch=0, sequence=sequence, transactional=True
        ),
        LEADER_EPOCH,
        verification_guard=guard,
    )


def append_marker(log: Log, pid: int, *, commit: bool) -> AppendInfo:
    """End a transaction, as its coordinator does."""
    return log.append_as_leader(
        marker(pid, commit=commit),
        LEADER_EPOCH,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=0,
    )


def log_bytes(log: Log) -> bytes:
    """All bytes of the segments, oldest first."""
    return b"".join(segment.log_file.file.read_at(0, segment.size) for segment in log.segments)


def log_batches(log: Log) -> list[Batch]:
    """All batches on disk, their checksums looked at."""
    found = list(batches(log_bytes(log)))
    for one in found:
        one.ensure_valid()
    return found


def log_records(log: Log) -> list[Record]:
    """Every record that a reader finds who starts at the log's start and reads to its end."""
    found: list[Record] = []
    offset = log.log_start_offset
    while (piece := log_read.read(log, offset, 1 << 20, Isolation.LOG_END).slice) is not None:
        for one in batches(piece.read()):
            found += [record for record in one if record.offset >= offset]
            offset = one.next_offset
    return found


def offsets(records: Iterable[Record]) -> list[int]:
    """Only the records' offsets."""
    return [record.offset for record in records]


def state_of(log: Log) -> tuple[object, ...]:
    """Everything about a log that a refused append must leave as it was."""
    names = sorted(entry.name for entry in log.fs.list_dir(log.directory))
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.recovery_point,
        log.segments.base_offsets,
        log.leader_epochs.entries,
        dict(log.producer_state.producers),
        log.producer_state.map_end_offset,
        {name: log.fs.read(join(log.directory, name)) for name in names},
    )


def refuses(code: ErrorCode, attempt: Callable[[], object]) -> KafkaError:
    """Check that an attempt is answered with this error."""
    with pytest.raises(KafkaError) as caught:
        attempt()
    assert caught.value.code is code
    return caught.value


class Node:
    """A log manager that can be stopped, killed and started again on the same files."""

    def __init__(
        self,
        config: LogConfig | None = None,
        *,
        fs: FileSystem | None = None,
        paths: Sequence[str] = ("/data",),
        manager_config: LogManagerConfig | None = None,
        index_memory: IndexMemory | None = None,
        open_files: OpenFiles | None = None,
        seed: int = 1,
    ) -> None:
        self.clock = ManualClock(NOW_MS)
        self.disk = SimulatedFileSystem(self.clock)
        self.fs: FileSystem = self.disk if fs is None else fs
        self.paths = list(paths)
        self.config = config or LogConfig(retention_ms=-1)
        self.manager_config = manager_config
        self.index_memory = index_memory
        self.open_files = open_files
        self.rng = random.Random(seed)
        #: Where the metadata log has the replicas, for the next start.
        self.assignment_of: AssignmentOf | None = None
        self.start()

    def start(self) -> None:
        """Open the directories."""
        self.manager = LogManager(
            self.fs,
            clock=self.clock,
            rng=self.rng,
            config=self.manager_config,
            index_memory=self.index_memory,
            open_files=self.open_files,
        )
        self.manager.attach(self.paths, IDENTITY)
        self.manager.load(lambda _: self.config, self.assignment_of)

    def stop(self) -> None:
        """Stop as a node does that was told to."""
        self.manager.close(broker_epoch=7)

    def kill(self) -> None:
        """Stop as a node does that was killed: what was written stays, nothing is tidied up."""
        self.manager.release()

    def restart(self, *, clean: bool) -> Log:
        """Stop one way or the other, start, and return the log."""
        if clean:
            self.stop()
        else:
            self.kill()
        self.start()
        return self.log

    def create(self, partition: TopicPartition, topic_id: Uuid = TOPIC_ID) -> Log:
        """Return a partition's log, new if there is none."""
        return self.manager.get_or_create(partition, topic_id, self.config, is_new=True)

    @property
    def log(self) -> Log:
        """The log that most tests are about."""
        return self.create(PARTITION)

    @property
    def folder(self) -> str:
        """Where that log is."""
        return join(self.paths[0], str(PARTITION))

    def path(self, name: str) -> str:
        """The path of a file in the log's folder."""
        return join(self.folder, name)

    def names(self) -> set[str]:
        """The names in the log's folder."""
        return {entry.name for entry in self.fs.list_dir(self.folder)}

    def files(self, *suffixes: str) -> dict[str, bytes]:
        """The files in the log's folder with these endings (all, if none are given)."""
        names = sorted(name for name in self.names() if name.endswith(suffixes or ("",)))
        return {name: self.fs.read(self.path(name)) for name in names}

    def put(self, name: str, content: bytes) -> None:
        """Replace or add a file in the log's folder."""
        file = self.fs.open(self.path(name), write=True, create=True)
        file.truncate(0)
        file.write_at(0, content)
        file.sync()
        file.close()
        self.fs.sync_dir(self.folder)

    def remove(self, name: str) -> None:
        """Remove a file from the log's folder."""
        self.fs.remove(self.path(name))
        self.fs.sync_dir(self.folder)


def name_of(base_offset: int, suffix: str) -> str:
    """The name of a file of a segment."""
    return f"{base_offset:020d}{suffix}"
