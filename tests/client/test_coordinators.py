"""Coordinators that move, load and are asked for by the dozen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dohle.client.admin.admin import Admin
from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig
from dohle.client.coordinators import CoordinatorKind
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.client.scripted_broker import HANG_UP, Handler, Reply, ScriptedCluster, within

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=2, api_timeout_ms=5000)
GROUP = CoordinatorKind.GROUP


class Script:
    """Says who coordinates what, and lets groups be deleted there alone."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.coordinators: dict[str, int] = {}
        self.asked: list[tuple[str, ...]] = []
        self.errors: list[int] = []
        self.deleted: list[tuple[int, tuple[str, ...]]] = []
        self.hang_up = False
        scripted.serve(ApiKey.FIND_COORDINATOR, self.find)
        for node_id, broker in scripted.brokers.items():
            broker.handlers[ApiKey.DELETE_GROUPS] = self._delete_at(node_id)

    def find(self, request: FindCoordinatorRequest, version: int) -> Reply:
        if version < 4:
            self.asked.append((request.key,))
            return FindCoordinatorResponse(node_id=BrokerId(self.coordinators[request.key]))
        self.asked.append(request.coordinator_keys)
        error = self.errors.pop(0) if self.errors else 0
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(key=key, node_id=BrokerId(self.coordinators[key]), error_code=error)
                for key in request.coordinator_keys
            )
        )

    def _delete_at(self, node_id: int) -> Handler:
        return lambda request, version: self.delete(node_id, request)

    def delete(self, node_id: int, request: DeleteGroupsRequest) -> Reply:
        self.deleted.append((node_id, request.groups_names))
        if self.hang_up:
            self.hang_up = False
            return HANG_UP
        return DeleteGroupsResponse(
            results=tuple(
                DeletableGroupResult(
                    group_id=each,
                    error_code=0
                    if self.coordinators[each] == node_id
                    else ErrorCode.NOT_COORDINATOR,
                )
                for each in request.groups_names
            )
        )


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Cluster, Script, ScriptedCluster]]:
    async with ScriptedCluster(3) as scripted:
        script = Script(scripted)
        async with Cluster(scripted.bootstrap, CONFIG) as made:
            yield made, script, scripted


def test_many_are_looked_up_at_once_and_each_is_asked_of_its_own() -> None:
    async def body() -> None:
        async with cluster() as (made, script, _):
            script.coordinators = {"a": 1, "b": 2, "c": 1}
            results = await Admin(made).delete_groups(["a", "b", "c"])
            assert results.ok().keys() == {"a", "b", "c"}
            assert script.asked == [("a", "b", "c")]
            assert sorted(script.deleted) == [(1, ("a", "c")), (2, ("b",))]

    within(10, body())


def test_what_was_found_is_remembered_until_it_is_wrong() -> None:
    async def body() -> None:
        async with cluster() as (made, script, _):
            script.coordinators = {"a": 1}
            admin = Admin(made)
            (await admin.delete_groups(["a"])).ok()
            (await admin.delete_groups(["a"])).ok()
            assert script.asked == [("a",)]
            script.coordinators = {"a": 2}
            (await admin.delete_groups(["a"])).ok()
            assert [node_id for node_id, _ in script.deleted] == [1, 1, 1, 2]
            assert made.coordinators.known(GROUP, "a") == 2

    within(10, body())


def test_a_coordinator_that_hangs_up_is_looked_for_anew() -> None:
    async def body() -> None:
        async with cluster() as (made, script, _):
            script.coordinators = {"a": 1}
            script.hang_up = True
            (await Admin(made).delete_groups(["a"])).ok()
            assert script.asked == [("a",), ("a",)]

    within(10, body())


def test_a_coordinator_that_is_gone_is_looked_for_anew() -> None:
    async def body() -> None:
        async with cluster() as (made, script, scripted):
            script.coordinators = {"a": 2}
            admin = Admin(made)
            (await admin.delete_groups(["a"])).ok()
            await scripted.brokers.pop(2).__aexit__()
            script.coordinators = {"a": 1}
            (await admin.delete_groups(["a"])).ok()
            assert [node_id for node_id, _ in script.deleted] == [2, 1]

    within(10, body())


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_coordinator_that_is_not_there_yet_is_waited_for(code: ErrorCode) -> None:
    async def body() -> None:
        async with cluster() as (made, script, _):
            script.coordinators = {"a": 1}
            script.errors = [code, code]
            (await Admin(made).delete_groups(["a"])).ok()
            assert len(script.asked) == 3

    within(10, body())


def test_an_error_that_stays_is_told_of_the_group_that_has_it() -> None:
    async def body() -> None:
        async with cluster() as (made, script, _):
            script.coordinators = {"a": 1}
            script.errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
            results = await Admin(made).delete_groups(["a"])
            assert results.errors["a"].code is ErrorCode.GROUP_AUTHORIZATION_FAILED

    within(10, body())


def test_older_brokers_are_asked_for_one_at_a_time() -> None:
    async def body() -> None:
        async with cluster() as (made, script, scripted):
            for broker in scripted.brokers.values():
                broker.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
            script.coordinators = {"a": 1, "b": 3}
            (await Admin(made).delete_groups(["a", "b"])).ok()
            assert script.asked == [("a",), ("b",)]

    within(10, body())


def test_requests_that_wait_have_a_connection_of_their_own() -> None:
    async def body() -> None:
        async with cluster() as (made, _, _):
            channel = made.new_channel("group")
            other = made.new_channel("group")
            assert channel != other
            await made.refresh(())
            node_id = BrokerId(1)
            shared = await made.connection(node_id)
            own = await made.connection(node_id, channel)
            assert own is not shared
            assert await made.connection(node_id, channel) is own
            await made.close_channel(channel)
            assert own.is_closed
            assert not shared.is_closed
            assert (await made.any_connection()) is not own

    within(10, body())


def test_a_coordinator_that_never_comes_is_told_with_its_last_error() -> None:
    async def body() -> None:
        async with cluster() as (made, script, _):
            script.coordinators = {"a": 1}
            script.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10_000

            async def ask(connection: object) -> None:
                raise AssertionError("nobody is there to be asked")

            with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
                await made.coordinators.ask(GROUP, "a", "work", ask, timeout_ms=50)

    within(10, body())


def test_a_fencing_gives_the_replicas_of_its_coordinator_the_time_of_a_request() -> None:
    """For Kafka's the timeout of a transaction is also how long they may take to have its state."""

    async def body() -> None:
        async with ScriptedCluster() as scripted:
            Script(scripted).coordinators["id"] = 1
            scripted.serve(ApiKey.INIT_PRODUCER_ID, lambda *_: InitProducerIdResponse())
            async with Cluster(scripted.bootstrap, CONFIG) as cluster:
                (await Admin(cluster).fence_producers(["id"])).ok()
            (asked,) = scripted.asked(ApiKey.INIT_PRODUCER_ID)
            assert asked.transaction_timeout_ms == CONFIG.request_timeout_ms == 30_000

    within(30, body())
