"""Clients are held to their quotas, in virtual time (facts: security.md, section 9)."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import pytest

from dohle.client.admin.admin import Admin
from dohle.client.admin.quotas import QuotaEntity
from dohle.client.admin.topic_values import NewTopic
from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.records.builder import BatchBuilder
from dohle.server.broker import BrokerServer
from dohle.testing.simulation.machine import SimulatedHost
from tests.server.simulated_cluster import BROKERS, STATIC, SimulatedCluster

T = TypeVar("T")
TOPIC = TopicName("t")
BOUND = 1000
#: What somebody may do at once who has done nothing: what ten windows allow.
AT_ONCE = 10 * BOUND
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
ANONYMOUS: QuotaEntity = (("user", "ANONYMOUS"),)


class Stage(NamedTuple):
    """A cluster with a topic, and who leads it."""

    cluster: SimulatedCluster
    leader: int

    def set(self, quotas: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        """Set quotas by a broker, and go on until all brokers know of them."""

        async def program(admin: Admin) -> None:
            (await admin.alter_client_quotas(quotas)).ok()

        self.cluster.ask(program)
        known = self.cluster.image(self.cluster.await_active()).client_quotas
        self.cluster.world.run_until(
            lambda: all(
                len(self.cluster.image(id).client_quotas) == len(known)
                and self.is_known_to(self.cluster.nodes[id].broker)
                for id in BROKERS
            ),
            within_s=10,
        )

    @staticmethod
    def is_known_to(broker: BrokerServer) -> bool:
        """Tell whether a broker has taken in all quotas."""
        return broker.quotas.are_those_of(broker.image)

    def run(self, program: Callable[[SimulatedHost, Address], Coroutine[Any, Any, T]]) -> T:
        """Run a client on a machine of its own."""

        async def use(client: Cluster) -> T:
            host = client.host
            assert isinstance(host, SimulatedHost)
            return await program(host, Address(f"n{self.leader}", 9092))

        return self.cluster.use(use)


def stage(cluster: SimulatedCluster) -> Stage:
    cluster.await_started()

    async def create(admin: Admin) -> None:
        (await admin.create_topics([NewTopic(TOPIC, 1, 1)])).ok()

    cluster.ask(create)

    def leader() -> int | None:
        found = cluster.image(BROKERS[0]).partition(TOPIC, 0)
        return None if found is None else found.leader

    cluster.world.run_until(lambda: leader() in BROKERS, within_s=10)
    found = leader()
    assert found is not None
    cluster.world.run_until(
        lambda: cluster.nodes[found].broker.partitions.get(TOPIC, 0) is not None, within_s=10
    )
    return Stage(cluster, found)


async def connect(host: SimulatedHost, address: Address, client_id: str = "c") -> Connection:
    return await Connection.open(address, ClientConfig(client_id=client_id), host)


def records(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, b"x" * size)
    return bytes(builder.build())


async def produce(connection: Connection, size: int, acks: int = 1) -> ProduceResponse:
    """Produce a record such that the request has about this size."""
    data = PartitionProduceData(index=0, records=records(size - 150))
    topic = TopicProduceData(name=TOPIC, partition_data=(data,))
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(topic,))
    return await connection.request(request, ProduceResponse, version_max=12)


async def fetch(connection: Connection, offset: int = 0, max_bytes: int = 1 << 20) -> FetchResponse:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=(FetchTopic(topic=TOPIC, partitions=(asked,)),),
    )
    return await connection.request(request, FetchResponse, version_max=12)


def test_a_producer_waits_for_as_long_as_it_was_told() -> None:
    """9, Violation and KIP-219: the answer comes at once, and the next one when the time is up."""

    async def program(host: SimulatedHost, address: Address) -> None:
        connection, now = await connect(host, address), host.clock.monotonic_s
        first = await produce(connection, AT_ONCE // 2)
        assert first.throttle_time_ms == 0
        begun = now()
        second = await produce(connection, AT_ONCE)
        # 15,000 bytes, of which 10,000 are free: five seconds at 1,000 bytes in a second.
        assert second.throttle_time_ms == pytest.approx(AT_ONCE // 2, rel=0.1)
        assert now() - begun < 0.5
        assert second.responses[0].partition_responses[0].error_code == 0
        await connection.request(MetadataRequest(topics=()), MetadataResponse)
        assert now() - begun == pytest.approx(second.throttle_time_ms / 1000, abs=0.3)
        await connection.close()

    with SimulatedCluster(11, STATIC) as cluster:
        made = stage(cluster)
        made.set({ANONYMOUS: {PRODUCE: BOUND}})
        made.run(program)


def test_what_is_sent_behind_a_throttled_request_waits_for_its_time() -> None:
    """9, KIP-219: requests in flight are handled one after the other, as their quota allows."""

    async def program(host: SimulatedHost, address: Address) -> None:
        connection, now = await connect(host, address), host.clock.monotonic_s
        begun = now()
        done: list[float] = []

        async def send() -> None:
            await produce(connection, AT_ONCE)
            done.append(now() - begun)

        await gather(*(send() for _ in range(4)))
        # The second is told to wait for its 10 s, and the third for 19 s: that makes 30 s for what
        # was sent, but for the 10 s that were free.
        assert done == pytest.approx([0, 0, 10, 29], abs=1.5)
        await connection.close()

    with SimulatedCluster(12, STATIC) as cluster:
        made = stage(cluster)
        made.set({ANONYMOUS: {PRODUCE: BOUND}})
        made.run(program)


def test_connections_of_a_user_share_a_quota() -> None:
    """9, Who shares one bucket: only user quotas exist, so per user, whatever the client id."""

    async def program(host: SimulatedHost, address: Address) -> None:
        one, other = await connect(host, address), await connect(host, address, "d")
        assert (await produce(one, AT_ONCE // 2)).throttle_time_ms == 0
        assert (await produce(other, AT_ONCE)).throttle_time_ms > 4000
        await one.close()
        await other.close()

    with SimulatedCluster(13, STATIC) as cluster:
        made = stage(cluster)
        made.set({ANONYMOUS: {PRODUCE: BOUND}})
        made.run(program)


def test_a_consumer_that_has_had_enough_gets_nothing_for_a_while() -> None:
    """9, Fetch: an empty response with the time; it is not counted, and there is all later."""

    async def program(host: SimulatedHost, address: Address) -> None:
        connection, now = await connect(host, address), host.clock.monotonic_s
        for _ in range(4):
            assert (await produce(connection, 6_000)).throttle_time_ms == 0
        first = await fetch(connection, 0, 6_000)
        assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
        begun = now()
        second = await fetch(connection, 1, 6_000)
        assert second.throttle_time_ms == pytest.approx(2_000, rel=0.1)
        assert second.responses == ()
        assert now() - begun < 0.5
        found = await fetch(connection, 1, 6_000)
        assert now() - begun >= second.throttle_time_ms / 1000
        while found.throttle_time_ms:
            found = await fetch(connection, 1, 6_000)
        # The first one counts for eleven windows, and what was not sent not at all.
        assert now() - begun < 13
        data = found.responses[0].partitions[0].records
        assert data is not None
        assert len(data) > 5_000
        await connection.close()

    with SimulatedCluster(14, STATIC) as cluster:
        made = stage(cluster)
        made.set({(("client-id", None),): {FETCH: BOUND}})
        made.run(program)


def test_a_fetch_is_capped_so_that_it_can_succeed() -> None:
    """9, Fetch: max bytes are first capped to the bound of ten seconds."""

    async def program(host: SimulatedHost, address: Address) -> None:
        connection = await connect(host, address)
        for _ in range(10):
            await produce(connection, 4_000)
        found = await fetch(connection)
        if found.throttle_time_ms:
            # As in Kafka what is around the records may be too much for a moment.
            assert found.throttle_time_ms < 100
            found = await fetch(connection)
        assert found.throttle_time_ms == 0
        data = found.responses[0].partitions[0].records
        assert data is not None
        assert 4_000 < len(data) <= AT_ONCE
        await connection.close()

    with SimulatedCluster(15, STATIC) as cluster:
        made = stage(cluster)
        made.set({ANONYMOUS: {FETCH: BOUND}})
        made.run(program)


def test_quotas_take_effect_and_end_while_clients_are_connected() -> None:
    """9: the shortcut of a producer obeys a new quota with the next request; so does its end."""

    async def many(connection: Connection) -> list[int]:
        return [(await produce(connection, AT_ONCE)).throttle_time_ms for _ in range(4)]

    with SimulatedCluster(16, STATIC) as cluster:
        made = stage(cluster)
        machine = cluster.world.machine("long-client")
        told: list[list[int]] = []

        async def program(host: SimulatedHost) -> None:
            connection = await connect(host, Address(f"n{made.leader}", 9092))
            for _ in range(3):
                told.append(await many(connection))
                await host.stopping.wait()
                host.stopping.clear()
            await connection.close()

        machine.start(program)
        cluster.world.run_until(lambda: len(told) == 1, within_s=20)
        assert told[-1] == [0] * 4
        made.set({ANONYMOUS: {PRODUCE: BOUND}})
        machine.host.stopping.set()
        cluster.world.run_until(lambda: len(told) == 2, within_s=120)
        assert told[-1][0] == 0
        assert min(told[-1][1:3]) > 5_000
        made.set({ANONYMOUS: {PRODUCE: None}})
        assert all(cluster.nodes[id].broker.metering is None for id in BROKERS)
        machine.host.stopping.set()
        cluster.world.run_until(lambda: len(told) == 3, within_s=120)
        assert told[-1] == [0] * 4
        machine.host.stopping.set()
        cluster.world.run_until(machine.main.done, 20)


def test_connections_of_an_address_that_come_too_fast_are_held_and_closed() -> None:
    """1, connection_creation_rate, and 9, Connections: for a window at most, and not counted."""

    async def program(host: SimulatedHost, address: Address) -> None:
        now, begun = host.clock.monotonic_s, host.clock.monotonic_s()
        # Ten windows' worth is free at once.
        opened = [await connect(host, address) for _ in range(10)]
        tried = now()
        with pytest.raises(KafkaError):
            await connect(host, address)
        assert 0.1 < now() - tried < 1.5
        for _ in range(10):
            with suppress(KafkaError):
                opened.append(await connect(host, address))
        # One in a second, whatever was tried and closed.
        assert len(opened) <= 10 + (now() - begun) * 1.2
        await gather(*(each.close() for each in opened))

    with SimulatedCluster(18, STATIC) as cluster:
        made = stage(cluster)
        made.set({(("ip", None),): {"connection_creation_rate": 1}})
        made.run(program)
        (listener,) = cluster.nodes[made.leader].listeners
        assert listener.throttled_count > 0
        made.set({(("ip", None),): {"connection_creation_rate": None}})


def create_request(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=TopicName(name), num_partitions=partitions, replication_factor=1, assignments=()
    )
    return CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)


def test_who_has_too_many_partitions_created_is_refused_for_a_while() -> None:
    """9, Controller mutations: 89 and the time by the controller; the broker mutes its client."""

    async def program(host: SimulatedHost, address: Address) -> None:
        connection, now = await connect(host, address), host.clock.monotonic_s

        async def ask(name: str, count: int, version: int = 7) -> tuple[int, int]:
            request = create_request(name, count)
            answer = await connection.request(request, CreateTopicsResponse, version_max=version)
            return answer.topics[0].error_code, answer.throttle_time_ms

        # Eleven tokens: the first overdraws them, and is done all the same.
        assert await ask("first", 16) == (0, 0)
        begun = now()
        code, throttle_ms = await ask("second", 1)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 4_000 < throttle_ms <= 5_000
        assert now() - begun < 1
        # The next one is read when the time is over, and is served then.
        assert (await ask("second", 1))[0] == 0
        assert now() - begun == pytest.approx(throttle_ms / 1000, abs=0.5)
        # An old client is served, and waits.
        code, throttle_ms = await ask("third", 4, version=5)
        assert (code, throttle_ms > 1_000) == (0, True)
        begun = now()
        gone = DeleteTopicState(name=TopicName("first"))
        delete = DeleteTopicsRequest(topics=(gone,), timeout_ms=5_000)
        answer = await connection.request(delete, DeleteTopicsResponse, version_max=6)
        assert now() - begun == pytest.approx(throttle_ms / 1000, abs=0.5)
        assert answer.responses[0].error_code == 0
        await connection.close()

    with SimulatedCluster(19, STATIC) as cluster:
        made = stage(cluster)
        made.set({ANONYMOUS: {"controller_mutation_rate": 1}})
        made.run(program)


def test_who_has_no_quota_is_not_measured() -> None:
    """9, Who shares one bucket: another client's quota costs nobody else anything."""

    async def program(host: SimulatedHost, address: Address) -> None:
        connection = await connect(host, address)
        for _ in range(5):
            assert (await produce(connection, 5 * AT_ONCE)).throttle_time_ms == 0
        await connection.close()

    with SimulatedCluster(17, STATIC) as cluster:
        made = stage(cluster)
        made.set({(("client-id", "other"),): {PRODUCE: BOUND}})
        made.run(program)
        meters = cluster.nodes[made.leader].broker.quotas.meters[PRODUCE]
        assert len(meters) == 0
