"""kill -9 of leaders in a cluster: what was acknowledged by all is there, once and in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from dohle.testing.checking.checks import check
from dohle.testing.checking.history import Partition
from tests.interop.cluster import FAILOVER_S, ClusterProcesses
from tests.interop.load import PARTITIONS, Load

ROUNDS = 3
TOPIC = "replicated"


def kill_leaders(cluster: ClusterProcesses, load: Load) -> None:
    """Kill who leads a partition, wait until others go on, and let it come back, some times."""
    for number in range(ROUNDS):
        load.await_more(2_000, FAILOVER_S)
        leader = cluster.partitions(TOPIC)[number % PARTITIONS].leader
        cluster.nodes[leader].kill()
        load.await_more(2_000, FAILOVER_S)
        cluster.nodes[leader].start()
        cluster.await_in_sync(TOPIC)


def stored(cluster: ClusterProcesses, load: Load) -> None:
    """Read everything, and put it into the history."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, n, 0) for n in range(PARTITIONS)])
    final = load.history.final
    for number in range(PARTITIONS):
        final[Partition(TOPIC, number)] = []
    left = set(range(PARTITIONS))
    while left:
        message: Any = consumer.poll(60)
        assert message is not None, "all can be read"
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            left.discard(message.partition())
            continue
        value = message.value().split(b" ")[0]
        final[Partition(TOPIC, message.partition())].append((message.offset(), value))
    consumer.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_acknowledged_records_survive_kills_of_leaders(tmp_path: Path) -> None:
    """T5 with real processes: replication factor 3, min.insync.replicas 2, acks=all."""
    with ClusterProcesses(tmp_path, min_insync_replicas="2") as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        load = Load(cluster.bootstrap, TOPIC, 1, idempotent=True)
        load.start()
        try:
            kill_leaders(cluster, load)
        finally:
            load.finish()
        assert load.failures == []
        assert load.acknowledged_count == sum(load.written.values())
        stored(cluster, load)
        assert check(load.history) == []
        for node in cluster.nodes.values():
            assert node.failures == []
