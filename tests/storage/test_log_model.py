"""A log that is written, rolled, truncated, retained, closed, killed and reopened in any order.

It must always equal a plain list of records, and every lookup a search through that list.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.core.seams import ManualClock
from dohle.core.uuid import random_uuid
from dohle.records.batch import Codec, batches
from dohle.records.builder import BatchBuilder
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.open_files import OpenFiles
from dohle.testing.simulation.files import SimulatedFileSystem

PARTITION = TopicPartition(TopicName("model"), 3)
TOPIC_ID = random_uuid(random.Random(1))
CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=120,
    segment_index_bytes=12 * 8,
    segment_ms=5_000,
    retention_ms=-1,
    file_delete_delay_ms=1_000,
)
TIMESTAMPS = st.integers(0, 12_000)


@dataclass(frozen=True)
class Entry:
    """One record of the model."""

    offset: int
    timestamp: int
    value: bytes
    batch_start: int
    batch_end: int


class LogModel(RuleBasedStateMachine):
    """The rules; ``entries`` is the model."""

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock(20_000)
        self.fs = SimulatedFileSystem(self.clock)
        self.entries: list[Entry] = []
        self.start_offset = 0
        self.end_offset = 0
        self.counter = 0
        self._open()
        self.manager.get_or_create(PARTITION, TOPIC_ID, CONFIG)

    def _open(self) -> None:
        # One open file: nearly every step finds its file closed.
        self.manager = LogManager(
            self.fs, clock=self.clock, rng=random.Random(2), open_files=OpenFiles(1)
        )
        self.manager.open(["/d"], Identity("c", BrokerId(0)), lambda _: CONFIG)

    @property
    def log(self) -> Log:
        log = self.manager.get(PARTITION)
        assert log is not None
        return log

    @rule(
        timestamps=st.lists(TIMESTAMPS, min_size=1, max_size=4),
        size=st.integers(0, 60),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
        gap=st.integers(0, 3),
        as_follower=st.booleans(),
    )
    def append(
        self, timestamps: list[int], size: int, codec: Codec, gap: int, as_follower: bool
    ) -> None:
        base = self.end_offset + (gap if as_follower else 0)
        builder = BatchBuilder(
            base_offset=base if as_follower else 0, codec=codec, partition_leader_epoch=1
        )
        for number, timestamp in enumerate(timestamps):
            self.counter += 1
            value = b"%d" % self.counter + b"." * size
            builder.append(timestamp, None, value)
            self.entries.append(
                Entry(base + number, timestamp, value, base, base + len(timestamps) - 1)
            )
        if as_follower:
            info = self.log.append_as_follower(builder.build(), 1)
        else:
            info = self.log.append_as_leader(builder.build(), 1)
        assert info is not None
        assert (info.first_offset, info.last_offset) == (base, base + len(timestamps) - 1)
        self.end_offset = base + len(timestamps)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end_offset

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # Leaders only ever name the end of a batch.
        ends = [e.batch_end + 1 for e in self.entries if e.batch_end >= self.start_offset]
        offset = data.draw(st.sampled_from(ends or [self.end_offset]), label="truncate to")
        self.log.truncate_to(offset)
        self.entries = [entry for entry in self.entries if entry.batch_end < offset]
        self.end_offset = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.update_high_watermark(self.end_offset)
        offset = data.draw(st.integers(self.start_offset, self.end_offset), label="delete below")
        self.start_offset = self.log.delete_records(offset)
        delete_old_segments(self.log, self.clock.now_ms())
        # Without this a kill may bring the old start back, as in Kafka.
        self.manager.directories[0].checkpoints.write_log_start_offsets()

    @rule(ms=st.integers(1, 3_000))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        self.manager.run_due()
        self.manager.flush_due_now()

    @rule()
    def close_and_reopen(self) -> None:
        self.manager.close()
        self._open()

    @rule()
    def kill_and_reopen(self) -> None:
        self.fs.crash()
        self._open()

    @rule(data=st.data(), max_bytes=st.integers(1, 400), min_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset), label="read from")
        found = log_read.read(self.log, offset, max_bytes, Isolation.LOG_END, min_one_batch=min_one)
        expected = next((entry for entry in self.entries if entry.batch_end >= offset), None)
        if expected is None:
            assert found.slice is None
            return
        assert found.slice is not None
        assert found.slice.base_offset == expected.batch_start
        data_read = found.slice.read()
        assert len(data_read) <= max_bytes or min_one
        complete = list(batches(data_read))
        if min_one:
            assert complete
        values = [record.value for batch in complete for record in batch]
        wanted = [e.value for e in self.entries if e.batch_start >= expected.batch_start]
        assert values == wanted[: len(values)]

    @rule(timestamp=TIMESTAMPS)
    def look_up_by_timestamp(self, timestamp: int) -> None:
        found = log_read.find_by_timestamp(self.log, timestamp)
        visible = [entry for entry in self.entries if entry.offset >= self.start_offset]
        expected = next((entry for entry in visible if entry.timestamp >= timestamp), None)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert (found.offset, found.timestamp) == (expected.offset, expected.timestamp)

    @invariant()
    def equals_the_list(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end_offset
        assert log.log_start_offset == self.start_offset
        found: list[tuple[int, int, bytes | None]] = []
        offset = self.start_offset
        while (piece := log_read.read(log, offset, 1 << 20).slice) is not None:
            for batch in batches(piece.read()):
                found += [(r.offset, r.timestamp, r.value) for r in batch]
                offset = batch.next_offset
        wanted = [
            (e.offset, e.timestamp, e.value)
            for e in self.entries
            if e.batch_end >= self.start_offset
        ]
        assert found == wanted


LogModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogModel = LogModel.TestCase
