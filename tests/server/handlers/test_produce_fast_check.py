"""Most batches take the fast path to the log. Two nodes get the same requests, and one of them may
not take it: their answers and all that they keep must be the same, byte by byte.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.config.topic import effective_topic_config
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, ProducerId, TopicName, TopicPartition, Uuid
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.metadata.partition import PartitionImage
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.records.batch import CONTROL_FLAG, LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, Codec
from dohle.records.builder import BatchBuilder
from dohle.server.host import SystemNodeHost
from dohle.server.node import Node
from dohle.server.partitions.appends import append
from dohle.server.partitions.partitions import Partition
from dohle.server.partitions.topic_settings import TopicSettings
from dohle.server.shortcuts.produce import ProduceShortcut, learn_produce
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.server.shortcuts.serving import serve_late, served
from tests.server.wire import node_config
from tests.storage.logs import NOW_MS, property_test, state_of

KEY = TopicPartition(TopicName("orders"), 0)
TOPIC_ID = Uuid(bytes(range(16)))
VERSION = 9
DAY_MS = 86_400_000

#: Small segments, so that they fill and roll, and an index entry for nearly every batch.
SMALL = {
    "max.message.bytes": "600",
    "index.interval.bytes": "100",
    "segment.index.bytes": "100",
    "segment.ms": "5000",
}
SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"compression.type": "gzip"},
    {"compression.type": "uncompressed"},
    {"message.timestamp.before.max.ms": "1000"},
    {"flush.messages": "3"},
    {"min.insync.replicas": "2"},
)


def reseal(data: bytearray) -> None:
    data[17:21] = crc32c.crc32c(memoryview(data)[21:]).to_bytes(4, "big")


def put(layout: str, at: int, value: int, *, seal: bool = True) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        struct.pack_into(layout, data, at, value)
        if seal:
            reseal(data)

    return change


def shift_times(base_timestamp: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        struct.pack_into(">qq", data, 27, base_timestamp, base_timestamp)
        reseal(data)

    return change


def wrong_delta(data: bytearray) -> None:
    data[64] = 8
    reseal(data)


#: What can be wrong or unusual with a batch's bytes.
CHANGES: dict[str, Callable[[bytearray], None]] = {
    "none": lambda data: None,
    "base offset": put(">q", 0, 5),
    "length": put(">i", 8, 49),
    "old format": put(">b", 16, 1),
    "unknown format": put(">b", 16, 3),
    "checksum": put(">I", 17, 1, seal=False),
    "last byte": lambda data: data.__setitem__(-1, data[-1] ^ 1),
    "bad last byte": put(">b", -1, 1),
    "append time": put(">h", 21, LOG_APPEND_TIME_FLAG),
    "control": put(">h", 21, CONTROL_FLAG),
    "transactional": put(">h", 21, TRANSACTIONAL_FLAG),
    "unused flag": put(">h", 21, 0x80),
    "codec": put(">h", 21, Codec.GZIP),
    "last offset delta": put(">i", 23, 6),
    "largest timestamp": put(">q", 35, NOW_MS + 1),
    "before 1970": shift_times(-5),
    "first time of all": shift_times(-(2**63)),
    "no count": put(">i", 57, 0),
    "count": put(">i", 57, 7),
    "wrong offset inside": wrong_delta,
    "bytes behind": lambda data: data.extend(b"\0" * 7),
    "cut": lambda data: data.__delitem__(slice(40, None)),
    "twice": lambda data: data.extend(bytes(data)),
}


@dataclass(frozen=True)
class Produce:
    """A batch: how its producer's epoch and sequence follow the last that was appended."""

    producer_id: int = -1
    epoch_step: int = 0
    sequence_step: int = 0
    timestamps: tuple[int, ...] = (NOW_MS,)
    value_size: int = 10
    codec: Codec = Codec.NONE
    change: str = "none"


Step = Produce | str | Mapping[str, str]


def usually(common: int, *others: int) -> st.SearchStrategy[int]:
    return st.sampled_from([common] * 12 + list(others))


