"""A member of a group whose coordinator takes its time."""

from __future__ import annotations

import asyncio

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ConsumerConfig
from dohle.client.consumer.consumer import Consumer
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from dohle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tests.client.scripted_broker import Reply, ScriptedCluster, within

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4)


class Coordination:
    """Holds joins back until it is told to answer them."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.joined = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.left: list[str] = []
        scripted.serve(ApiKey.FIND_COORDINATOR, self.find)
        scripted.serve(ApiKey.JOIN_GROUP, self.join)
        scripted.serve(ApiKey.LEAVE_GROUP, self.leave)

    def find(self, request: FindCoordinatorRequest, version: int) -> Reply:
        coordinators = (Coordinator(key="g", node_id=BrokerId(1)),)
        return FindCoordinatorResponse(coordinators=coordinators)

    async def join(self, request: JoinGroupRequest, version: int) -> Reply:
        self.joined.set()
        await self.may_answer.wait()
        code = ErrorCode.NONE if request.member_id else ErrorCode.MEMBER_ID_REQUIRED
        return JoinGroupResponse(error_code=code, member_id="chosen", protocol_name="range")

    def leave(self, request: LeaveGroupRequest, version: int) -> Reply:
        self.left += [each.member_id for each in request.members]
        return LeaveGroupResponse()


def test_who_stops_before_it_knows_its_id_waits_for_that_and_leaves_by_it() -> None:
    async def body() -> None:
        async with ScriptedCluster(1, topics={"t": 1}) as scripted:
            coordination = Coordination(scripted)
            async with Cluster(scripted.bootstrap, CONFIG) as cluster:
                consumer = Consumer(cluster, ConsumerConfig(group_id="g"))
                await consumer.subscribe(["t"])
                await coordination.joined.wait()
                asyncio.get_running_loop().call_later(0.05, coordination.may_answer.set)
                await consumer.close()
                assert coordination.left == ["chosen"]

    within(10, body())


def test_who_stops_while_the_others_join_leaves_at_once() -> None:
    async def body() -> None:
        async with ScriptedCluster(1, topics={"t": 1}) as scripted:
            coordination = Coordination(scripted)
            coordination.may_answer.set()
            async with Cluster(scripted.bootstrap, CONFIG) as cluster:
                consumer = Consumer(cluster, ConsumerConfig(group_id="g"))
                await consumer.subscribe(["t"])
                await coordination.joined.wait()
                coordination.joined.clear()
                coordination.may_answer.clear()
                await coordination.joined.wait()
                # The join under the chosen id has no answer, and none is waited for.
                await consumer.close()
                assert coordination.left == ["chosen"]
                coordination.may_answer.set()

    within(10, body())
