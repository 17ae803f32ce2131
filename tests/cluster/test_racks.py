"""Racks, with real clients and processes."""

from __future__ import annotations

import re
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dohle.testing import Cluster

RACKS = ("attic", "cellar", "garden")
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RECORDS = 1_000
DEADLINE_S = 60.0


def test_a_consumer_reads_from_the_replica_in_its_own_rack() -> None:
    """KIP-392: what it reads comes from a follower, and all of it is what was acknowledged."""
    with Cluster(nodes=3, racks=RACKS, config={"replica.selector.class": SELECTOR}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("orders", num_partitions=1, replica_assignment=[[1, 2, 3]])
        admin.create_topics([topic])["orders"].result(DEADLINE_S)
        _write(cluster.bootstrap, "orders")
        assert _read(cluster.bootstrap, "orders", RACKS[2]) == [b"%d" % n for n in range(RECORDS)]
        assert _read_bytes(cluster, 3, "orders") > RECORDS
        assert _read_bytes(cluster, 1, "orders") == 0, "the leader has only named the follower"


def test_every_broker_has_a_rack_or_none() -> None:
    with pytest.raises(ValueError, match="2 racks for 3 brokers: say one for each"):
        Cluster(nodes=3, racks=("attic", "cellar"))


def _write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0


def _read(bootstrap: str, topic: str, rack: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "client.rack": rack,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < RECORDS:
            messages = consumer.consume(RECORDS, DEADLINE_S)
            assert messages, f"only {len(found)} records were read"
            found += [message.value() or b"" for message in messages if not message.error()]
        return found
    finally:
        consumer.close()


def _read_bytes(cluster: Cluster, node: int, topic: str) -> float:
    """Return how many bytes of a topic clients have got from a node, by its metrics."""
    with urlopen(f"http://{cluster.metrics(node)}/metrics") as page:
        text = page.read().decode()
    pattern = rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}} (\S+)$'
    return sum(float(value) for value in re.findall(pattern, text, re.M))
