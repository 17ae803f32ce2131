"""Replicas of one partition in memory: records are an epoch and a value each.

Epochs are kept by the real ``LeaderEpochs``; what a leader answers is in the words of
``server.partitions.fetch_reader``.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.seams import ManualClock
from dohle.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from dohle.replication.follower import (
    Append,
    CompareRange,
    Delay,
    Fail,
    Restart,
    Truncate,
    beginning,
    in_range,
    next_fetch,
    react,
)
from dohle.storage.leader_epochs import LeaderEpochs
from dohle.testing.simulation.files import SimulatedFileSystem

_NO_EPOCH = EpochEndOffset()
MAX_BYTES = 1 << 20


class ModelLog:
    """A log of records (epoch, value) from offset 0 or later on."""

    def __init__(self) -> None:
        files = SimulatedFileSystem(ManualClock())
        files.make_dirs("/log")
        self.leader_epochs = LeaderEpochs(files, "/log")
        self.log_start_offset = 0
        self.high_watermark = 0
        self.records: list[tuple[int, str]] = []
        self._base = 0

    @property
    def log_end_offset(self) -> int:
        return self._base + len(self.records)

    def at(self, offset: int) -> tuple[int, str]:
        return self.records[offset - self._base]

    @property
    def values(self) -> str:
        return "".join(value for _, value in self.records)

    # As a leader

    def lead(self, epoch: int) -> None:
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def append(self, epoch: int, value: str) -> None:
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self.records.append((epoch, value))

    def delete_before(self, offset: int) -> None:
        self.records = self.records[offset - self._base :]
        self._base = self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.leader_epochs.truncate_from_start(offset)

    def serve(self, asked: FetchPartition) -> tuple[PartitionData, list[tuple[int, str]]]:
        """Answer a fetch as a leader does, with the records beside."""
        end = self.log_end_offset
        diverging = _NO_EPOCH
        records: list[tuple[int, str]] = []
        error = ErrorCode.NONE
        if asked.last_fetched_epoch >= 0:
            found = self.leader_epochs.end_offset_for(asked.last_fetched_epoch, end)
            if found.end_offset < 0:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            elif found.epoch < asked.last_fetched_epoch or found.end_offset < asked.fetch_offset:
                diverging = EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)
        if not error and diverging is _NO_EPOCH:
            if self.log_start_offset <= asked.fetch_offset <= end:
                records = self.records[asked.fetch_offset - self._base :]
            else:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
        data = PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=-1 if error else self.high_watermark,
            log_start_offset=self.log_start_offset,
            diverging_epoch=diverging,
            records=b"",
        )
        return data, records

    # As a follower

    def begin(self) -> None:
        cut = beginning(self)
        if cut is not None:
            self.truncate(cut.offset)

    def ask(self, leader_epoch: int) -> FetchPartition:
        return next_fetch(self, 0, leader_epoch, MAX_BYTES)

    def take(
        self, data: PartitionData, records: list[tuple[int, str]], leader: ModelLog, epoch: int
    ) -> str:
        """Do what is decided about an answer; return what that was."""
        reaction = react(data, self)
        match reaction:
            case Append(_, high_watermark, log_start_offset):
                for record in records:
                    if record[0] > epoch:
                        break
                    self.append(*record)
                self.high_watermark = min(max(high_watermark, 0), self.log_end_offset)
                if log_start_offset > self.log_start_offset:
                    self.delete_before(min(log_start_offset, self.high_watermark))
            case Truncate(offset):
                self.truncate(offset)
            case CompareRange():
                found = in_range(self, leader.log_start_offset, leader.log_end_offset)
                if isinstance(found, Truncate):
                    self.truncate(found.offset)
                elif isinstance(found, Restart):
                    self.restart(found.offset)
            case Delay() | Fail():
                pass
        return type(reaction).__name__

    def fetch_from(self, leader: ModelLog, epoch: int, rounds: int = 1) -> list[str]:
        """Fetch some times; return what came of each."""
        done = []
        for _ in range(rounds):
            asked = self.ask(epoch)
            done.append(self.take(*leader.serve(asked), leader, epoch))
        return done

    def truncate(self, offset: int) -> None:
        self.leader_epochs.truncate_from_end(min(offset, self.log_end_offset))
        self.records = self.records[: max(0, offset - self._base)]
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def restart(self, offset: int) -> None:
        self.records = []
        self._base = self.log_start_offset = self.high_watermark = offset
        self.leader_epochs.clear()
