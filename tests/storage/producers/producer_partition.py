"""A producer state with a folder, driven the way a log drives it; for the tests beside this."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.records.batch import Batch, RecordBatch
from dohle.records.builder import build_empty_batch
from dohle.records.control import build_txn_marker
from dohle.storage.files import OsFileSystem
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.producers.state import (
    NO_VERIFICATION,
    AppendOrigin,
    AppendPlan,
    ProducerState,
    ProducerStateConfig,
)
from dohle.storage.segment.transaction_index import AbortedTransaction

PARTITION = TopicPartition(TopicName("orders"), 3)
NOW_MS = 1_700_000_000_000
PID = 17
CLIENT = AppendOrigin.CLIENT
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION
RAFT_LEADER = AppendOrigin.RAFT_LEADER


def data(
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    pid: int = PID,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    transactional: bool = False,
) -> RecordBatch:
    """A data batch; its records do not matter here and are left out."""
    built = build_empty_batch(
        base_offset=offset,
        last_offset=offset + count - 1,
        max_timestamp=timestamp,
        partition_leader_epoch=0,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return RecordBatch(memoryview(built))


def plain(offset: int, count: int = 1) -> RecordBatch:
    return data(offset, -1, count, pid=-1, epoch=-1)


def marker(
    offset: int,
    *,
    commit: bool = True,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
) -> RecordBatch:
    built = build_txn_marker(commit, pid, epoch, coordinator_epoch, timestamp, offset)
    return RecordBatch(memoryview(built))


class Partition:
    """A producer state with a folder, and appends the way a log makes them."""

    def __init__(self, directory: str) -> None:
        self.fs = OsFileSystem()
        self.directory = directory
        self.config = ProducerStateConfig()
        self.aborted: list[AbortedTransaction] = []
        self.state = self.open()

    def open(self) -> ProducerState:
        self.state = ProducerState(self.fs, self.directory, PARTITION, self.config)
        return self.state

    def append(
        self,
        *batches: Batch,
        origin: AppendOrigin = CLIENT,
        verify: bool = True,
        version: int = 0,
    ) -> AppendPlan:
        """Append as a leader whose coordinator confirms every transaction, unless told not to."""
        batch = batches[0]
        granted = NO_VERIFICATION
        if verify and batch.is_transactional and origin is CLIENT:
            granted = self.state.start_transaction_verification(
                batch.producer_id, batch.base_sequence, batch.producer_epoch, False, NOW_MS
            )
        plan = self.state.validate(
            batches, origin, verification_guard=granted, transaction_version=version
        )
        if plan.duplicate is None:
            self.aborted += plan.aborted
            self.state.commit(plan)
        return plan

    def end(self, batch: Batch, *, version: int = 0) -> AppendPlan:
        return self.append(batch, origin=COORDINATOR, version=version)

    def refuses(
        self,
        code: ErrorCode,
        *batches: Batch,
        origin: AppendOrigin = CLIENT,
        verify: bool = True,
        version: int = 0,
    ) -> None:
        """The batches are refused, and it is as if they had never come."""
        before = (dict(self.state.producers), self.state.map_end_offset)
        unstable = self.state.first_unstable_offset
        with pytest.raises(KafkaError) as caught:
            self.append(*batches, origin=origin, verify=verify, version=version)
        assert caught.value.code is code
        assert (dict(self.state.producers), self.state.map_end_offset) == before
        assert self.state.first_unstable_offset == unstable

    def entry(self, pid: int = PID) -> ProducerEntry:
        return self.state.producers[pid]

    def unstable_and_undecided(self) -> tuple[int | None, int | None]:
        return self.state.first_unstable_offset, self.state.first_undecided_offset

    def snapshots(self) -> list[int]:
        names = [entry.name for entry in self.fs.list_dir(self.directory)]
        return sorted(int(name[:20]) for name in names if name.endswith(".snapshot"))

    def snapshot_at(self, *offsets: int) -> None:
        for offset in offsets:
            self.state.map_end_offset = offset
            self.state.take_snapshot(sync=False)
