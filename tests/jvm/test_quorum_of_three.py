"""Kafka's tools and a quorum of three: who votes, who leads, and what is in the log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from dohle.testing import Cluster
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools, directory_id, levels, see

OPTIONS = ["--bootstrap-server", "--bootstrap-controller"]


@pytest.fixture(scope="module", params=["static", "dynamic"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=3, controllers=3, dynamic_voters=request.param == "dynamic") as running:
        yield running


@pytest.fixture(params=OPTIONS)
def tools(request: pytest.FixtureRequest, jvm: Jvm, cluster: Cluster) -> Tools:
    is_broker = request.param == "--bootstrap-server"
    address = cluster.bootstrap if is_broker else cluster.bootstrap_controllers
    return Tools(jvm, address, request.param)


def status(tools: Tools) -> dict[str, str]:
    out = tools.metadata_quorum("describe", "--status").out
    return dict(re.findall(r"^(\w+): +(.*)$", out, re.M))


def voters(tools: Tools) -> list[int]:
    return [each["id"] for each in json.loads(status(tools)["CurrentVoters"])]


def test_the_status_of_the_quorum_is_described(tools: Tools, cluster: Cluster) -> None:
    found = status(tools)
    assert found["ClusterId"] == cluster.cluster_id
    assert int(found["LeaderId"]) == cluster.leader()
    assert int(found["HighWatermark"]) > 0
    assert voters(tools) == cluster.controllers
    observers = json.loads(found["CurrentObservers"])
    assert sorted(each["id"] for each in observers) == cluster.brokers


def test_the_progress_of_each_replica_is_described(tools: Tools, cluster: Cluster) -> None:
    def described() -> dict[int, str]:
        _, *rows = tools.metadata_quorum("describe", "--replication").table
        assert all(int(row[3]) < 10 for row in rows), "nobody lags"
        return {int(row[0]): row[-1] for row in rows}

    leader = cluster.leader()
    expected = {id: "Leader" if id == leader else "Follower" for id in cluster.controllers}
    see(described, {**dict.fromkeys(cluster.brokers, "Observer"), **expected})


def test_the_features_and_the_id_of_the_cluster_are_told(
    tools: Tools, cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    dynamic = "dynamic" in request.node.callspec.id
    assert levels(tools)["kraft.version"] == ("1" if dynamic else "0")
    assert levels(tools)["metadata.version"] == "4.2-IV1"
    assert tools.cluster("cluster-id").lines == [f"Cluster ID: {cluster.cluster_id}"]
    _, *rows = tools.cluster("list-endpoints").table
    kind = rows[0][-1]
    nodes = cluster.brokers if kind == "broker" else cluster.controllers
    assert sorted(int(row[0]) for row in rows) == nodes


def test_topics_are_made_and_leaders_elected(jvm: Jvm, cluster: Cluster) -> None:
    tools = Tools(jvm, cluster.bootstrap)
    tools.topics("--create", "--topic", "t", "--partitions", "6", "--replication-factor", "3")
    see(lambda: tools.topics("--list").lines, ["t"])
    preferred = ("--election-type", "preferred")
    tools.leader_election(*preferred, "--all-topic-partitions")
    ran = tools.leader_election(*preferred, "--topic", "t", "--partition", "0")
    assert "Valid replica already elected for partitions t-0" in ran.out


def test_the_metadata_log_of_each_node_is_read(jvm: Jvm, cluster: Cluster) -> None:
    """M7 of replication.md: checksums, offsets and epochs are right as they are on the disk."""
    for node in cluster.nodes:
        (file,) = (cluster.data(node) / "__cluster_metadata-0").glob("*.log")
        decode = ("--cluster-metadata-decoder", "--files", str(file))
        ran = jvm.run("kafka.tools.DumpLogSegments", *decode)
        assert ran.code == 0, ran
        assert "isvalid: false" not in ran.out
        assert "LeaderChange" in ran.out
        for kind in ("REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD", "FEATURE_LEVEL"):
            assert kind in ran.out


def test_controllers_are_added_and_removed(
    jvm: Jvm, cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """Last, since the quorum is another one then."""
    if "static" in request.node.callspec.id:
        pytest.skip("the voters are in the configuration")
    tools = Tools(jvm, cluster.bootstrap)
    before = cluster.controllers
    added = cluster.add_controller()
    config = ("--command-config", str(cluster.config_file(added)))

    def add() -> int:
        return tools.attempt(
            "org.apache.kafka.tools.MetadataQuorumCommand", *config, "add-controller"
        ).code

    see(add, 0)
    assert voters(tools) == [*before, added]
    leader = cluster.leader()
    tools.metadata_quorum(
        *("remove-controller", "--controller-id", str(leader)),
        *("--controller-directory-id", directory_id(cluster.data(leader))),
    )
    see(lambda: voters(tools), sorted({*before, added} - {leader}))
    controllers = Tools(jvm, cluster.bootstrap_controllers, "--bootstrap-controller")
    assert voters(controllers) == voters(tools)
