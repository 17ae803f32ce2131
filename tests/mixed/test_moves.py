"""Replicas go from brokers of one kind to those of the other and back."""

from __future__ import annotations

import pytest

from dohle.core.ids import TopicName
from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.load import traffic
from tests.mixed.nodes import DEADLINE_S, MixedCluster, Node

pytestmark = pytest.mark.timeout(300)


def await_given_up(node: Node, topic: TopicName) -> None:
    wait_until(lambda: node.partition_folder(f"{topic}-0") is None, DEADLINE_S)


def test_partitions_move_from_one_kind_to_the_other_and_back(
    cluster: MixedCluster, operator: Operator
) -> None:
    """W3: all records go along, both kinds give up what they do not have any more."""
    kafka, dohle = one_of_each(cluster)
    (third,) = [node for node in cluster.brokers if node not in (kafka, dohle)]
    with traffic(cluster, operator, kafka, third) as flowing:
        flowing.flow()
        for new, old in ((dohle, kafka), (kafka, dohle), (dohle, kafka)):
            operator.reassign(flowing.topic, new, third)
            await_given_up(old, flowing.topic)
            flowing.flow()
        operator.reassign(flowing.topic, kafka, dohle)
        await_given_up(third, flowing.topic)
        flowing.flow()
    judge(cluster, operator)
