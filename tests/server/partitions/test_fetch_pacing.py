"""Fetches of very many partitions keep a pace; others are never held up."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.core.steps import Steps, finish
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.server.net.connection import Connection
from dohle.server.partitions.fetch_pacing import PARTITIONS_MIN, FetchPacing, Pace
from tests.server.wire import Wire, batch, create_topic, produce, running_node

VERSION = 12
WAIT_MS = 3_600_000


class Client(Connection):
    """A connection that is none."""

    def __init__(self) -> None:
        """Leave it closed."""


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def time(self) -> float:
        return self.now


def request(topics: int, partitions: int) -> FetchRequest:
    asked = tuple(FetchPartition(partition=index) for index in range(partitions))
    return FetchRequest(
        topics=tuple(
            FetchTopic(topic=TopicName(f"t{number}"), partitions=asked) for number in range(topics)
        )
    )


@pytest.mark.parametrize(
    ("topics", "partitions", "session", "has_pace"),
    [
        (1, PARTITIONS_MIN - 1, 0, False),
        (1, PARTITIONS_MIN, 0, True),
        (PARTITIONS_MIN, 1, 0, True),
        (0, 0, PARTITIONS_MIN - 1, False),
        (1, 1, PARTITIONS_MIN, True),
        (0, 0, 0, False),
    ],
)
def test_only_who_has_very_many_partitions_keeps_a_pace(
    topics: int, partitions: int, session: int, has_pace: bool
) -> None:
    pacing = FetchPacing(Clock().time)
    pace = pacing.of(Client(), request(topics, partitions), session)
    assert (pace is not None) == has_pace


def test_the_next_waits_for_a_multiple_of_the_time_that_the_last_had_and_not_for_long() -> None:
    clock = Clock()
    pace = Pace(clock.time)

    def work(*seconds: float) -> Steps[str]:
        for each in seconds:
            clock.now += each
            yield None
        return "done"

    assert pace.next_at <= clock.now
    assert finish(pace.timed(work(0.001, 0.001))) == "done"
    assert 0.002 < pace.next_at - clock.now < 0.020
    clock.now += 1
    assert pace.next_at < clock.now
    finish(pace.timed(work(5.0)))
    assert 0.1 < pace.next_at - clock.now < 0.5


def test_who_finds_something_in_most_partitions_may_ask_again_at_once() -> None:
    clock = Clock()
    pace = Pace(clock.time)

    def work(*, finds: bool) -> Steps[None]:
        for _ in range(2):
            clock.now += 0.005
            yield None
        pace.has_found_much = finds

    finish(pace.timed(work(finds=True)))
    assert pace.next_at <= clock.now
    finish(pace.timed(work(finds=False)))
    assert pace.next_at > clock.now


@pytest.mark.parametrize(("filled", "is_paced"), [(PARTITIONS_MIN, False), (1, True)])
def test_a_consumer_that_is_behind_in_most_partitions_is_not_held_up(
    tmp_path: Path, filled: int, is_paced: bool
) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", PARTITIONS_MIN)
            for index in range(filled):
                assert (await produce(wire, "t", batch(b"v"), index)).error_code == 0
            asked = tuple(
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                for index in range(PARTITIONS_MIN)
            )
            topic = FetchTopic(topic=TopicName("t"), partitions=asked)
            wide = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=(topic,))
            answer = await wire.send(wide, VERSION)
            assert len(answer.responses[0].partitions) == PARTITIONS_MIN
            (pace,) = node.broker.fetch_pacing._paces.values()
            assert (pace.next_at > 0.0) == is_paced

    asyncio.run(run())


def test_the_time_of_others_between_two_steps_does_not_count() -> None:
    clock = Clock()
    pace = Pace(clock.time)

    def work() -> Steps[None]:
        yield None
        yield None

    steps = pace.timed(work())
    for _ in range(2):
        next(steps)
        clock.now += 10
    assert pace.next_at < clock.now


def test_each_connection_has_its_own_pace_for_as_long_as_it_lives() -> None:
    pacing = FetchPacing(Clock().time)
    first, second = Client(), Client()
    wide = request(1, PARTITIONS_MIN)
    pace = pacing.of(first, wide, 0)
    assert pacing.of(first, wide, 0) is pace
    assert pacing.of(second, wide, 0) is not pace
    del first
    gc.collect()
    assert len(pacing._paces) == 1


def test_a_fetch_of_very_many_partitions_gets_what_is_appended_while_it_waits(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with (
            running_node(tmp_path) as node,
            await Wire.connect(node) as producer,
            await Wire.connect(node) as consumer,
        ):
            await create_topic(producer, "t", PARTITIONS_MIN)
            offsets = [0] * PARTITIONS_MIN
            for number in range(30):
                asked = tuple(
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
                    for index, offset in enumerate(offsets)
                )
                topic = FetchTopic(topic=TopicName("t"), partitions=asked)
                wide = FetchRequest(
                    max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1 << 20, topics=(topic,)
                )
                await consumer.post(wide, VERSION)
                index = number * 7 % PARTITIONS_MIN
                assert (await produce(producer, "t", batch(b"v"), index)).error_code == 0
                answer = await consumer.answer(1, VERSION)
                (found,) = answer.responses
                assert len(found.partitions) == PARTITIONS_MIN
                got = [each.partition_index for each in found.partitions if each.records]
                assert got == [index]
                offsets[index] += 1

    asyncio.run(run())
