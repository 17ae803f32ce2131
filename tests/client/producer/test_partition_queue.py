"""Whatever fails, batches reach the log in order, and those of idempotent producers only once."""

from __future__ import annotations

import asyncio
from enum import Enum, auto

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.client.errors import ConnectionClosed
from dohle.client.producer.batch import ProducerBatch, ProducerIdentity, RecordMetadata
from dohle.client.producer.partition_queue import PartitionQueue
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.records.builder import BatchBuilder
from tests.client.group.model_log import ModelLog
from tests.client.scripted_broker import within

PARTITION = TopicPartition(TopicName("t"), 0)
DELIVERY_MS = 1000


class Step(Enum):
    """What may happen next to the queue of a partition."""

    ADD = auto()
    SEND = auto()
    ARRIVE = auto()
    REFUSE = auto()
    REFUSE_FOR_GOOD = auto()
    LOSE_REQUEST = auto()
    LOSE_ANSWER = auto()
    #: Behind the write.
    DISK_FAILS = auto()
    LEADER_CHANGES = auto()
    RESTART = auto()
    LET_EXPIRE = auto()


class Run:
    """A queue, the log it writes to, and the wire between them, which keeps order."""

    def __init__(self, idempotent: bool) -> None:
        self.queue = PartitionQueue(PARTITION)
        self.log = ModelLog()
        self.in_flight_max = 5 if idempotent else 1
        self.identity = ProducerIdentity(ProducerId(7), 0) if idempotent else None
        self.wire: list[tuple[ProducerBatch, bytes]] = []
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.now_ms = 0.0

    def step(self, step: Step) -> None:
        self.now_ms += 1
        match step:
            case Step.ADD:
                self.add()
            case Step.SEND:
                self.send()
            case Step.LET_EXPIRE:
                self.now_ms += DELIVERY_MS / 3
            case Step.RESTART:
                self.log.restart()
            case _ if self.wire:
                self.answer(step, *self.wire.pop(0))
        self.queue.expired(self.now_ms, DELIVERY_MS)
        if self.queue.is_broken and not self.queue.in_flight:
            assert self.identity is not None
            self.queue.restart()
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)

    def add(self) -> None:
        ordinal = self.queue.take_ordinal()
        batch = ProducerBatch(PARTITION, BatchBuilder(), ordinal, self.now_ms)
        for _ in range(1 + ordinal % 3):
            value = len(self.futures).to_bytes(4, "big")
            self.futures.append(batch.append(0, None, value, (), 0))
        batch.is_sealed = True
        self.queue.waiting.append(batch)

    def send(self) -> None:
        due_ms = self.queue.send_at_ms(0, self.in_flight_max)
        if due_ms is not None and due_ms <= self.now_ms:
            batch = self.queue.take(self.identity)
            self.wire.append((batch, bytes(batch.encoded())))

    def answer(self, step: Step, batch: ProducerBatch, data: bytes) -> None:
        error: KafkaError | None
        base_offset = -1
        match step:
            case Step.REFUSE:
                error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "")
            case Step.REFUSE_FOR_GOOD:
                error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "")
            case Step.LOSE_REQUEST:
                error = ConnectionClosed("")
            case _:
                code, base_offset = self.log.append(data)
                error = KafkaError(code, "") if code else None
                if step is Step.LOSE_ANSWER:
                    error = ConnectionClosed("")
                elif step is Step.DISK_FAILS:
                    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "")
                elif step is Step.LEADER_CHANGES:
                    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
        if error is None:
            self.queue.succeeded(batch)
            batch.succeed(base_offset)
        elif not self.queue.failed(batch, error, may_retry=True, retry_at_ms=self.now_ms + 1):
            batch.fail(error)

    def finish(self) -> None:
        """Let everything succeed from here on."""
        for _ in range(20 * (len(self.futures) + 1)):
            if self.queue.is_idle:
                break
            self.step(Step.SEND)
            self.step(Step.ARRIVE)
        assert self.queue.is_idle
        assert all(future.done() for future in self.futures)

    def outcomes(self) -> list[RecordMetadata | None]:
        return [None if each.exception() else each.result() for each in self.futures]