TIMESTAMPS = st.sampled_from(
    [NOW_MS] * 12 + [NOW_MS + 1, NOW_MS - 7000, NOW_MS + 7000, NOW_MS + DAY_MS, 0, -1]
)
PRODUCES = st.builds(
    Produce,
    producer_id=st.sampled_from([-1, 1, 1, 2]),
    epoch_step=usually(0, 1, -1),
    sequence_step=usually(0, 1, -1, -2, 2**31),
    timestamps=st.lists(TIMESTAMPS, min_size=1, max_size=3).map(tuple),
    value_size=st.sampled_from([0, 10, 60, 200, 480, 700]),
    codec=st.sampled_from([Codec.NONE] * 9 + [Codec.GZIP]),
    change=st.sampled_from(["none"] * 4 * len(CHANGES) + list(CHANGES)),
)
AROUND: tuple[Step, ...] = (
    *["write"] * 8,
    *["leader epoch", "later"] * 2,
    *SETTINGS,
    *[SETTINGS[0]] * 8,
)
#: Three of four steps produce.
STEPS = st.lists(
    st.integers(0, 3).flatmap(lambda kind: PRODUCES if kind else st.sampled_from(AROUND)),
    min_size=30,
    max_size=50,
)


class Side:
    """One of the two nodes, with its partition."""

    def __init__(self, path: Path, key: TopicPartition, acks: int, *, short: bool) -> None:
        self._key, self._acks = key, acks
        self._short = short
        self.clock = ManualClock(NOW_MS)
        self._properties: Mapping[str, str] = {}
        fs = SimulatedFileSystem(self.clock)
        config = node_config(path)
        host = SystemNodeHost(files=fs, clock=self.clock, rng=random.Random(1))
        self.node = Node(config, host=host)
        node_id = config.node_id
        self._image = PartitionImage((node_id,), (TOPIC_ID,), (node_id,), node_id, 0, 0)
        self._shortcut: ProduceShortcut | None = None
        self._correlation_id = 0

    async def start(self) -> None:
        await self.node.start()
        self._add(is_new=True)
        self.configure({})

    async def stop(self) -> None:
        await self.node.stop()

    @property
    def partition(self) -> Partition:
        found = self.node.broker.partitions.get(*self._key)
        assert found is not None
        return found

    def _add(self, *, is_new: bool = False) -> None:
        settings = self._settings()
        self.node.broker.partitions.add(self._key, TOPIC_ID, self._image, settings, is_new=is_new)
        self._choose_way()

    def _settings(self) -> TopicSettings:
        values = effective_topic_config({**SMALL, **self._properties}, self.node.config)
        return TopicSettings.of("topic", values)

    def _choose_way(self) -> None:
        if not self._short:
            self.partition.allows_fast_check = False

    def configure(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.partition.configure(self._settings())
        self._choose_way()

    def next_leader_epoch(self) -> None:
        self._image = replace(self._image, leader_epoch=self._image.leader_epoch + 1)
        self._add()

    def lose_leadership(self) -> None:
        # In the same epoch, so that only the leader's id can tell.
        self._image = replace(self._image, leader=BrokerId(self._image.leader + 1))
        self._add()

    def write(self) -> None:
        self.node.broker.write_appends()

    def produce(self, records: bytes) -> Callable[[], bytes]:
        """Send a request; the answer can be asked for once everything is written."""
        self._correlation_id += 1
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name=self._key.topic, partition_data=(data,))
        request = ProduceRequest(acks=self._acks, timeout_ms=1000, topic_data=(topic,))
        chunks = encode_request(request, VERSION, self._correlation_id, "client")
        frame = memoryview(bytearray(b"".join(chunks)))[4:]
        if self._shortcut is None:
            self._shortcut = learn_produce(self.node.broker, served(frame))
            assert self._shortcut is not None
        reply = serve_late(self._shortcut, self.node.broker, frame)
        if reply is None:
            # It is not served by the shortcut: what is transactional without a transaction.
            return lambda: b""
        return lambda: b"".join(bytes(chunk) for chunk in reply() if isinstance(chunk, bytes))

    def state(self) -> tuple[object, ...]:
        log = self.partition.log
        active = log.segments.active
        indexes = [
            (
                one.indexes.offset.entries(),
                one.indexes.time.entries(),
                one.indexes.max_timestamp,
                one.size,
            )
            for one in log.segments
        ]
        since = (active.indexes.bytes_since_entry, active.first_batch_timestamp)
        flush = (log.flushing.due_ms, log.flushing.wanted_up_to)
        return (*state_of(log), indexes, active.log_file.unwritten, since, flush)


