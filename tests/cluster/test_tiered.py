"""Tiered storage in a cluster: brokers that die, and replicas that begin with nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import confluent_kafka

from dohle.testing import Cluster

admin_api: Any = import_module("confluent_kafka.admin")

_TIMEOUT_S = 60
_TOPIC = "tiered"
_COUNT = 3_000
_CONFIG = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "offsets.topic.replication.factor": "2",
}
_TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
    "min.insync.replicas": "1",
}


def _until(what: str, look: Callable[[], bool]) -> None:
    deadline = monotonic() + _TIMEOUT_S
    while not look():
        assert monotonic() < deadline, what
        sleep(0.1)


def _first_base(cluster: Cluster, node: int) -> int:
    found = [int(path.stem) for path in cluster.data(node).rglob(f"{_TOPIC}-0/*.log")]
    return min(found, default=0)


def _has_deleted(cluster: Cluster, node: int) -> bool:
    return _first_base(cluster, node) > _COUNT // 2


def _leader(admin: Any) -> int:
    leader: int = admin.list_topics(_TOPIC, _TIMEOUT_S).topics[_TOPIC].partitions[0].leader
    return leader


def _isr(admin: Any) -> int:
    return len(admin.list_topics(_TOPIC, _TIMEOUT_S).topics[_TOPIC].partitions[0].isrs)


def _produce(bootstrap: str, start: int, count: int) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": 20, "enable.idempotence": True}
    )
    for number in range(start, start + count):
        producer.produce(_TOPIC, f"value {number}".ljust(100).encode())
        producer.poll(0)
    assert producer.flush(_TIMEOUT_S) == 0


def _consume(bootstrap: str, count: int) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "error"}
    )
    consumer.assign([confluent_kafka.TopicPartition(_TOPIC, 0, 0)])
    found: list[int] = []
    deadline = monotonic() + _TIMEOUT_S
    while len(found) < count and monotonic() < deadline:
        for message in consumer.consume(500, 0.5):
            error = message.error()
            assert error is None or error.retriable() or not error.fatal(), error
            value = message.value()
            if error is None and value is not None:
                found.append(int(value.split()[1]))
    consumer.close()
    return found


def test_a_replica_begins_from_the_tier_and_serves_all_of_it_when_its_leader_is_killed(
    tmp_path: Path,
) -> None:
    """T5, T6, T14, T27.1: followers delete, too; an empty replica copies the local tail only."""
    config = {**_CONFIG, "rsm.config.url": f"file://{tmp_path / 'store'}"}
    with Cluster(brokers=2, controllers=1, config=config) as cluster:
        cluster.wait_until_ready()
        admin = admin_api.AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = admin_api.NewTopic(_TOPIC, 1, 2, config=_TIERED)
        admin.create_topics([topic])[_TOPIC].result(_TIMEOUT_S)
        _produce(cluster.bootstrap, 0, _COUNT)
        for node in cluster.brokers:
            _until(f"broker {node} deletes", partial(_has_deleted, cluster, node))
        leader = _leader(admin)
        (follower,) = set(cluster.brokers) - {leader}
        cluster.kill(follower)
        for folder in cluster.data(follower).rglob(f"{_TOPIC}-0"):
            shutil.rmtree(folder)
        cluster.restart(follower)
        _until("it is in sync again", lambda: _isr(admin) == 2)
        assert _has_deleted(cluster, follower)
        _produce(cluster.bootstrap, _COUNT, 100)
        cluster.kill(leader)
        _until("the other one leads", lambda: _leader(admin) == follower)
        assert _consume(cluster.bootstrap, _COUNT + 100) == list(range(_COUNT + 100))
