"""Requests of very many entries: one at a time, and not more than a limit."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Lock
from functools import partial
from typing import Any

import pytest

from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import CountedSteps, finish
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.request_entries import ENTRIES_MAX, MANY_ENTRIES, Entries, LargeRequest
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from tests.server.net.stopped_loop import StoppedLoop, run, turn_of_the_loop


def request_of(*counts: int) -> Entries[str]:
    def decode(_: list[Any]) -> CountedSteps[tuple[str, int]]:
        yield from counts
        return "decoded", 0

    return Entries(decode)


def test_a_request_is_decoded_up_to_a_limit_and_then_on() -> None:
    entries = request_of(*[1] * 10)
    assert finish(entries.decode(5)) is None
    assert finish(entries.decode(9)) is None
    assert finish(entries.decode(10)) == "decoded"


def test_only_one_request_at_a_time_has_many_entries() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        lock, done = Lock(), list[str]()

        async def decode(name: str, *counts: int) -> LargeRequest:
            large = LargeRequest(lock)
            assert await large.decode(Slices(turns), request_of(*counts), "a") == "decoded"
            done.append(name)
            return large

        first = await decode("first", MANY_ENTRIES + 1, 1)
        second = asyncio.create_task(decode("second", MANY_ENTRIES + 1, 1))
        await turn_of_the_loop()
        await decode("small", MANY_ENTRIES)
        assert done == ["first", "small"]
        first.end()
        first.end()
        (await second).end()
        assert done == ["first", "small", "second"]
        assert not lock.locked()

    run(scenario)


def test_a_request_with_too_many_entries_closes_its_connection_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        large = LargeRequest(Lock())
        honest = request_of(ENTRIES_MAX)
        assert await large.decode(Slices(turns), honest, "10.0.0.1:5") == "decoded"
        large.end()
        with pytest.raises(CloseConnection, match="more than 1048576 entries"):
            await large.decode(Slices(turns), request_of(ENTRIES_MAX, 1, 1), "10.0.0.1:5")

    with caplog.at_level(logging.WARNING, logger="dohle.server"):
        run(scenario)
    assert "10.0.0.1:5" in caplog.text


def test_what_was_decoded_of_a_request_that_is_given_up_is_freed_in_steps() -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = tuple(
        ListOffsetsTopic(name=TopicName("t"), partitions=(partition,)) for _ in range(2_000)
    )
    body = memoryview(ListOffsetsRequest(replica_id=BrokerId(-1), topics=topics).encode(7))
    entries = Entries(partial(ListOffsetsRequest.decode_in_steps, 7, body, 0))
    assert finish(entries.decode(3_500)) is None
    assert sum(1 for _ in entries.give_up()) > 1_500


def test_an_array_of_too_many_entries_is_given_up_before_they_are_decoded() -> None:
    topics = tuple(MetadataRequestTopic(name=TopicName("t")) for _ in range(2_000))
    body = memoryview(MetadataRequest(topics=topics).encode(1))
    entries = Entries(partial(MetadataRequest.decode_in_steps, 1, body, 0))
    assert sum(1 for _ in entries.decode(1_999)) == 1
