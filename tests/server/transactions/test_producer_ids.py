"""Producer ids come in blocks, one of them ahead (H5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, ProducerId
from dohle.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from dohle.protocol.schema import Request, Response
from dohle.server.transactions import producer_ids
from dohle.server.transactions.producer_ids import ProducerIds
from tests.client.scripted_broker import until, within
from tests.metadata.cluster import cluster
from tests.server.channels.controllers import Images, ScriptedController

DEADLINE_S = 20
BLOCK = 10


def ids_of(decide: Callable[[Request], Response | Coroutine[None, None, Response]]) -> ProducerIds:
    images = Images()
    images.image = cluster().image
    return ProducerIds(images, ScriptedController(decide), BrokerId(1))


def block(start: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(producer_id_start=ProducerId(start), producer_id_len=BLOCK)


def test_the_next_block_is_asked_for_before_this_one_is_used_up() -> None:
    """H5, X4: while there is no controller, what was allocated before is handed out."""

    async def body() -> None:
        starts = iter((0, 50))
        asked = 0

        async def decide(request: Request) -> Response:
            nonlocal asked
            asked += 1
            start = next(starts, None)
            if start is None:
                await asyncio.Event().wait()
            return block(start or 0)

        ids = ids_of(decide)
        found = [await ids.next() for _ in range(BLOCK - 2)]
        assert asked == 1
        found.append(await ids.next())
        await until(lambda: asked == 2)
        found += [await ids.next() for _ in range(BLOCK)]
        assert found == [*range(BLOCK), *range(50, 50 + BLOCK - 1)]
        ids.close()

    within(DEADLINE_S, body())


def test_a_refusal_is_told_and_the_next_producer_asks_again() -> None:
    async def body() -> None:
        answers = [AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), block(7)]
        ids = ids_of(lambda request: answers.pop(0))
        with pytest.raises(KafkaError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert await ids.next() == 7

    within(DEADLINE_S, body())


@pytest.mark.parametrize("code", [None, 9_999])
def test_an_answer_that_was_not_expected_does_not_end_producer_ids(code: int | None) -> None:
    """Neither a fault of ours nor an error of a newer controller lasts until a restart."""

    async def body() -> None:
        asked = 0

        def decide(request: Request) -> Response:
            nonlocal asked
            asked += 1
            if asked > 1:
                return block(7)
            if code is None:
                raise RuntimeError("not expected")
            return AllocateProducerIdsResponse(error_code=code)

        ids = ids_of(decide)
        with pytest.raises(KafkaError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await ids.next() == 7

    within(DEADLINE_S, body())


def test_ids_that_are_not_above_those_before_are_refused() -> None:
    """H5: two brokers must never hand out the same id."""

    async def body() -> None:
        ids = ids_of(lambda request: block(20))
        assert [await ids.next() for _ in range(BLOCK)] == list(range(20, 30))
        with pytest.raises(KafkaError):
            await ids.next()

    within(DEADLINE_S, body())


def test_a_producer_does_not_wait_for_long_and_the_answer_is_for_who_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        answer = asyncio.Event()

        async def decide(request: Request) -> Response:
            await answer.wait()
            return block(3)

        ids = ids_of(decide)
        with pytest.raises(KafkaError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        answer.set()
        assert await ids.next() == 3

    monkeypatch.setattr(producer_ids, "WAIT_S", 0.05)
    within(DEADLINE_S, body())