def batch_for(step: Produce, log_state: Partition) -> bytes:
    """The step's batch, by what is known of the producer."""
    epoch = sequence = -1
    if step.producer_id >= 0:
        known = log_state.log.producer_state.producers.get(step.producer_id)
        epoch = max(0, (0 if known is None else known.producer_epoch) + step.epoch_step)
        follows = 0 if known is None or step.epoch_step > 0 else known.last_sequence + 1
        # The largest step goes to the end of the numbers, from where they begin anew.
        sequence = min(max(0, follows + step.sequence_step), 2**31 - 1)
    builder = BatchBuilder(
        codec=step.codec,
        producer_id=ProducerId(step.producer_id),
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    for timestamp in step.timestamps:
        builder.append(timestamp, None, bytes(step.value_size))
    built = builder.build()
    CHANGES[step.change](built)
    return bytes(built)


def run_both(path: Path, steps: list[Step], *, key: TopicPartition = KEY, acks: int = -1) -> None:
    async def run() -> None:
        sides = [Side(path, key, acks, short=short) for short in (True, False)]
        for side in sides:
            await side.start()
        replies: list[list[Callable[[], bytes]]] = [[], []]
        try:
            for step in [*steps, "write"]:
                if isinstance(step, Produce):
                    built = batch_for(step, sides[1].partition)
                for side, waiting in zip(sides, replies, strict=True):
                    if isinstance(step, Produce):
                        waiting.append(side.produce(built))
                    elif step == "write":
                        side.write()
                    elif step == "leader epoch":
                        side.next_leader_epoch()
                    elif step == "another leader":
                        side.lose_leadership()
                    elif step == "later":
                        side.clock.advance(1500)
                    elif not isinstance(step, str):
                        side.configure(step)
                if step == "write":
                    answers = [[reply() for reply in waiting] for waiting in replies]
                    assert answers[0] == answers[1]
                    replies = [[], []]
                assert sides[0].state() == sides[1].state()
        finally:
            for side in sides:
                await side.stop()

    asyncio.run(run())


@given(STEPS)
@property_test(100)
def test_both_ways_leave_the_same_log_and_give_the_same_answers(
    steps: list[Step],
) -> None:
    run_both(Path("/simulated"), steps)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "none")
@pytest.mark.parametrize("producer_id", [-1, 1])
def test_both_ways_are_the_same_for_every_change_of_a_batch(
    producer_id: int, settings: Mapping[str, str]
) -> None:
    steps: list[Step] = [Produce(producer_id), Produce(producer_id), settings]
    for change in CHANGES:
        steps.append(Produce(producer_id))
        steps.append(Produce(producer_id, timestamps=(NOW_MS, NOW_MS), change=change))
    run_both(Path("/simulated"), steps)


def test_both_ways_refuse_what_another_broker_leads() -> None:
    before: list[Step] = [Produce(), Produce(), "write", "another leader"]
    run_both(Path("/simulated"), [*before, Produce(), Produce(1)])


@pytest.mark.parametrize("acks", [-2, 2])
def test_both_ways_refuse_acks_that_are_not_known(acks: int) -> None:
    run_both(Path("/simulated"), [Produce(), Produce(), Produce(1)], acks=acks)


def test_both_ways_are_closed_to_clients_for_internal_topics() -> None:
    key = TopicPartition(TopicName("__transaction_state"), 0)
    run_both(Path("/simulated"), [Produce(), Produce(), Produce(1)], key=key)


def test_a_version_that_knows_no_batches_takes_none() -> None:
    async def run() -> None:
        side = Side(Path("/simulated"), KEY, -1, short=True)
        await side.start()
        records = memoryview(bytearray(batch_for(Produce(), side.partition)))
        broker = side.node.broker
        steps = append(broker, side.partition, records, -1, 2, "client", broker.clock.now_ms())
        assert isinstance(steps, Generator)
        outcome = finish(steps)
        await side.stop()
        assert isinstance(outcome, KafkaError)

    asyncio.run(run())
