"""From a broker to the active controller, wherever that is (A12), in a simulated network."""

from __future__ import annotations

import asyncio

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, ProducerId, TopicName
from dohle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.schema import Request, Response
from dohle.server.channel import ControllerChannel, ControllerEndpoint
from dohle.server.channels.setup import RemoteChannels
from dohle.testing.simulation.world import World
from tests.server.channels.controllers import ScriptedController, on_broker, serve

CREATE = CreateTopicsRequest(topics=(CreatableTopic(name=TopicName("t")),))
HEARTBEAT = BrokerHeartbeatRequest(broker_id=BrokerId(7))


def created(code: int = 0) -> CreateTopicsResponse:
    topic = CreatableTopicResult(name=TopicName("t"), error_code=code)
    return CreateTopicsResponse(topics=(topic,))


def ids(number: int) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=BrokerId(number))


def told(request: Request) -> Response:
    assert isinstance(request, AllocateProducerIdsRequest)
    return AllocateProducerIdsResponse(producer_id_start=ProducerId(request.broker_id * 1000))


async def start_of(channel: ControllerChannel, number: int) -> int:
    return (await channel.send(ids(number), AllocateProducerIdsResponse)).producer_id_start


def test_a_request_reaches_the_leader_and_its_answer_comes_back() -> None:
    world = World(1)
    controller = ScriptedController(told)
    leader = serve(world, 1, controller)

    async def program(remote: RemoteChannels) -> None:
        for channel in remote.channels:
            assert await start_of(channel, 3) == 3000

    on_broker(world, program, lambda: leader)
    assert len(controller.asked) == 4


def test_whoever_is_not_the_controller_is_not_believed() -> None:
    """A12: 41 anywhere in the answer, and the request goes to whoever leads then."""
    world = World(1)
    deposed = ScriptedController(lambda _: created(ErrorCode.NOT_CONTROLLER))
    active = ScriptedController(lambda _: created())
    endpoints = [serve(world, 1, deposed), serve(world, 2, active)]
    asked = 0

    def find_leader() -> ControllerEndpoint:
        nonlocal asked
        asked += 1
        return endpoints[asked > 4]

    async def program(remote: RemoteChannels) -> None:
        reply = await remote.channels.forwarding.send(CREATE, CreateTopicsResponse)
        assert reply.topics[0].error_code == 0

    on_broker(world, program, find_leader)
    assert len(deposed.asked) > 1, "it was asked again as long as it led"
    assert len(active.asked) == 1


