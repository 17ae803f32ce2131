"""What followers and leaders do, with real nodes in the simulator: one situation each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dohle.client import Admin, Cluster, ProducerConfig
from dohle.client.admin.topic_values import EligibleLeaders
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.server.metrics.collect import collect
from dohle.server.metrics.log_counts import LogCounts
from dohle.testing.simulation.world import SECOND_NS
from tests.server.metrics.scraping import Series, parse, value
from tests.server.replicas.stage import TOPIC, WHERE, WITHIN_S, Stage, on_stage
from tests.server.wire import batch


def test_followers_have_what_the_leader_has_and_its_high_watermark() -> None:
    with on_stage() as stage:
        assert stage.produce(b"a", b"b", b"c") == [0, 1, 2]
        stage.await_in_sync()
        for _, partition in stage.cluster.replicas(TOPIC):
            assert partition.log.high_watermark == 3


def test_what_a_leader_wrote_alone_goes_when_others_have_gone_on_without_it() -> None:
    """W2: cut off, it takes records with acks=1; the new leader does not have them."""
    with on_stage(replica_lag_time_max_ms="3000") as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        old, world = stage.leader, stage.cluster.world
        machines = stage.cluster.machines
        until_ns = world.time.now_ns + 25 * SECOND_NS
        for other in machines.values():
            if other is not machines[old]:
                world.network.cut(other.name, machines[old].name, until_ns)
                world.network.cut(machines[old].name, other.name, until_ns)
        log = stage.cluster.nodes[old].broker.partitions.get(TOPIC, 0)
        assert log is not None
        stage.produce(b"lost", config=ProducerConfig(acks=1, enable_idempotence=False))
        assert log.log.log_end_offset == 2
        world.run_until(lambda: stage.cluster.leader(TOPIC, 0) not in (None, old), WITHIN_S)
        assert log.log.high_watermark == 1, "X3: a leader that is cut off commits nothing"
        assert stage.produce(b"kept") == [1]
        stage.await_in_sync()
        assert stage.read() == [b"a", b"kept"]


def test_with_two_of_three_replicas_lost_nothing_is_taken_reads_go_on_and_nothing_is_lost() -> None:
    """W4, G20, G22, X1: the other controllers are a majority, so that only replicas are missing."""
    with on_stage(nodes=5, replicas=(1, 2, 3)) as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"a")
        stage.await_in_sync()
        leader = stage.leader
        first, second = (BrokerId(id) for id in (1, 2, 3) if id != leader)
        cluster.kill(first)
        stage.await_isr(2)
        assert stage.produce(b"b") == [1]
        cluster.kill(second)
        log, asked = stage.replica(leader).log, stage.replica(leader)
        world.run_until(lambda: asked.is_under_min_isr, WITHIN_S)
        for _ in range(2):
            assert _answer_to_produce(stage, leader, acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert log.log_end_offset == 2, "19 is told before anything is appended"
        assert stage.read() == [b"a", b"b"]
        assert _answer_to_produce(stage, leader, acks=1) == ErrorCode.NONE
        assert (log.log_end_offset, log.high_watermark) == (3, 2)
        assert stage.read() == [b"a", b"b"], "G20: below the minimum nothing more is committed"
        assert stage.leader == leader
        for each in (first, second):
            cluster.start(each)
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        assert stage.read() == [b"a", b"b", b"raw"]
        assert stage.produce(b"c") == [3]


def test_a_last_replica_that_is_lost_too_is_waited_for_by_who_lacks_what_it_has() -> None:
    """W4, C14, U2: two return from a crash; what was acknowledged is there when the third does."""
    with on_stage(nodes=7, replicas=(1, 2, 3)) as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"a")
        stage.await_in_sync()
        last = stage.leader
        others = [BrokerId(id) for id in (1, 2, 3) if id != last]
        cluster.kill(others[0])
        stage.await_isr(2)
        assert stage.produce(b"b") == [1]
        cluster.kill(others[1])
        stage.await_isr(1)
        cluster.kill(last)
        stage.await_isr(0)
        for each in others:
            cluster.start(each)
        world.run_until(lambda: set(others) <= set(cluster.nodes), WITHIN_S)
        world.run_for(5)
        assert cluster.leader(TOPIC, 0) is None
        cluster.start(last)
        assert stage.leader == last
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        assert stage.read() == [b"a", b"b"]


def _answer_to_produce(stage: Stage, node_id: BrokerId, acks: int) -> ErrorCode:
    """Return what a broker says to one request, which nobody repeats."""

    async def work(cluster: Cluster) -> int:
        await cluster.topic(WHERE.topic)
        connection = await cluster.connection(node_id)
        topic_id = stage.replica(node_id).topic_id
        data = PartitionProduceData(index=0, records=batch(b"raw"))
        topic = TopicProduceData(name=WHERE.topic, topic_id=topic_id, partition_data=(data,))
        request = ProduceRequest(acks=acks, timeout_ms=2_000, topic_data=(topic,))
        response = await connection.request(request, ProduceResponse)
        return response.responses[0].partition_responses[0].error_code

    return ErrorCode(stage.run(work))


def test_records_are_deleted_on_every_replica_and_who_was_away_begins_later() -> None:
    """F14: the log start follows the leader's; the F table, error 1: who is behind it restarts."""
    with on_stage() as stage:
        stage.produce(*(b"%d" % number for number in range(5)))
        stage.await_in_sync()
        away = next(id for id in stage.cluster.machines if id != stage.leader)
        stage.cluster.kill(away)
        stage.await_isr(2)
        stage.produce(*(b"%d" % number for number in range(5, 10)))

        def delete(offset: int) -> Callable[[Cluster], Coroutine[Any, Any, Any]]:
            return lambda cluster: Admin(cluster).delete_records({WHERE: offset})

        deleted = stage.run(delete(8))
        assert deleted.errors == {}
        starts = {each.log.log_start_offset for _, each in stage.cluster.replicas(TOPIC)}
        assert starts == {8}
        stage.cluster.start(away)
        stage.await_in_sync()
        for _, partition in stage.cluster.replicas(TOPIC):
            assert (partition.log.log_start_offset, partition.log.log_end_offset) == (8, 10)
        assert stage.read() == [b"8", b"9"]


