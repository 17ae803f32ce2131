"""kafka-metadata-shell reads the snapshots of either broker, as one tree.

Since Kafka 3.9 that is all it reads: it takes a snapshot (``--snapshot``), or any file in the same
format, such as a segment of the metadata log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm, run_alone
from tests.jvm.tools import Tools, see

_SHELL = "org.apache.kafka.shell.MetadataShell"
#: So small that there are snapshots of the metadata.
_CONFIG = {**QUICK, "metadata.log.max.record.bytes.between.snapshots": "500"}
_TOPICS = ["orders", "payments"]
_ATTEMPTS = 6


class Written(NamedTuple):
    """What a broker has left."""

    data: Path
    node_id: int

    @property
    def metadata(self) -> Path:
        return self.data / "__cluster_metadata-0"

    @property
    def snapshot(self) -> Path:
        return max(self.metadata.glob("*.checkpoint"))


@pytest.fixture(scope="module", params=["dohle", "kafka"])
def written(
    request: pytest.FixtureRequest,
    classpath: str,
    jvm: Jvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Written:
    """The files of a broker that has stopped, after a snapshot that has two topics."""
    folder = tmp_path_factory.mktemp("written")
    broker: BrokerProcess | ApacheKafka = BrokerProcess(folder, _CONFIG)
    if request.param == "kafka":
        broker = ApacheKafka(classpath, folder, _CONFIG)
        broker.format(jvm)
    with broker:
        tools = Tools(jvm, broker.bootstrap)
        for topic in _TOPICS:
            retention = ("--config", "retention.ms=1000")
            tools.topics("--create", "--topic", topic, "--partitions", "2", *retention)
        see(lambda: tools.topics("--list").lines, _TOPICS)
        # What fills up the log until there is a snapshot with these in it.
        for number in range(10):
            tools.topics("--create", "--topic", f"more-{number}", "--partitions", "3")
        broker.stop()
    return Written(folder / "data", 1)


def _see(classpath: str, file: Path, *command: str, shown: Sequence[str]) -> None:
    """Run a command until all of this is in what it shows.

    The shell takes it that it has read all when it has read the first batch, so it may be early. It
    runs alone, since it ends its virtual machine.
    """
    out = ""
    for _ in range(_ATTEMPTS):
        ran = run_alone(classpath, _SHELL, "--snapshot", str(file), *command)
        assert ran.code == 0, ran
        out = ran.out
        if all(each in out for each in shown):
            return
    raise AssertionError(f"{[each for each in shown if each not in out]} are not shown:\n{out}")


def test_what_is_in_a_snapshot_is_listed(classpath: str, written: Written) -> None:
    names = ("acls", "cluster", "configs", "features", "topics", *_TOPICS)
    listed = ("ls", "/image", "/image/topics/byName")
    _see(classpath, written.snapshot, *listed, shown=names)


def test_a_partition_of_a_snapshot_is_shown(classpath: str, written: Written) -> None:
    """The broker has left the ISR when it stopped, and stays eligible."""
    node = written.node_id
    shown = ["PartitionRegistration(", f"replicas=[{node}]", "isr=[]", f"elr=[{node}]"]
    place = "/image/topics/byName/orders/1"
    _see(classpath, written.snapshot, "cat", place, shown=shown)


def test_configs_features_and_brokers_of_a_snapshot_are_shown(
    classpath: str, written: Written
) -> None:
    shown = [f"/image/cluster/brokers/{written.node_id}\n", "/image/features/", "retention.ms"]
    _see(classpath, written.snapshot, "find", "/image", shown=shown)


def test_the_log_is_read_as_a_snapshot_is(classpath: str, written: Written) -> None:
    segment = min(written.metadata.glob("*.log"))
    _see(classpath, segment, "ls", "/image/topics/byName", shown=_TOPICS)