def test_a_request_whose_controller_dies_is_sent_to_the_next() -> None:
    """A12: also one that was on its way, so it may be carried out twice."""
    world = World(1)

    async def never(request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    stuck, active = ScriptedController(never), ScriptedController(told)
    endpoints = [serve(world, 1, stuck), serve(world, 2, active)]

    def find_leader() -> ControllerEndpoint:
        return endpoints[not world.machines["controller-1"].is_running]

    async def program(remote: RemoteChannels) -> None:
        world.after(10**9, world.machines["controller-1"].kill)
        assert await start_of(remote.channels.forwarding, 2) == 2000

    on_broker(world, program, find_leader)
    assert len(stuck.asked) == len(active.asked) == 1


def test_a_request_does_not_wait_for_a_leader_that_is_silent_and_deposed() -> None:
    """A controller that is paused, or cut off, answers nothing and closes nothing."""
    world = World(1)

    async def never(request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    silent, active = ScriptedController(never), ScriptedController(told)
    endpoints = [serve(world, 1, silent), serve(world, 2, active)]

    async def program(remote: RemoteChannels) -> None:
        assert await start_of(remote.channels.forwarding, 2) == 2000
        assert 3 <= world.now_s < 4

    on_broker(world, program, lambda: endpoints[world.now_s >= 3])
    assert len(silent.asked) == len(active.asked) == 1


def test_a_request_waits_until_somebody_leads() -> None:
    world = World(1)
    leader = serve(world, 1, ScriptedController(told))

    async def program(remote: RemoteChannels) -> None:
        assert await start_of(remote.channels.forwarding, 2) == 2000
        assert 5 <= world.now_s < 5.5

    on_broker(world, program, lambda: leader if world.now_s >= 5 else None)


def test_one_request_is_on_its_way_at_a_time_and_in_order() -> None:
    """A12: on each channel, which has a connection of its own."""
    world = World(1)

    async def slowly(request: Request) -> Response:
        await asyncio.sleep(0.1)
        return told(request)

    controller = ScriptedController(slowly)
    leader = serve(world, 1, controller)

    async def program(remote: RemoteChannels) -> None:
        channel = remote.channels.forwarding
        assert await asyncio.gather(*(start_of(channel, number) for number in range(5))) == [
            number * 1000 for number in range(5)
        ]
        assert controller.at_once_max == 1
        asked = [one.broker_id for one, _ in controller.asked if isinstance(one, type(ids(0)))]
        assert asked == list(range(5))
        await asyncio.gather(*(start_of(each, 1) for each in remote.channels))
        assert controller.at_once_max == 4, "no channel waits for another"

    on_broker(world, program, lambda: leader)


def test_heartbeats_are_given_up_after_an_interval() -> None:
    """A12: after 2 s, forwarded requests after 60 s; the next one finds a connection again."""
    world = World(1)
    leader = serve(world, 1, ScriptedController(lambda _: BrokerHeartbeatResponse()))

    async def program(remote: RemoteChannels) -> None:
        heartbeat = remote.channels.heartbeat
        reply = await heartbeat.send(HEARTBEAT, BrokerHeartbeatResponse)
        assert reply.error_code == 0
        world.machines["controller-1"].paused_until_ns = world.time.now_ns + 3 * 10**9
        begun = world.now_s
        reply = await heartbeat.send(HEARTBEAT, BrokerHeartbeatResponse)
        assert reply.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert round(world.now_s - begun, 1) == 2
        reply = await heartbeat.send(HEARTBEAT, BrokerHeartbeatResponse)
        assert reply.error_code == 0

    on_broker(world, program, lambda: leader)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("heartbeat", 2),
        ("forwarding", 60),
        ("directory_assignments", 60),
        ("alter_partition", None),
    ],
)
def test_each_channel_has_its_own_patience(name: str, seconds: int | None) -> None:
    """A12."""
    world = World(1)
    leader = serve(world, 1, ScriptedController(told))
    is_there = [False]

    async def program(remote: RemoteChannels) -> None:
        channel = getattr(remote.channels, name)
        if seconds is None:
            world.after(300 * 10**9, lambda: is_there.__setitem__(0, True))
            assert await start_of(channel, 2) == 2000
            return
        reply = await channel.send(ids(2), AllocateProducerIdsResponse)
        assert reply.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert round(world.now_s) == seconds

    on_broker(world, program, lambda: leader if is_there[0] else None)


def test_no_more_than_a_number_of_requests_wait() -> None:
    world = World(1)

    async def program(remote: RemoteChannels) -> None:
        channel = remote.channels.heartbeat
        waiting = [
            asyncio.ensure_future(channel.send(HEARTBEAT, BrokerHeartbeatResponse))
            for _ in range(16)
        ]
        await asyncio.sleep(0)
        begun = world.now_s
        reply = await channel.send(HEARTBEAT, BrokerHeartbeatResponse)
        assert reply.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert world.now_s - begun < 0.1
        await asyncio.gather(*waiting)

    on_broker(world, program, lambda: None)


def test_a_node_that_leads_asks_itself_without_a_connection() -> None:
    world = World(1)

    async def slowly(request: Request) -> Response:
        await asyncio.sleep(0.1)
        return told(request)

    here = ScriptedController(slowly)

    async def program(remote: RemoteChannels) -> None:
        channel = remote.channels.forwarding
        await asyncio.gather(*(start_of(channel, number) for number in range(5)))
        assert here.at_once_max == 5, "nobody waits for a turn"

    on_broker(world, program, lambda: ControllerEndpoint(BrokerId(7), "nowhere", 1), here)


def test_a_node_that_leads_no_more_asks_the_next_leader() -> None:
    world = World(1)
    here = ScriptedController(
        lambda _: AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    )
    there = ScriptedController(told)
    leader = serve(world, 1, there)

    async def program(remote: RemoteChannels) -> None:
        assert await start_of(remote.channels.forwarding, 4) == 4000

    def find_leader() -> ControllerEndpoint:
        return leader if len(here.asked) > 2 else ControllerEndpoint(BrokerId(7), "nowhere", 1)

    on_broker(world, program, find_leader, here)
    assert len(there.asked) == 1
