"""Leaders of both kinds come and go while records are written and read (M3, M10; T5)."""

from __future__ import annotations

import pytest

from dohle.client import ElectionType
from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.load import Traffic, traffic
from tests.mixed.nodes import DEADLINE_S, MixedCluster, Node
from tests.mixed.writing import read, write

pytestmark = pytest.mark.timeout(400)


def test_leadership_goes_back_and_forth_by_elections(
    cluster: MixedCluster, operator: Operator
) -> None:
    kafka, dohle = one_of_each(cluster)
    with traffic(cluster, operator) as flowing:
        for leader in (kafka, dohle, kafka, dohle):
            operator.let_lead(flowing.topic, leader)
            flowing.flow()
    judge(cluster, operator)


def test_a_leader_that_stops_hands_over_and_comes_back(
    cluster: MixedCluster, operator: Operator
) -> None:
    """W1: the other kind leads meanwhile, and the ISR is without it."""
    with traffic(cluster, operator) as flowing:
        for leader in one_of_each(cluster):
            operator.let_lead(flowing.topic, leader)
            flowing.flow()
            leader.stop()
            assert_is_out_of_sync(operator, flowing, leader)
            flowing.flow()
            leader.start()
            operator.await_in_sync(flowing.topic)
            flowing.flow()
    judge(cluster, operator)


def assert_is_out_of_sync(operator: Operator, flowing: Traffic, gone: Node) -> None:
    def is_out() -> bool:
        found = operator.partitions(flowing.topic).values()
        return all(each.leader_id != gone.id and gone.id not in each.isr for each in found)

    wait_until(is_out, DEADLINE_S)


def test_a_leader_that_is_killed_gives_up_what_the_other_kind_does_not_have(
    cluster: MixedCluster, operator: Operator
) -> None:
    """W2, H2: each leads alone for a moment; back again, it is cut where the epochs part.

    What all have acknowledged outlives both kills.
    """
    kafka, dohle = one_of_each(cluster)
    with traffic(cluster, operator) as flowing:
        for first, second in ((kafka, dohle), (dohle, kafka)):
            config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            topic = operator.create("diverged", 1, replicas=[first, second], config=config)
            operator.let_lead(flowing.topic, first)
            flowing.flow()
            common = [b"common %d" % number for number in range(50)]
            write(cluster.bootstrap, topic, common, acks=-1)
            second.kill()
            lost = [b"lost %d" % number for number in range(70)]
            write(first.client, topic, lost, acks=1)
            first.kill()
            second.start()
            operator.await_leader(topic, second, ElectionType.UNCLEAN)
            kept = [b"kept %d" % number for number in range(10)]
            write(second.client, topic, kept, acks=1)
            folder = first.partition_folder(f"{topic}-0")
            assert folder is not None
            assert b"lost 69" in (folder / f"{0:020}.log").read_bytes()
            flowing.flow()
            first.start()
            operator.await_in_sync(topic, flowing.topic)
            assert read(cluster.bootstrap, topic) == [*common, *kept]
            assert b"lost" not in (folder / f"{0:020}.log").read_bytes()
            flowing.flow()
    judge(cluster, operator)


def test_records_flow_on_while_the_active_controller_is_killed(
    cluster: MixedCluster, operator: Operator
) -> None:
    """X4, W2: if there are others one of them is active then, of whichever kind."""
    with traffic(cluster, operator) as flowing:
        for _ in range(2):
            killed = operator.active_controller()
            killed.kill()
            flowing.flow()
            if len(cluster.controllers) > 1:
                assert operator.active_controller() is not killed
            killed.start()
            operator.active_controller()
            operator.create("committed", 1)
            operator.await_in_sync(flowing.topic)
            flowing.flow()
    judge(cluster, operator)
