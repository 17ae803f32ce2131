"""docs/migrate.md: its commands run as they are written, while records flow.

Names of machines, files and clusters are replaced by those of the test, and what systemd would do
the test does itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.load import PARTITIONS
from tests.jvm.jvm import Jvm
from tests.mixed.administration import Operator
from tests.mixed.judge import judge
from tests.mixed.load import java_traffic, traffic
from tests.mixed.nodes import CLUSTER_ID, Kind, MixedCluster, Node
from tests.mixed.spark_load import PANDAS_3, streams
from tests.mixed.voting import Membership

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings(PANDAS_3)]

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "migrate.md"
_KAFKA = {1: Kind.KAFKA, 2: Kind.KAFKA, 3: Kind.KAFKA}
_COMMAND_TIMEOUT_S = 120
_ADDRESSES = "kafka-1:9092,kafka-2:9092,kafka-3:9092"


def scripts(section: str) -> list[list[str]]:
    """Return the commands of a section of the document, block by block."""
    _, _, rest = DOCUMENT.read_text().partition(f"\n{section}\n")
    assert rest, f"{DOCUMENT.name} has no {section}"
    level = section.split(" ")[0]
    text = re.split(rf"^#{{2,{len(level)}}} ", rest, maxsplit=1, flags=re.M)[0]
    if level == "##":
        text = text.split("\n### ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    return [block.splitlines() for block in blocks]


class Shell:
    """Runs commands on the machine of a node."""

    def __init__(self, cluster: MixedCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._exports: list[str] = []

    def run(self, node: Node, script: list[str]) -> None:
        """Run commands one after the other; each must succeed."""
        for line in script:
            if line.startswith("systemctl "):
                self._switch(node, *line.split()[1:])
            elif line.startswith("export "):
                self._exports.append(self._named(node, line))
            else:
                self._call(node, line)

    def _switch(self, node: Node, action: str, unit: str) -> None:
        """Do what systemd does with a unit of one kind or the other."""
        kind = Kind(unit)
        if action == "stop":
            assert node.kind is kind
            node.stop()
        else:
            assert action == "start"
            node.become(kind)
            node.start()

    def _named(self, node: Node, line: str) -> str:
        names = {
            _ADDRESSES: self._cluster.bootstrap,
            "/etc/kafka/server.properties": str(node.file),
            "/etc/dohle/server.properties": str(node.file),
            "MkU3OEVBNTcwNTJENDM2Qg": CLUSTER_ID,
        }
        for name, value in names.items():
            line = line.replace(name, value)
        return line

    def _call(self, node: Node, line: str) -> None:
        done = subprocess.run(
            ["bash", "-ec", "\n".join([*self._exports, self._named(node, line)])],
            cwd=self._folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        if line.endswith("--under-replicated-partitions"):
            assert done.stdout == ""


def environment() -> Mapping[str, str]:
    """Return one in which `dohle` is that of these tests."""
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": paths}


def test_a_live_cluster_is_replaced_in_place_and_back_as_the_document_says(
    classpath: str, jvm: Jvm, spark: SparkSession, tmp_path: Path
) -> None:
    """From all of Kafka to all of dohle, by way of quorums and replicas of both.

    Clients of librdkafka, of Java and of Spark go on all the while.
    """
    made = MixedCluster(jvm, classpath, tmp_path / "nodes", brokers=_KAFKA, controllers=_KAFKA)
    (before,), (each, at_last), (back,) = (
        scripts(section) for section in ("## Before", "## In place", "### Back")
    )
    with made as cluster:
        operator, shell = Operator(cluster), Shell(cluster, tmp_path)
        shell.run(cluster.nodes[1], before)
        topic = operator.create("java-traffic", PARTITIONS)
        with streams(spark, cluster, operator, topic, tmp_path) as streaming:
            with (
                traffic(cluster, operator) as flowing,
                java_traffic(cluster, operator, topic) as flowing_too,
            ):
                for node in in_order(cluster, operator):
                    shell.run(node, each)
                    flowing.flow()
                shell.run(cluster.nodes[1], at_last)
                assert {node.kind for node in cluster.brokers} == {Kind.DOHLE}
                flowing_too.flow()
                streaming.flow()
                for node in in_order(cluster, operator):
                    shell.run(node, back)
                    flowing.flow()
                flowing_too.flow()
            streaming.judge(flowing_too.records)
        assert {node.kind for node in cluster.brokers} == {Kind.KAFKA}
        judge(cluster, operator)


def in_order(cluster: MixedCluster, operator: Operator) -> list[Node]:
    """Return all nodes, the active controller last."""
    active = operator.active_controller()
    return [*(node for node in cluster.nodes.values() if node is not active), active]


def test_a_node_is_replaced_by_one_on_a_new_machine_as_the_document_says(
    classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    made = MixedCluster(
        *(jvm, classpath, tmp_path / "nodes"),
        brokers=_KAFKA,
        controllers=_KAFKA,
        is_dynamic=True,
        later={4: Kind.DOHLE},
    )
    begin, move, stop, forget = scripts("## On new machines")
    with made as cluster:
        operator, shell = Operator(cluster), Shell(cluster, tmp_path)
        voters = Membership(cluster, jvm)
        for node in cluster.controllers[1:]:
            voters.let_vote(node)
        old = cluster.nodes[1]
        with traffic(cluster, operator) as flowing:
            new = cluster.prepare(4, is_broker=True)
            for script, node in ((begin, new), (move, new), (stop, old), (forget, new)):
                shell.run(node, script)
                flowing.flow()
            cluster.remove(old)
        assert voters.voters() == [2, 3, 4]
        assert old.id not in brokers_with_replicas(operator)
        assert new.id in brokers_with_replicas(operator)
        judge(cluster, operator)


def brokers_with_replicas(operator: Operator) -> set[int]:
    return {
        broker
        for partitions in operator.topics().values()
        for partition in partitions.values()
        for broker in partition.replicas
    }
