"""Transactions over partitions that all brokers of a cluster lead, with a real client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dohle.testing import Cluster

TOPIC, PARTITIONS = "t", 6
#: With so many transactional ids each broker coordinates some of them.
IDS = 6
CONFIG = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "6",
}
DEADLINE_S = 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=CONFIG) as running:
        yield running


def send(producer: Producer, text: str) -> set[bytes]:
    """Send one record to each partition, within a transaction; return them."""
    values = {f"{text}-{partition}".encode() for partition in range(PARTITIONS)}
    for partition, value in enumerate(sorted(values)):
        producer.produce(TOPIC, value, partition=partition)
    return values


def end(producer: Producer, *, commit: bool) -> None:
    """End a transaction for sure."""
    while True:
        try:
            if commit:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def read_committed(bootstrap: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    left, found = set(range(PARTITIONS)), []
    while left:
        message: Any = consumer.poll(DEADLINE_S)
        assert message is not None, "all can be read"
        error = message.error()
        if error is None:
            found.append(message.value())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left.discard(message.partition())
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_transactions_over_all_brokers_are_seen_whole_though_one_is_killed(
    cluster: Cluster,
) -> None:
    """H3, H6, H7: some are open when a broker dies that leads partitions and coordinates some."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values()
    created.result()
    producers = [
        Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": f"tx-{number}",
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        for number in range(IDS)
    ]
    expected: set[bytes] = set()
    for number, producer in enumerate(producers):
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        values = send(producer, f"before-{number}")
        end(producer, commit=number % 2 == 0)
        expected |= values if number % 2 == 0 else set()
        producer.begin_transaction()
        values = send(producer, f"during-{number}")
        assert producer.flush(DEADLINE_S) == 0
        expected |= values if number % 2 else set()
    cluster.kill(2)
    for number, producer in enumerate(producers):
        end(producer, commit=number % 2 == 1)
    for number, producer in enumerate(producers):
        producer.begin_transaction()
        expected |= send(producer, f"after-{number}")
        end(producer, commit=True)
    cluster.restart(2)
    cluster.wait_until_ready()
    found = read_committed(cluster.bootstrap)
    assert sorted(found) == sorted(expected)
