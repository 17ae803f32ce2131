"""Java's clients and Spark's streams at work while leaders move and nodes are killed.

``test_migrate.py`` has them in a cluster whose nodes are replaced one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.load import PARTITIONS
from tests.mixed.administration import OFFSETS, TRANSACTIONS, Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.load import java_traffic
from tests.mixed.nodes import Kind, MixedCluster
from tests.mixed.spark_load import PANDAS_3, streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings(PANDAS_3)]


def test_java_and_spark_are_given_everything_once_and_in_order_while_nodes_are_killed(
    cluster: MixedCluster, operator: Operator, spark: SparkSession, tmp_path: Path
) -> None:
    """W2, H6: a node of each kind dies while it leads, coordinates, and may be the controller."""
    if [node.kind for node in cluster.controllers] != [Kind.KAFKA, Kind.DOHLE, Kind.DOHLE]:
        pytest.skip("one cluster whose nodes are brokers and controllers at once will do")
    topic = operator.create("java-traffic", PARTITIONS)
    with streams(spark, cluster, operator, topic, tmp_path) as streaming:
        with java_traffic(cluster, operator, topic) as flowing:
            streaming.flow()
            for node in one_of_each(cluster):
                for each in (topic, OFFSETS, TRANSACTIONS):
                    operator.let_lead(each, node)
                flowing.flow()
                streaming.flow()
                node.kill()
                flowing.flow()
                node.start()
                operator.await_in_sync(topic)
        streaming.judge(flowing.records)
    judge(cluster, operator)
