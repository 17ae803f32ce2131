"""Consumers at followers (KIP-392; G30, G31), with three real nodes in three racks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dohle.client import (
    ClientConfig,
    Cluster,
    Consumer,
    ConsumerConfig,
    End,
    IsolationLevel,
)
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.server.partitions.partitions import Partition
from dohle.storage.producers.state import AppendOrigin
from dohle.testing.simulation.machine import SimulatedHost
from tests.server.replicas.stage import CLIENT, TOPIC, WHERE, WITHIN_S, Stage, on_stage
from tests.storage.logs import NOW_MS, batch, marker

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@contextmanager
def in_racks(selector: str = SELECTOR) -> Iterator[Stage]:
    with on_stage(
        replica_selector_class=selector,
        broker_rack="rack-{id}",
    ) as stage:
        yield stage


def in_rack(node_id: BrokerId) -> ConsumerConfig:
    return ConsumerConfig(client_rack=f"rack-{node_id}")


def follower_of(stage: Stage) -> BrokerId:
    return next(id for id in stage.cluster.machines if id != stage.leader)


def fetch(
    stage: Stage, node_id: BrokerId, *, offset: int = 0, wait_ms: int = 0, **fields: int | str
) -> FetchResponse:
    """Fetch from one broker as a consumer does."""
    partition = stage.replica(node_id)
    asked = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=partition.leader_epoch,
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=(FetchTopic(topic=WHERE.topic, topic_id=partition.topic_id, partitions=(asked,)),),
    ).replace(**fields)

    async def work(cluster: Cluster) -> FetchResponse:
        await cluster.topic(WHERE.topic)
        connection = await cluster.connection(node_id)
        return await connection.request(request, FetchResponse)

    found: FetchResponse = stage.run(work)
    return found


def only(response: FetchResponse) -> PartitionData:
    (topic,) = response.responses
    (data,) = topic.partitions
    return data


def test_g30_a_consumer_reads_from_the_replica_in_its_rack() -> None:
    with in_racks() as stage:
        stage.produce(b"a", b"b", b"c")
        stage.await_in_sync()
        leader = stage.leader
        for node_id in stage.cluster.machines:
            before = {id: each.traffic.bytes_out for id, each in stage.cluster.replicas(TOPIC)}
            assert stage.read(config=in_rack(node_id)) == [b"a", b"b", b"c"]
            after = {id: each.traffic.bytes_out for id, each in stage.cluster.replicas(TOPIC)}
            assert [id for id in after if after[id] > before[id]] == [node_id]
        assert leader in stage.cluster.machines


def test_g30_who_is_sent_on_gets_no_records_and_does_not_wait() -> None:
    with in_racks() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        leader, follower = stage.leader, follower_of(stage)
        for offset in (0, 1):
            began = stage.cluster.world.now_s
            told = only(
                fetch(stage, leader, offset=offset, wait_ms=30_000, rack_id=f"rack-{follower}")
            )
            assert (told.preferred_read_replica, told.records, told.error_code) == (
                follower,
                b"",
                0,
            )
            assert told.high_watermark == 1
            assert stage.cluster.world.now_s - began < 20
        for rack in ("", f"rack-{leader}", "elsewhere"):
            data = only(fetch(stage, leader, rack_id=rack))
            assert (data.preferred_read_replica, bool(data.records)) == (-1, True)
        assert only(fetch(stage, leader, offset=2, rack_id=f"rack-{follower}")).error_code == (
            ErrorCode.OFFSET_OUT_OF_RANGE
        )


def test_g30_in_a_session_the_replica_is_named_each_time() -> None:
    with in_racks() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        rack = f"rack-{follower_of(stage)}"
        first = fetch(stage, stage.leader, session_epoch=0, rack_id=rack)
        assert first.session_id > 0
        named = only(first).preferred_read_replica
        again = fetch(
            stage, stage.leader, session_id=first.session_id, session_epoch=1, rack_id=rack
        )
        assert only(again).preferred_read_replica == named == follower_of(stage)


@pytest.mark.parametrize("selector", ["", "org.apache.kafka.common.replica.LeaderSelector"])
def test_g30_without_a_selector_of_racks_the_leader_serves_everybody(selector: str) -> None:
    properties = {"replica.selector.class": selector} if selector else {}
    with on_stage(properties, broker_rack="rack-{id}") as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        assert stage.read(config=in_rack(follower_of(stage))) == [b"a"]
        assert stage.replica(follower_of(stage)).traffic.bytes_out == 0


def test_a_selector_that_nobody_knows_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"replica\.selector\.class"):
        BrokerConfig.from_properties({"replica.selector.class": "com.example.Selector"})


def test_g30_nobody_is_sent_to_a_replica_that_is_not_in_sync() -> None:
    with in_racks() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        away = follower_of(stage)
        stage.cluster.kill(away)
        stage.await_isr(2)
        assert stage.read(config=in_rack(away)) == [b"a"]
        data = only(fetch(stage, stage.leader, rack_id=f"rack-{away}"))
        assert (data.preferred_read_replica, bool(data.records)) == (-1, True)


def test_g31_a_follower_serves_what_it_knows_to_be_committed_and_nothing_else() -> None:
    with in_racks() as stage:
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        follower = follower_of(stage)
        log = stage.replica(follower).log
        assert only(fetch(stage, follower)).high_watermark == 2
        # Its leader has told it of no more than the first record yet.
        log.update_high_watermark(1)
        data = only(fetch(stage, follower))
        assert data.high_watermark == 1
        assert len(data.records or b"") < log.segments.active.size
        assert only(fetch(stage, follower, offset=2)).error_code == 0
        assert only(fetch(stage, follower, offset=3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_g31_a_consumer_that_waits_at_a_follower_is_woken_when_its_high_watermark_moves() -> None:
    with in_racks() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        follower, world = follower_of(stage), stage.cluster.world
        got: list[bytes | None] = []

        async def wait(host: SimulatedHost) -> None:
            config = ConsumerConfig(client_rack=f"rack-{follower}", fetch_max_wait_ms=60_000)
            async with (
                Cluster(stage.cluster.bootstrap, CLIENT, host=host) as cluster,
                Consumer(cluster, config) as consumer,
            ):
                await consumer.assign({WHERE: End()})
                got.append((await anext(consumer)).record.value)

        waiter = world.machine("waiter")
        waiter.start(wait)
        purgatory = stage.cluster.nodes[follower].broker.purgatory
        world.run_until(lambda: bool(purgatory.count), WITHIN_S)
        began = world.now_s
        stage.produce(b"news")
        world.run_until(lambda: not waiter.is_running, WITHIN_S)
        assert got == [b"news"]
        assert world.now_s - began < 30, "not when its time was up"
        assert stage.replica(follower).traffic.bytes_out > 0


def _transact(partition: Partition, sequence: int, value: bytes, *, commit: bool) -> None:
    """Append a transaction of one record as its producer and its coordinator do."""
    log, epoch = partition.log, partition.leader_epoch
    guard = log.producer_state.start_transaction_verification(7, sequence, 0, False, NOW_MS)
    records = batch([NOW_MS], value=value, pid=7, epoch=0, sequence=sequence, transactional=True)
    log.append_as_leader(records, epoch, verification_guard=guard)
    log.append_as_leader(
        marker(7, commit=commit), epoch, origin=AppendOrigin.COORDINATOR, transaction_version=0
    )


def test_g31_only_committed_transactions_are_read_from_a_follower() -> None:
    with in_racks() as stage:
        leader, broker = stage.replica(stage.leader), stage.cluster.nodes[stage.leader].broker
        for number, (value, is_kept) in enumerate(
            ((b"kept", True), (b"aborted", False), (b"also", True))
        ):
            _transact(leader, number, value, commit=is_kept)
        broker.note_unwritten(leader)
        broker.write_appends()
        stage.await_in_sync()
        follower = follower_of(stage)
        config = ConsumerConfig(
            client_rack=f"rack-{follower}", isolation_level=IsolationLevel.READ_COMMITTED
        )
        assert stage.read(config=config) == [b"kept", b"also"]
        copy = stage.replica(follower)
        assert copy.traffic.bytes_out > 0
        assert copy.log.last_stable_offset == leader.log.last_stable_offset == 6
        told = only(fetch(stage, follower, isolation_level=1)).aborted_transactions
        assert told == only(fetch(stage, stage.leader, isolation_level=1)).aborted_transactions
        assert told


def test_a_consumer_goes_back_to_the_leader_when_its_replica_is_gone() -> None:
    with in_racks() as stage:
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        follower, world = follower_of(stage), stage.cluster.world
        read: list[bytes | None] = []

        async def consume(host: SimulatedHost) -> None:
            async with (
                Cluster(
                    stage.cluster.bootstrap, ClientConfig(request_timeout_ms=3_000), host=host
                ) as cluster,
                Consumer(cluster, in_rack(follower)) as consumer,
            ):
                await consumer.assign({WHERE: End()})
                while len(read) < 2:
                    read.append((await anext(consumer)).record.value)

        consumer = world.machine("reader")
        consumer.start(consume)
        purgatory = stage.cluster.nodes[follower].broker.purgatory
        world.run_until(lambda: bool(purgatory.count), WITHIN_S)
        stage.produce(b"c")
        world.run_until(lambda: len(read) == 1, WITHIN_S)
        stage.cluster.kill(follower)
        stage.produce(b"d")
        world.run_until(lambda: not consumer.is_running, WITHIN_S)
        assert read == [b"c", b"d"]


def test_g32_who_asks_the_wrong_epoch_is_told_the_leader_and_where_it_is() -> None:
    with in_racks() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        old = stage.leader
        epoch = stage.replica(old).leader_epoch
        stage.cluster.kill(old)
        world = stage.cluster.world
        world.run_until(lambda: stage.cluster.leader(TOPIC, 0) not in (None, old), WITHIN_S)
        other = next(id for id in stage.cluster.nodes if id != stage.leader)
        world.run_until(lambda: stage.replica(other).leader_epoch > epoch, WITHIN_S)
        partition = stage.replica(other)
        asked = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=epoch)
        topic = FetchTopic(topic=WHERE.topic, topic_id=partition.topic_id, partitions=(asked,))

        async def work(cluster: Cluster) -> FetchResponse:
            await cluster.topic(WHERE.topic)
            connection = await cluster.connection(other)
            return await connection.request(FetchRequest(topics=(topic,)), FetchResponse)

        found: FetchResponse = stage.run(work)
        data = only(found)
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert data.current_leader.leader_id == stage.leader
        assert [(each.node_id, each.host, each.rack) for each in found.node_endpoints] == [
            (stage.leader, f"n{stage.leader}", f"rack-{stage.leader}")
        ]
