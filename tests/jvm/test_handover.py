"""One broker goes on where the other stopped, in the same data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.interop.waiting import wait_until
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools
from tests.jvm.world import World

#: Kafka waits so long for a broker that has not said goodbye.
IMPATIENT = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}

#: So small that either finds a snapshot of the metadata that the other has written.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}

#: A kill loses the log start offsets that have not been written yet.
CHECKPOINT = "log-start-offset-checkpoint"
CHECKPOINTS = {
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}

COMPACTED = [
    "cleanup.policy=compact",
    "min.cleanable.dirty.ratio=0.01",
    "segment.bytes=1048576",
]
CLEANED = {"log.cleaner.backoff.ms": "100", "offsets.topic.segment.bytes": "1048576"}
#: All that is committed is 2.4 MB, and the segment that is written to is not compacted.
FEW_BYTES = 1_200_000
#: All that is written is 2500 records, counting each once for every level that shows it.
FEW_RECORDS = 1000


@pytest.fixture
def dohle(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, {**QUICK, **SNAPSHOTS, **CHECKPOINTS})
    yield broker
    broker.__exit__(None, None, None)
    assert broker.failures == []


@pytest.fixture
def kafka(classpath: str, tmp_path: Path) -> Iterator[ApacheKafka]:
    config = {**QUICK, **IMPATIENT, **SNAPSHOTS, **CHECKPOINTS}
    broker = ApacheKafka(classpath, tmp_path, config)
    yield broker
    broker.__exit__(None, None, None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("first", ["dohle", "kafka"])
def test_either_broker_finds_all_that_the_other_has_left(
    jvm: Jvm, tmp_path: Path, dohle: BrokerProcess, kafka: ApacheKafka, first: str, end: str
) -> None:
    brokers: list[BrokerProcess | ApacheKafka] = [dohle, kafka, dohle]
    if first == "kafka":
        brokers = [kafka, dohle, kafka]
        kafka.format(jvm)
    left: dict[str, list[str]] = {}
    groups: list[str] = []
    for number, broker in enumerate(brokers):
        broker.start()
        world = World(jvm, broker.bootstrap)
        if left:
            world.await_coordinators(groups)
            found = world.seen()
            for kind, lines in left.items():
                assert found[kind] == lines, kind
        world.grow(number)
        left, groups = world.seen(), world.groups()
        if end == "stop":
            broker.stop()
        else:
            _await_checkpoint(tmp_path / "data" / CHECKPOINT, f"cut-{number} ")
            broker.kill()


def _await_checkpoint(file: Path, entry: str) -> None:
    wait_until(lambda: entry in file.read_text())


def _overwrite(jvm: Jvm, bootstrap: str, topic: str) -> None:
    assert jvm.run("Overwrite", bootstrap, topic).code == 0
    assert jvm.run("CommitOften", bootstrap, topic, "committer").code == 0


def _group_log_bytes(data: Path) -> int:
    return sum(file.stat().st_size for file in data.glob("__consumer_offsets-*/*.log"))


@pytest.mark.timeout(300)
def test_what_kafka_has_compacted_dohle_reads_and_extends(
    jvm: Jvm, classpath: str, tmp_path: Path, dohle: BrokerProcess
) -> None:
    kafka = ApacheKafka(classpath, tmp_path, {**QUICK, **IMPATIENT, **CLEANED})
    kafka.format(jvm)
    topic = "compacted"
    configs_left: list[list[str]] = []
    for _ in range(2):
        with kafka:
            world = World(jvm, kafka.bootstrap)
            if not (tmp_path / "data" / f"{topic}-0").exists():
                configs = [option for config in COMPACTED for option in ("--config", config)]
                Tools(jvm, kafka.bootstrap).topics("--create", "--topic", topic, *configs)
            _overwrite(jvm, kafka.bootstrap, topic)
            world.await_compaction(FEW_RECORDS)
            wait_until(lambda: _group_log_bytes(tmp_path / "data") < FEW_BYTES)
            left = world.seen()
            configs_left.append(left.pop("configs"))
            # dohle keeps the configs of compaction for Kafka, and shows none of them.
            del left["topics"]
            kafka.stop()
        with dohle:
            world = World(jvm, dohle.bootstrap)
            world.await_coordinators(["committer"])
            found = world.seen()
            for kind, lines in left.items():
                assert found[kind] == lines, kind
            _overwrite(jvm, dohle.bootstrap, topic)
            assert len(world.records()) > len(left["records"])
            assert _group_log_bytes(tmp_path / "data") > FEW_BYTES
            assert dohle.stop() == 0
    assert configs_left[0] == configs_left[1]
    assert any("min.cleanable.dirty.ratio=0.01" in config for config in configs_left[0])