def test_a_follower_that_falls_behind_leaves_the_isr_and_comes_back() -> None:
    """G10, G11: a follower that stands still for longer than replica.lag.time.max.ms."""
    with on_stage(replica_lag_time_max_ms="2000") as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        controller = stage.cluster.nodes[stage.leader].member.quorum.leader.leader_id
        (slow, *_) = set(stage.cluster.machines) - {stage.leader, controller}
        # Not for long enough to be fenced.
        stage.cluster.machines[slow].pause(7 * SECOND_NS)
        assert stage.produce(b"b") == [1]
        image = stage.cluster.image(TOPIC, 0)
        assert image is not None
        assert (slow in image.isr, image.leader_epoch) == (False, 0)
        stage.await_in_sync()


def test_an_isr_is_asked_for_again_as_soon_as_there_is_another_controller() -> None:
    """G12, X3: AlterPartition to a controller that stands still does not wait for its timeout."""
    with on_stage(replica_lag_time_max_ms="1000") as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        cluster, world = stage.cluster, stage.cluster.world
        controller = cluster.nodes[stage.leader].member.quorum.leader.leader_id
        assert controller is not None
        if controller == stage.leader:
            _elect_another(stage, controller)
        began = world.now_s
        cluster.machines[controller].pause(100 * SECOND_NS)
        # The controller is a follower too, and must leave the ISR first.
        assert stage.produce(b"b") == [1]
        assert world.now_s - began < 25, "request timeouts are 30 s"


def _elect_another(stage: Stage, than: BrokerId) -> None:
    """Have another broker lead the partition: its own stops and comes back."""
    stage.cluster.machines[than].request_stop()
    stage.cluster.world.run_until(lambda: than not in stage.cluster.nodes, WITHIN_S)
    stage.cluster.world.run_until(
        lambda: stage.cluster.leader(TOPIC, 0) not in (None, than), WITHIN_S
    )
    stage.cluster.start(than)
    stage.await_in_sync()


def test_a_stop_without_any_controller_takes_no_longer_than_a_session() -> None:
    """A52: the last of three nodes has no quorum that could let its broker go."""
    with on_stage() as stage:
        cluster, world = stage.cluster, stage.cluster.world
        last, *others = cluster.machines
        for each in others:
            cluster.kill(each)
        began = world.now_s
        cluster.machines[last].request_stop()
        world.run_until(lambda: not cluster.machines[last].is_running, WITHIN_S)
        assert world.now_s - began < 20


