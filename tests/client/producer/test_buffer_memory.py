from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.client.producer.buffer_memory import BufferMemory
from tests.client.scripted_broker import within


def test_who_comes_first_gets_room_first() -> None:
    async def body() -> None:
        memory = BufferMemory(10)
        await memory.take(8)
        got = []

        async def take(size: int) -> None:
            await memory.take(size)
            got.append(size)

        tasks = [asyncio.create_task(take(size)) for size in (9, 1, 2)]
        await asyncio.sleep(0)
        assert got == []
        assert memory.is_exhausted
        assert not memory.try_take(1)
        memory.give(8)
        await asyncio.sleep(0)
        assert got == [9, 1]
        memory.give(9)
        await asyncio.gather(*tasks)
        assert got == [9, 1, 2]
        assert memory.used == 3

    within(10, body())


def test_more_than_there_is_at_all_is_refused() -> None:
    async def body() -> None:
        with pytest.raises(ValueError, match="11 bytes never fit into 10"):
            await BufferMemory(10).take(11)

    within(10, body())


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.booleans()), max_size=30))
def test_cancelled_callers_take_nothing_and_block_nobody(
    callers: list[tuple[int, bool]],
) -> None:
    async def body() -> None:
        memory = BufferMemory(10)
        await memory.take(10)
        tasks = [asyncio.create_task(memory.take(size)) for size, _ in callers]
        await asyncio.sleep(0)
        memory.give(10)  # some get their room in the same moment in which they are cancelled
        for task, (_, stays) in zip(tasks, callers, strict=True):
            if not stays:
                task.cancel()
        for task, (size, _) in zip(tasks, callers, strict=True):
            try:
                await task
                memory.give(size)
            except asyncio.CancelledError:
                pass
        assert memory.used == 0
        assert not memory.is_exhausted

    within(10, body())
