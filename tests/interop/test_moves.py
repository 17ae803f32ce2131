"""Replicas move between directories under load, and the broker is killed meanwhile.

Librdkafka's producers write and its consumer reads while every partition moves from directory to
directory. What was acknowledged must be there, once, in order, at its offset.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from dohle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.interop.load import PARTITIONS, Load, check_load
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Closed, Wire
from tests.ports import free_port

MOVES = 4
KILLS, LONG_KILLS = 4, 12
DIRECTORIES = ("one", "two", "three")


def broker_with_directories(path: Path) -> BrokerProcess:
    dirs = ",".join(str(path / name) for name in DIRECTORIES)
    return BrokerProcess(path, {"log.dirs": dirs}, port=free_port())


def move(wire: Wire, path: Path, topic: str) -> None:
    """Ask for every partition of a topic to go to a directory."""
    partitions = tuple(range(PARTITIONS))
    wanted = AlterReplicaLogDir(
        path=str(path),
        topics=(AlterReplicaLogDirTopic(name=TopicName(topic), partitions=partitions),),
    )
    reply = wire.ask(
        AlterReplicaLogDirsRequest(dirs=(wanted,)), AlterReplicaLogDirsResponse, version=2
    )
    codes = [one.error_code for topic in reply.results for one in topic.partitions]
    assert codes == [0] * PARTITIONS


def directories_of(wire: Wire, topic: str) -> dict[int, list[str]]:
    """Return where each partition is, or is about to be."""
    reply = wire.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, version=4)
    found: dict[int, list[str]] = defaultdict(list)
    for result in reply.results:
        for described in result.topics:
            if described.name == topic:
                for one in described.partitions:
                    name = Path(result.log_dir).name
                    found[one.partition_index].append(f"{name}?" if one.is_future_key else name)
    return found


def read_all(bootstrap: str, topic: str, goals: dict[int, int]) -> dict[int, list[int]]:
    """Read with librdkafka's consumer until so many records of each partition have come."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    parts = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    consumer.assign(parts)
    found: dict[int, list[int]] = defaultdict(list)
    try:
        while any(len(found[index]) < goals[index] for index in range(PARTITIONS)):
            for message in consumer.consume(500, timeout=20):
                value, partition = message.value(), message.partition()
                assert message.error() is None
                assert value is not None
                assert partition is not None
                found[partition].append(int(value.split(b" ")[0]))
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(120)
def test_partitions_move_while_they_are_written_and_read(tmp_path: Path) -> None:
    with broker_with_directories(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("t", PARTITIONS, segment_bytes=str(1 << 20))
            load = Load(broker.bootstrap, "t", 1, idempotent=True)
            load.start()
            try:
                for number in range(MOVES):
                    load.await_more(3_000)
                    target = DIRECTORIES[number % 3]
                    move(wire, tmp_path / target, "t")
                    expected = {index: [target] for index in range(PARTITIONS)}
                    wait_until(lambda: directories_of(wire, "t") == expected)  # noqa: B023
            finally:
                load.finish()
        assert load.failures == []
        read = read_all(broker.bootstrap, "t", load.written)
        for partition in range(PARTITIONS):
            assert read[partition] == list(range(load.written[partition]))
        check_load(broker, load)
        assert broker.stop() == 0
        assert broker.failures == []
        broker.start()
        check_load(broker, load)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(LONG_KILLS, marks=pytest.mark.long)])
def test_acknowledged_records_survive_kills_while_partitions_move(
    tmp_path: Path, kills: int
) -> None:
    rng, pause = random.Random(7), threading.Event()
    with broker_with_directories(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("t", PARTITIONS, segment_bytes=str(1 << 20))
        load = Load(broker.bootstrap, "t", 1, idempotent=True)
        load.start()
        try:
            for number in range(kills):
                load.await_more(rng.randrange(500, 3_000))
                with Wire(broker.bootstrap) as wire, suppress(Closed, OSError):
                    move(wire, tmp_path / DIRECTORIES[number % 3], "t")
                pause.wait(rng.uniform(0, 0.15))
                broker.kill()
                broker.start()
        finally:
            load.finish()
        assert load.failures == []
        with Wire(broker.bootstrap) as wire:
            # Whatever was interrupted comes to its end.
            last = DIRECTORIES[(kills - 1) % 3]
            wait_until(lambda: directories_of(wire, "t") == {p: [last] for p in range(PARTITIONS)})
        check_load(broker, load)
        assert broker.stop() == 0
        assert broker.failures == []
        broker.start()
        check_load(broker, load)