@pytest.mark.parametrize("apart_s", [0, 0.02, 0.3])
def test_nodes_that_are_all_told_to_stop_do_so_within_seconds(apart_s: float) -> None:
    """A52, A54: controllers stay until the last broker has been let go, whoever is quickest."""
    with on_stage() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        cluster, world = stage.cluster, stage.cluster.world
        began = world.now_s
        for machine in cluster.machines.values():
            machine.request_stop()
            world.run_for(apart_s)
        world.run_until(
            lambda: not any(each.is_running for each in cluster.machines.values()), WITHIN_S
        )
        # A broker asks for the third time after broker.heartbeat.interval.ms, 2 s.
        assert world.now_s - began < 4


def test_what_replication_does_is_told_by_metrics() -> None:
    """How far followers are, how often ISRs have changed, and how much was copied."""
    with on_stage(replica_lag_time_max_ms="2000") as stage:
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        leader = stage.leader
        follower = next(id for id in stage.cluster.machines if id != leader)
        name = f"ReplicaFetcherThread-0-{leader}"
        at = {"topic": TOPIC, "partition": "0"}
        copied = _scrape(stage, follower)
        size = stage.replica(follower).log.size
        assert value(copied, "kafka_server_brokertopicmetrics_replicationbytesin_total") == size
        assert value(copied, "kafka_server_brokertopicmetrics_messagesin_total") == 0
        assert value(copied, "kafka_server_fetcherlagmetrics_consumerlag", clientId=name, **at) == 0
        assert value(copied, "kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 0
        place = {"brokerHost": f"n{leader}", "brokerPort": "9092"}
        of = {"clientId": name, **place}
        assert value(copied, "kafka_server_fetcherstats_bytes_total", **of) == size
        assert value(copied, "kafka_server_fetcherstats_requests_total", **of) > 1
        led = _scrape(stage, leader)
        assert value(led, "kafka_server_brokertopicmetrics_messagesin_total") == 2
        assert value(led, "kafka_server_brokertopicmetrics_replicationbytesout_total") == 2 * size
        assert value(led, "kafka_server_replicamanager_underreplicatedpartitions") == 0
        before = value(led, "kafka_server_replicamanager_isrexpands_total")
        controller = stage.cluster.nodes[leader].member.quorum.leader.leader_id
        (slow, *_) = set(stage.cluster.machines) - {leader, controller}
        stage.cluster.machines[slow].pause(7 * SECOND_NS)
        stage.produce(b"c")
        shrunk = _scrape(stage, leader)
        assert value(shrunk, "kafka_server_replicamanager_isrshrinks_total") == 1
        assert value(shrunk, "kafka_server_replicamanager_underreplicatedpartitions") == 1
        stage.await_in_sync()
        grown = _scrape(stage, leader)
        assert value(grown, "kafka_server_replicamanager_isrexpands_total") == before + 1


def _scrape(stage: Stage, node_id: BrokerId) -> Series:
    return parse("".join(collect(stage.cluster.nodes[node_id].sources, LogCounts())))


def eligible(stage: Stage) -> EligibleLeaders:
    found = stage.run(lambda client: Admin(client).describe_eligible_leaders([TOPIC]))
    leaders: EligibleLeaders = found[WHERE]
    return leaders


def test_who_leaves_below_the_minimum_stays_eligible_until_it_comes_back_from_a_crash() -> None:
    """C14, U2: clients are told by DescribeTopicPartitions."""
    with on_stage(min_insync_replicas="3") as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        assert eligible(stage) == EligibleLeaders((), ())
        away = next(id for id in stage.cluster.machines if id != stage.leader)
        stage.cluster.kill(away)
        world, asked = stage.cluster.world, stage.replica(stage.leader)
        world.run_until(lambda: len(asked.image.isr) == 2, WITHIN_S)
        assert eligible(stage) == EligibleLeaders((away,), ())
        stage.cluster.start(away)

        def is_taken_for_crashed() -> bool:
            image = stage.cluster.image(TOPIC, 0)
            return image is not None and (len(image.isr), image.elr) == (2, ())

        world.run_until(is_taken_for_crashed, WITHIN_S)
        world.run_until(lambda: stage.cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        assert eligible(stage) == EligibleLeaders((), ())


def test_a_node_that_finds_no_quorum_gives_up_and_leaves_its_logs_alone() -> None:
    """All of them, one after the other: what is set aside nobody would have any more."""
    with on_stage({"initial.broker.registration.timeout.ms": "20000"}) as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        for node_id in cluster.machines:
            cluster.kill(node_id)
        for node_id, machine in cluster.machines.items():
            cluster.start(node_id)
            world.run_until(lambda machine=machine: not machine.is_running, WITHIN_S)  # type: ignore[misc]
            assert "could not be registered" in str(world.errors.pop())
        cluster.start_all()
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        assert stage.read() == [b"a", b"b"]