STEPS = st.lists(
    st.sampled_from([*Step, Step.ADD, Step.ADD, Step.SEND, Step.SEND, Step.ARRIVE, Step.ARRIVE]),
    max_size=80,
)


@settings(deadline=None)
@given(STEPS)
def test_an_idempotent_producer_writes_in_order_and_only_once(steps: list[Step]) -> None:
    async def body() -> None:
        run = Run(idempotent=True)
        for step in steps:
            run.step(step)
        run.finish()
        values = run.log.values
        assert values == sorted(set(values), key=lambda value: value or b"")
        for number, outcome in enumerate(run.outcomes()):
            if outcome is not None:
                assert values[outcome.offset] == number.to_bytes(4, "big")

    within(20, body())


@settings(deadline=None)
@given(STEPS)
def test_a_plain_producer_writes_in_order_and_at_least_once(steps: list[Step]) -> None:
    async def body() -> None:
        run = Run(idempotent=False)
        for step in steps:
            run.step(step)
        run.finish()
        values = run.log.values
        first_seen = list(dict.fromkeys(values))
        assert first_seen == sorted(first_seen, key=lambda value: value or b"")
        for number, outcome in enumerate(run.outcomes()):
            if outcome is not None:
                assert values[outcome.offset] == number.to_bytes(4, "big")

    within(20, body())


def test_several_batches_are_in_flight_until_one_fails() -> None:
    async def body() -> None:
        run = Run(idempotent=True)
        for _ in range(7):
            run.step(Step.ADD)
        for _ in range(7):
            run.step(Step.SEND)
        assert len(run.wire) == 5
        run.step(Step.REFUSE)
        for _ in range(4):
            run.step(Step.SEND)
            assert len(run.queue.in_flight) == len(run.wire)
            run.step(Step.ARRIVE)
        # All were out of order behind the first; they go out again one at a time.
        assert run.log.values == []
        assert not run.wire
        run.step(Step.SEND)
        run.step(Step.SEND)
        assert len(run.wire) == 1
        run.finish()
        assert len(run.log.records) == len(run.futures)
        assert all(run.outcomes())

    within(10, body())


def test_what_may_have_been_written_is_not_sent_under_a_new_identity() -> None:
    async def body() -> None:
        run = Run(idempotent=True)
        for _ in range(2):
            run.step(Step.ADD)
        run.step(Step.SEND)
        run.step(Step.SEND)
        run.step(Step.REFUSE_FOR_GOOD)
        run.step(Step.LOSE_REQUEST)
        run.finish()
        assert run.outcomes() == [None] * len(run.futures)
        error = run.futures[-1].exception()
        assert isinstance(error, KafkaError)
        assert "may or may not have been written" in str(error)
        assert run.log.values == []

    within(10, body())


@pytest.mark.parametrize("step", [Step.LOSE_ANSWER, Step.DISK_FAILS, Step.LEADER_CHANGES])
def test_what_was_written_but_not_acknowledged_is_not_written_again(step: Step) -> None:
    async def body() -> None:
        run = Run(idempotent=True)
        run.step(Step.ADD)
        run.step(Step.LET_EXPIRE)
        run.step(Step.ADD)
        run.step(Step.SEND)
        run.step(Step.SEND)
        run.step(step)
        run.step(step)
        # The first is given up, and with it the sequence.
        run.step(Step.LET_EXPIRE)
        run.step(Step.LET_EXPIRE)
        run.finish()
        assert len(run.log.values) == len(set(run.log.values)) == len(run.futures)
        assert run.outcomes() == [None] * len(run.futures)

    within(10, body())


@pytest.mark.parametrize("step", [Step.LOSE_ANSWER, Step.DISK_FAILS, Step.LEADER_CHANGES])
def test_what_a_restarted_broker_takes_for_out_of_order_is_not_written_again(step: Step) -> None:
    async def body() -> None:
        run = Run(idempotent=True)
        for _ in range(3):
            run.step(Step.ADD)
        for _ in range(3):
            run.step(Step.SEND)
        for _ in range(3):
            run.step(step)
        # It knows the last batch only, so that the first is no duplicate to it.
        run.step(Step.RESTART)
        run.finish()
        assert len(run.log.values) == len(set(run.log.values)) == len(run.futures)

    within(10, body())
