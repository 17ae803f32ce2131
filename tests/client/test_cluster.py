"""Finding the way into a cluster, keeping its metadata, and trying again."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig
from dohle.client.errors import ClientClosed, ConnectionClosed, TimedOut
from dohle.client.metadata import BrokerInfo, ClusterMetadata
from dohle.client.net.backoff import Backoff
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.scripted_broker import (
    HANG_UP,
    Reply,
    ScriptedCluster,
    Topic,
    within,
)

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4, api_timeout_ms=10_000)
EVENTS = TopicName("events")
FIRST = TopicPartition(EVENTS, 0)


def failing(*errors: ErrorCode) -> tuple[Callable[[], Awaitable[str]], list[ErrorCode]]:
    """An operation that fails with these errors before it succeeds, and what it still has."""
    left = list(errors)

    async def operation() -> str:
        if left:
            raise KafkaError(left.pop(0), "as told")
        return "done"

    return operation, left


def test_a_dead_bootstrap_server_is_passed_over() -> None:
    async def body() -> None:
        async with ScriptedCluster(topics={"events": 2}) as scripted:
            with socket.socket() as dead:
                dead.bind(("127.0.0.1", 0))
                port = dead.getsockname()[1]
                async with Cluster([f"127.0.0.1:{port}", scripted.bootstrap], CONFIG) as cluster:
                    topic = await cluster.topic(EVENTS)
                    assert sorted(topic.partitions) == [0, 1]
                    assert topic.topic_id == scripted.topics["events"].topic_id

    within(10, body())


def test_no_reachable_broker_is_told_with_all_addresses() -> None:
    async def body() -> None:
        with socket.socket() as dead:
            dead.bind(("127.0.0.1", 0))
            port = dead.getsockname()[1]
            async with Cluster(f"127.0.0.1:{port},localhost:{port}", CONFIG) as cluster:
                with pytest.raises(ConnectionClosed) as caught:
                    await cluster.any_connection()
            assert str(caught.value) == (
                "NETWORK_EXCEPTION: no broker can be reached: no connection to "
                f"127.0.0.1:{port}: Connection refused; no connection to localhost:{port}: "
                "Connection refused"
            )

    within(10, body())


def test_those_who_ask_at_the_same_time_share_the_answer() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(topics={"events": 1}) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            topics = await asyncio.gather(*(cluster.topic(EVENTS) for _ in range(20)))
            assert len(set(map(id, topics))) == 1
            assert len(scripted.asked(ApiKey.METADATA)) == 1
            await cluster.refresh((EVENTS,))
            assert len(scripted.asked(ApiKey.METADATA)) == 2

    within(10, body())


def test_metadata_that_is_too_old_is_asked_for_again() -> None:
    async def body() -> None:
        async with ScriptedCluster(topics={"events": 1}) as scripted:
            config = ClientConfig(metadata_max_age_ms=1)
            async with Cluster(scripted.bootstrap, config) as cluster:
                await cluster.topic(EVENTS)
                while cluster.known_topic(EVENTS) is not None:
                    await asyncio.sleep(0)
                await cluster.topic(EVENTS)
                assert len(scripted.asked(ApiKey.METADATA)) == 2

    within(10, body())


def test_a_retriable_error_is_retried_with_new_metadata_where_that_may_help() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(topics={"events": 1}) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            operation, left = failing(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
            assert await cluster.retry("test", operation, topics=(EVENTS,)) == "done"
            assert left == []
            asked = scripted.asked(ApiKey.METADATA)
            assert [[topic.name for topic in request.topics] for request in asked] == [["events"]]

    within(10, body())


def test_an_error_that_stays_is_raised_at_once() -> None:
    async def body() -> None:
        async with Cluster("localhost", CONFIG) as cluster:
            operation, left = failing(*[ErrorCode.INVALID_REQUEST] * 2)
            with pytest.raises(KafkaError, match="INVALID_REQUEST: as told"):
                await cluster.retry("test", operation)
            assert len(left) == 1

    within(10, body())


def test_tries_are_bounded_by_number_and_by_time() -> None:
    async def body() -> None:
        config = ClientConfig(retries=2, retry_backoff_ms=1)
        async with Cluster("localhost", config) as cluster:
            operation, left = failing(*[ErrorCode.REQUEST_TIMED_OUT] * 10)
            with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT: as told"):
                await cluster.retry("test", operation)
            assert len(left) == 7
        async with Cluster("localhost", CONFIG) as cluster:
            operation, _ = failing(*[ErrorCode.CORRUPT_MESSAGE] * 1000)
            with pytest.raises(TimedOut, match=r"my test: no success within 0\.05 s.*CORRUPT"):
                await cluster.retry("my test", operation, timeout_ms=50)

    within(10, body())


def test_backoff_doubles_up_to_its_limit_with_a_fifth_of_jitter() -> None:
    backoff = Backoff(100, 1000, random.Random(3))
    for failures, expected_s in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (900, 1.0)):
        delays = [backoff.delay_s(failures) for _ in range(100)]
        assert 0.8 * expected_s <= min(delays) < max(delays) <= 1.2 * expected_s


def test_a_lost_connection_is_made_anew() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(topics={"events": 1}) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            await cluster.topic(EVENTS)
            first = await cluster.connection(BrokerId(1))
            await scripted[1].hang_up()
            while not first.is_closed:
                await asyncio.sleep(0)
            second = await cluster.connection(BrokerId(1))
            assert second is not first
            assert scripted[1].connections == 2

    within(10, body())


def test_those_who_connect_at_the_same_time_share_the_connection() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(brokers=2) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            await cluster.brokers()
            found = await asyncio.gather(*(cluster.connection(BrokerId(2)) for _ in range(10)))
            assert len(set(map(id, found))) == 1
            assert scripted[2].connections == 1

    within(10, body())


def test_the_bootstrap_list_is_used_again_when_all_brokers_are_gone() -> None:
    async def body() -> None:
        async with ScriptedCluster(topics={"events": 1}) as old, ScriptedCluster() as new:
            new.topics["events"] = Topic(Uuid(b"e" * 16), [(1, 9)])
            servers = f"{old.bootstrap},{new.bootstrap}"
            async with Cluster(servers, CONFIG) as cluster:
                await cluster.topic(EVENTS)
                await old[1].__aexit__()
                metadata = await cluster.retry("refresh", lambda: cluster.refresh((EVENTS,)))
                assert metadata.topic_id(EVENTS) == b"e" * 16
                assert metadata.brokers[BrokerId(1)].address == new[1].address

    within(10, body())


def test_an_unknown_topic_and_an_unknown_partition_are_told() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(topics={"events": 2}) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nothing"):
                await cluster.topic(TopicName("nothing"))
            with pytest.raises(KafkaError, match="events has 2 partitions and no 2"):
                await cluster.leader_of(TopicPartition(EVENTS, 2))
            scripted.topics["events"].leaders[1] = (-1, 6)
            await cluster.refresh((EVENTS,))
            with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE: events-1 has no leader"):
                await cluster.leader_of(TopicPartition(EVENTS, 1))

    within(10, body())


def test_asking_for_all_topics_forgets_those_that_are_gone() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(topics={"events": 1, "other": 1}) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            assert set((await cluster.refresh(None)).topics) == {"events", "other"}
            del scripted.topics["other"]
            assert set((await cluster.refresh((EVENTS,))).topics) == {"events", "other"}
            assert set((await cluster.refresh(None)).topics) == {"events"}

    within(10, body())


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    scripted = ScriptedCluster()
    scripted.brokers.clear()

    def view(before: ClusterMetadata, topic_id: bytes, leader: int, epoch: int) -> ClusterMetadata:
        scripted.topics["events"] = Topic(Uuid(topic_id * 16), [(leader, epoch)])
        return before.updated(scripted.metadata(MetadataRequest(topics=None), 13), complete=False)

    def leader(metadata: ClusterMetadata) -> int:
        partition = metadata.partition(FIRST)
        assert partition is not None
        return partition.leader_id

    metadata = view(ClusterMetadata(), b"a", 1, 7)
    metadata = view(metadata, b"a", 2, 6)
    assert leader(metadata) == 1
    metadata = view(metadata, b"a", 3, 7)
    assert leader(metadata) == 3
    metadata = view(metadata, b"b", 4, 0)
    assert leader(metadata) == 4


def test_a_leader_that_an_error_names_is_taken_if_it_is_newer() -> None:
    async def body() -> None:
        async with (
            ScriptedCluster(brokers=2, topics={"events": 1}) as scripted,
            Cluster(scripted.bootstrap, CONFIG) as cluster,
        ):
            await cluster.topic(EVENTS)
            cluster.note_leader(FIRST, BrokerId(2), 5)
            assert (await cluster.leader_of(FIRST))[0].node_id == 1
            cluster.note_leader(FIRST, BrokerId(9), 6)
            assert (await cluster.leader_of(FIRST))[0].node_id == 1
            cluster.note_leader(FIRST, BrokerId(9), 6, [BrokerInfo(BrokerId(9), "there", 1)])
            assert (await cluster.leader_of(FIRST))[0].host == "there"

    within(10, body())


def test_a_closed_cluster_connects_to_nothing() -> None:
    async def body() -> None:
        async with ScriptedCluster() as scripted:
            cluster = Cluster(scripted.bootstrap, CONFIG)
            await cluster.brokers()
            await cluster.close()
            with pytest.raises(ClientClosed, match="closed"):
                await cluster.retry("test", lambda: cluster.refresh(()))

    within(10, body())


def test_metadata_is_retried_when_a_broker_hangs_up() -> None:
    async def body() -> None:
        async with ScriptedCluster(topics={"events": 1}) as scripted:
            replies: list[Reply] = [HANG_UP, MetadataResponse(error_code=ErrorCode.NOT_CONTROLLER)]

            def unsteady(request: MetadataRequest, version: int) -> Reply:
                return replies.pop(0) if replies else scripted.metadata(request, version)

            scripted[1].serve(ApiKey.METADATA, unsteady)
            async with Cluster(scripted.bootstrap, CONFIG) as cluster:
                await cluster.retry("topic", lambda: cluster.topic(EVENTS))
                assert replies == []

    within(10, body())
