"""A quorum of one whose voter is in the metadata log, and tools that speak to its controller."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dohle.cli.main import main
from dohle.server.quorum.snapshots import SnapshotId
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools, directory_id, levels, see
from tests.ports import free_port

#: So small that either finds a snapshot of the metadata that the other has written.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
#: Kafka waits so long for a broker that has not said goodbye.
IMPATIENT = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
FEATURES = {
    "eligible.leader.replicas.version": "1",
    "group.version": "1",
    "kraft.version": "1",
    "metadata.version": "29",
    "share.version": "1",
    "streams.version": "1",
    "transaction.version": "2",
}


class Standalone(NamedTuple):
    """A running node."""

    data: Path
    bootstrap: str
    controller: str


def format_dohle(folder: Path) -> None:
    assert main(["storage", "format", "--data", str(folder / "data"), "--standalone"]) == 0


@pytest.fixture(scope="module", params=["dohle", "kafka"])
def node(
    request: pytest.FixtureRequest,
    classpath: str,
    jvm: Jvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        kafka = ApacheKafka(classpath, folder, QUICK, standalone=True)
        kafka.format(jvm)
        with kafka:
            yield Standalone(folder / "data", kafka.bootstrap, kafka.controller)
        return
    format_dohle(folder)
    controller = f"127.0.0.1:{free_port()}"
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
    }
    with BrokerProcess(folder, {**QUICK, **listeners}) as dohle:
        yield Standalone(folder / "data", dohle.bootstrap, controller)
        assert dohle.stop() == 0
        assert dohle.failures == []


@pytest.fixture(params=["--bootstrap-server", "--bootstrap-controller"])
def tools(request: pytest.FixtureRequest, jvm: Jvm, node: Standalone) -> Tools:
    is_controller = request.param == "--bootstrap-controller"
    return Tools(jvm, node.controller if is_controller else node.bootstrap, request.param)


def test_all_features_are_upgraded_to_those_of_a_release(tools: Tools) -> None:
    upgrade = ("upgrade", "--release-version", "4.2")
    assert tools.features(*upgrade, "--dry-run").lines == [
        f"{name} can be upgraded to {level}." for name, level in FEATURES.items()
    ]
    assert tools.features(*upgrade).lines == [
        f"{name} was upgraded to {level}." for name, level in FEATURES.items()
    ]
    assert levels(tools)["kraft.version"] == "1"


def test_the_level_of_the_quorum_never_goes_down(tools: Tools) -> None:
    change = ("downgrade", "--feature", "kraft.version=0")
    ran = tools.attempt("org.apache.kafka.tools.FeatureCommand", *change)
    assert ran.code == 1
    assert "Can't downgrade the version of this feature." in ran.out


def test_the_quorum_is_described_with_directory_and_endpoint(
    tools: Tools, node: Standalone
) -> None:
    out = tools.metadata_quorum("describe", "--status").out
    status = dict(re.findall(r"^(\w+): +(.*)$", out, re.M))
    endpoint = f"CONTROLLER://{node.controller}"
    assert json.loads(status["CurrentVoters"]) == [
        {"id": 1, "directoryId": directory_id(node.data), "endpoints": [endpoint]}
    ]
    _, row = tools.metadata_quorum("describe", "--replication").table
    assert (row[0], row[1], row[3], row[-1]) == ("1", directory_id(node.data), "0", "Leader")


def test_the_cluster_is_described_by_brokers_and_controllers(jvm: Jvm, node: Standalone) -> None:
    for address, option, kind in [
        (node.bootstrap, "--bootstrap-server", "broker"),
        (node.controller, "--bootstrap-controller", "controller"),
    ]:
        cluster = Tools(jvm, address, option).cluster
        host, port = address.split(":")
        _, row = cluster("list-endpoints").table
        assert (row[:3], row[-1]) == (["1", host, port], kind)
        assert cluster("cluster-id").out.startswith("Cluster ID: ")


def test_configs_of_brokers_are_altered_and_described(tools: Tools) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    for value in ("86400000", "86400001"):
        tools.configs("--alter", *broker, "--add-config", f"log.retention.ms={value}")
        see(
            lambda: re.findall(r"^  log.retention.ms=(\d+)", describe(tools, *broker), re.M),
            [value],
        )


def describe(tools: Tools, *entity: str) -> str:
    return tools.configs("--describe", *entity).out


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", ["dohle", "dohle, upgraded", "kafka"])
def test_either_goes_on_with_the_quorum_that_the_other_has_left(
    jvm: Jvm, classpath: str, tmp_path: Path, first: str
) -> None:
    dohle = BrokerProcess(tmp_path, {**QUICK, **SNAPSHOTS})
    config = {**QUICK, **IMPATIENT, **SNAPSHOTS}
    kafka = ApacheKafka(classpath, tmp_path, config, standalone=True)
    brokers: list[BrokerProcess | ApacheKafka] = [dohle, kafka, dohle]
    if first == "kafka":
        brokers = [kafka, dohle, kafka]
        kafka.format(jvm)
    elif first == "dohle":
        format_dohle(tmp_path)
    topics: list[str] = []
    for number, broker in enumerate(brokers):
        with broker:
            tools = Tools(jvm, broker.bootstrap)
            if first == "dohle, upgraded" and not number:
                tools.features("upgrade", "--feature", "kraft.version=1")
            grow(tools, number, topics)
            out = tools.metadata_quorum("describe", "--status").out
            (voters,) = re.findall(r"^CurrentVoters: +(.*)$", out, re.M)
            (voter,) = json.loads(voters)
            assert (voter["id"], voter["directoryId"]) == (1, directory_id(tmp_path / "data"))
            broker.stop()
        folder = tmp_path / "data" / "__cluster_metadata-0"
        snapshots = {path.name for path in folder.glob("*.checkpoint")}
        assert snapshots - {SnapshotId(0, 0).file_name}
        state = json.loads((folder / "quorum-state").read_text())
        assert state["data_version"] == (0 if first == "dohle, upgraded" and not number else 1)
    assert dohle.failures == []


def grow(tools: Tools, number: int, topics: list[str]) -> None:
    """See the topics of the rounds before, and add more."""
    see(lambda: levels(tools)["kraft.version"], "1")
    see(lambda: sorted(tools.topics("--list").lines), topics)
    for index in range(6):
        name = f"topic-{number}-{index}"
        tools.topics("--create", "--topic", name, "--partitions", "3")
        topics.append(name)
    see(lambda: sorted(tools.topics("--list").lines), topics)
