"""Requests to other nodes of the quorum: each has one outcome, whatever its receiver does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from dohle.core.errors import ErrorCode
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from dohle.protocol.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
)
from dohle.raft.effects import Send
from dohle.raft.events import Answered, Unanswered
from dohle.raft.values import Node
from dohle.server.quorum.peers import Peers
from tests.client.scripted_broker import (
    HANG_UP,
    SILENCE,
    Handler,
    Reply,
    ScriptedBroker,
    until,
    within,
)
from tests.ports import free_port

DEADLINE_S = 20


class Outcomes:
    """Peers, and what became of the requests to them."""

    def __init__(self, request_timeout_ms: int) -> None:
        self.found: dict[int, Answered | Unanswered] = {}
        self.peers = Peers(
            asyncio.get_running_loop(), SystemHost(), BrokerId(1), request_timeout_ms, self.take
        )

    def take(self, outcome: Answered | Unanswered) -> None:
        assert outcome.correlation_id not in self.found
        self.found[outcome.correlation_id] = outcome

    async def of(self, send: Send) -> Answered | Unanswered:
        self.peers.send(send)
        await until(lambda: send.correlation_id in self.found, DEADLINE_S)
        return self.found[send.correlation_id]


def run(
    scenario: Callable[[ScriptedBroker, Outcomes], Awaitable[None]],
    vote: Handler = lambda request, version: VoteResponse(error_code=0),
    *,
    request_timeout_ms: int = 10_000,
) -> None:
    async def body() -> None:
        async with ScriptedBroker(vote=vote) as broker:
            broker.serve(
                ApiKey.BEGIN_QUORUM_EPOCH, lambda request, version: BeginQuorumEpochResponse()
            )
            outcomes = Outcomes(request_timeout_ms)
            try:
                await scenario(broker, outcomes)
            finally:
                await outcomes.peers.close()

    within(DEADLINE_S, body())


def to(broker: ScriptedBroker) -> Node:
    return Node(BrokerId(2), *broker.address)


def test_a_request_is_answered_in_the_highest_version_that_both_know() -> None:
    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        broker.versions[ApiKey.VOTE] = (0, 1)
        outcome = await outcomes.of(Send(7, to(broker), VoteRequest(cluster_id="c")))
        assert outcome == Answered(7, VoteResponse(error_code=0))
        assert [each.version for each in broker.requests] == [1]

    run(scenario)


def test_a_pre_vote_that_the_peer_cannot_be_asked_is_told_as_such() -> None:
    """R43."""

    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        broker.versions[ApiKey.VOTE] = (0, 1)
        asked = VoteRequestPartitionData(pre_vote=True)
        request = VoteRequest(topics=(VoteRequestTopicData(partitions=(asked,)),))
        outcome = await outcomes.of(Send(1, to(broker), request))
        assert outcome == Unanswered(1, ErrorCode.UNSUPPORTED_VERSION)
        # The connection is good for others.
        assert isinstance(await outcomes.of(Send(2, to(broker), VoteRequest())), Answered)
        assert broker.connections == 1

    run(scenario)


def test_versions_and_features_of_a_peer_can_be_asked_for() -> None:
    """R59: before it becomes a voter."""

    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        outcome = await outcomes.of(Send(1, to(broker), ApiVersionsRequest()))
        assert isinstance(outcome, Answered)
        assert isinstance(outcome.response, ApiVersionsResponse)

    run(scenario)


def test_where_nobody_listens_no_answer_is_waited_for() -> None:
    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        nowhere = Node(BrokerId(2), "127.0.0.1", free_port())
        for correlation_id in range(3):
            outcome = await outcomes.of(Send(correlation_id, nowhere, VoteRequest()))
            assert outcome == Unanswered(correlation_id, ErrorCode.BROKER_NOT_AVAILABLE)
        # The same node at another address.
        assert isinstance(await outcomes.of(Send(9, to(broker), VoteRequest())), Answered)

    run(scenario)


def test_a_connection_that_is_lost_is_opened_again_for_the_next_request() -> None:
    replies: Iterator[Reply] = iter([HANG_UP, VoteResponse()])

    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        outcome = await outcomes.of(Send(1, to(broker), VoteRequest()))
        assert outcome == Unanswered(1, ErrorCode.BROKER_NOT_AVAILABLE)
        assert isinstance(await outcomes.of(Send(2, to(broker), VoteRequest())), Answered)

    run(scenario, lambda request, version: next(replies))


def test_a_silent_peer_is_given_up_in_time_and_asked_again() -> None:
    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        outcome = await outcomes.of(Send(1, to(broker), VoteRequest()))
        assert outcome == Unanswered(1, ErrorCode.REQUEST_TIMED_OUT)
        begin = BeginQuorumEpochRequest()
        assert isinstance(await outcomes.of(Send(2, to(broker), begin)), Answered)
        assert broker.connections == 2

    run(scenario, lambda request, version: SILENCE, request_timeout_ms=300)


def test_one_request_to_a_node_is_on_its_way_at_a_time_and_few_wait() -> None:
    release = asyncio.Event()

    async def slow(request: VoteRequest, version: int) -> VoteResponse:
        await release.wait()
        return VoteResponse()

    async def scenario(broker: ScriptedBroker, outcomes: Outcomes) -> None:
        for correlation_id in range(20):
            outcomes.peers.send(Send(correlation_id, to(broker), VoteRequest()))
        await until(lambda: len(broker.requests) == 1)
        given_up = Unanswered(0, ErrorCode.REQUEST_TIMED_OUT)
        assert all(type(each) is type(given_up) for each in outcomes.found.values())
        first_round = dict(outcomes.found)
        release.set()
        await until(lambda: len(outcomes.found) == 20)
        answered = [each for each in outcomes.found if each not in first_round]
        # The newest are sent, in their order.
        assert answered == sorted(answered)
        assert answered[-1] == 19

    run(scenario, slow)
