"""Defects that Kafka has had, as they happened there (H numbers), and what epochs tell of logs."""

from __future__ import annotations

from contextlib import suppress

from dohle.client import (
    Admin,
    AlterOp,
    Beginning,
    Cluster,
    ConfigChange,
    ConfigResource,
    Consumer,
    ElectionType,
    NewTopic,
    Producer,
    ProducerConfig,
    ResourceType,
)
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId
from dohle.testing.simulation.machine import SimulatedHost
from tests.server.replicas.history_scenarios import (
    all_are_asked_where_an_epoch_ends,
    the_last_replica_loses_its_power,
)
from tests.server.replicas.stage import CLIENT, TOPIC, WHERE, WITHIN_S, on_stage


def test_h7_a_last_replica_that_lost_its_power_does_not_lead_while_another_may() -> None:
    """KIP-966, X2: who had everything when it left leads, not who was in sync last and crashed."""
    the_last_replica_loses_its_power()


def test_h28_a_topic_that_was_made_anew_has_nothing_of_the_one_before() -> None:
    """KAFKA-14616, F5: deleted and made again under its name while a broker was down."""
    with on_stage() as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"old", b"older")
        stage.await_in_sync()
        away = next(id for id in cluster.machines if id != stage.leader)
        cluster.kill(away)
        stage.await_isr(2)
        before = stage.replica(stage.leader).topic_id
        stage.run(lambda client: Admin(client).delete_topics([TOPIC]))
        stage.run(lambda client: Admin(client).create_topics([NewTopic(TOPIC, 1, 3)]))
        assert stage.produce(b"new") == [0]
        cluster.start(away)
        stage.await_in_sync()
        assert stage.replica(away).topic_id != before
        # It leads, and what it has is what was acknowledged since.
        leader = stage.leader
        if leader != away:
            cluster.kill(leader)
            world.run_until(lambda: cluster.leader(TOPIC, 0) not in (None, leader), WITHIN_S)
        assert stage.read() == [b"new"]
        assert stage.replica(away).log.log_end_offset == 1


def test_h29_what_a_dead_leader_had_appended_is_not_appended_again_by_the_next() -> None:
    """Five in flight; the leader dies when its followers have them, before it answers."""
    with on_stage() as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"first")
        stage.await_in_sync()
        leader = stage.leader
        offsets: list[int] = []

        async def produce(host: SimulatedHost) -> None:
            async with (
                Cluster(cluster.bootstrap, CLIENT, host=host) as client,
                Producer(client, ProducerConfig(batch_size=1, linger_ms=0)) as producer,
            ):
                sent = [await producer.send_soon(TOPIC, b"%d" % n, partition=0) for n in range(5)]
                offsets.extend([(await each).offset for each in sent])

        machine = world.machine("producer")
        machine.start(produce)
        followers = [id for id in cluster.machines if id != leader]
        world.run_until(
            lambda: all(stage.replica(id).log.log_end_offset == 6 for id in followers), WITHIN_S
        )
        assert offsets == [], "nothing was answered yet"
        cluster.kill(leader)
        world.run_until(lambda: not machine.is_running, WITHIN_S)
        assert offsets == [1, 2, 3, 4, 5]
        assert stage.read() == [b"first", *(b"%d" % number for number in range(5))]


def test_h4_a_consumer_goes_back_to_where_the_log_was_cut_by_an_unclean_election() -> None:
    """KAFKA-6880, KIP-320: it is behind the cut, and must not go on there as if nothing were."""
    with on_stage(nodes=7, min_insync_replicas="1", replica_lag_time_max_ms="2000") as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        old = stage.leader
        others = [BrokerId(id) for id in (1, 2, 3) if id != old]
        seen: list[tuple[int, bytes | None]] = []

        async def consume(host: SimulatedHost) -> None:
            async with Cluster(cluster.bootstrap, CLIENT, host=host) as client:
                consumer = Consumer(client)
                await consumer.assign({WHERE: Beginning()})
                while True:
                    with suppress(KafkaError):
                        records = await consumer.poll(timeout_ms=500)
                        seen.extend((each.record.offset, each.record.value) for each in records)

        reader = world.machine("reader")
        reader.start(consume)
        for each in others:
            cluster.kill(each)
        stage.await_isr(1)
        # Committed by the last replica in sync alone, as min.insync.replicas=1 allows.
        assert stage.produce(b"c", b"d") == [2, 3]
        world.run_until(lambda: len(seen) == 4, WITHIN_S)
        cluster.kill(old)
        for each in others:
            cluster.start(each)
        world.run_until(lambda: set(others) <= set(cluster.nodes), WITHIN_S)
        stage.await_isr(0)

        async def elect(client: Cluster) -> None:
            await Admin(client).elect_leaders(ElectionType.UNCLEAN, [WHERE])

        stage.run(elect)
        assert stage.leader in others
        assert stage.produce(b"x", b"y", b"z") == [2, 3, 4]
        world.run_until(lambda: len(seen) == 7, WITHIN_S)
        reader.kill()
        assert seen[4:] == [(2, b"x"), (3, b"y"), (4, b"z")]
        cluster.start(old)
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        assert stage.read() == [b"a", b"b", b"x", b"y", b"z"]


def test_the_leader_alone_tells_where_an_epoch_ends() -> None:
    """KIP-320: consumers look after an election whether the log was cut below their position."""
    all_are_asked_where_an_epoch_ends()


def test_the_number_of_fetchers_can_be_changed_while_records_are_copied() -> None:
    """F10: num.replica.fetchers, for the whole cluster."""
    with on_stage() as stage:
        stage.produce(b"a")
        stage.await_in_sync()

        def names() -> set[str]:
            return {
                each.name
                for node in stage.cluster.nodes.values()
                for each in node.broker.replicas.fetchers.all
            }

        async def widen(cluster: Cluster) -> None:
            await Admin(cluster).create_topics([NewTopic("wide", 8, 3)])
            change = ConfigChange("num.replica.fetchers", AlterOp.SET, "2")
            resource = ConfigResource(ResourceType.BROKER, "")
            answer = await Admin(cluster).incremental_alter_configs({resource: [change]})
            assert answer.errors == {}

        assert {name.split("-")[1] for name in names()} == {"0"}
        stage.run(widen)
        stage.cluster.world.run_until(
            lambda: {name.split("-")[1] for name in names()} == {"0", "1"}, WITHIN_S
        )
        assert stage.produce(b"b") == [1]
        stage.await_in_sync()
