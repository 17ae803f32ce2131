"""One broker goes on where the other stopped, in the same data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools
from tests.jvm.world import World

#: Kafka waits so long for a broker that has not said goodbye.
IMPATIENT = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}

COMPACTED = [
    "cleanup.policy=compact",
    "min.cleanable.dirty.ratio=0.01",
    "segment.bytes=1048576",
]
#: All that is written is 2500 records, counting each once for every level that shows it.
FEW_RECORDS = 1000


@pytest.fixture
def dohle(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, QUICK)
    yield broker
    broker.__exit__(None, None, None)
    assert broker.failures == []


@pytest.fixture
def kafka(classpath: str, tmp_path: Path) -> Iterator[ApacheKafka]:
    broker = ApacheKafka(classpath, tmp_path, {**QUICK, **IMPATIENT})
    yield broker
    broker.__exit__(None, None, None)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("first", ["dohle", "kafka"])
def test_either_broker_finds_all_that_the_other_has_left(
    jvm: Jvm, dohle: BrokerProcess, kafka: ApacheKafka, first: str, end: str
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
            broker.kill()


def test_what_kafka_has_compacted_dohle_reads_and_extends(
    jvm: Jvm, classpath: str, tmp_path: Path, dohle: BrokerProcess
) -> None:
    kafka = ApacheKafka(
        classpath, tmp_path, {**QUICK, **IMPATIENT, "log.cleaner.backoff.ms": "100"}
    )
    kafka.format(jvm)
    topic = "compacted"
    for _ in range(2):
        with kafka:
            if not (tmp_path / "data" / f"{topic}-0").exists():
                configs = [option for config in COMPACTED for option in ("--config", config)]
                Tools(jvm, kafka.bootstrap).topics("--create", "--topic", topic, *configs)
            assert jvm.run("Overwrite", kafka.bootstrap, topic).code == 0
            world = World(jvm, kafka.bootstrap)
            world.await_compaction(FEW_RECORDS)
            left = world.seen()
            kafka.stop()
        with dohle:
            world = World(jvm, dohle.bootstrap)
            found = world.seen()
            for kind in ("offsets", "records", "transactions"):
                assert found[kind] == left[kind], kind
            assert jvm.run("Overwrite", dohle.bootstrap, topic).code == 0
            assert len(world.records()) > len(left["records"])
            assert dohle.stop() == 0
