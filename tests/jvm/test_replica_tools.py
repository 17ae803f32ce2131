"""Tools for replicas, leaders, ACLs, quotas and client metrics, on one node without security."""

from __future__ import annotations

import json
from pathlib import Path

from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.tools import Tools, see

_TOOLS = "org.apache.kafka.tools"


def test_a_topic_is_reassigned_to_the_broker_that_has_it(
    tools: Tools, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": index, "replicas": [1]} for index in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    command = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
    file = ("--reassignment-json-file", str(plan))
    # It sets and removes configs of throttling, too.
    throttled = ("--throttle", "1000000")
    executed = tools.attempt(command, *file, "--execute", *throttled)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in executed.out
    assert tools.attempt(command, "--list").lines == ["No partition reassignments found."]
    verified = tools.attempt(command, *file, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in verified.lines
    shown = tools.configs("--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "throttled" not in shown.out


def test_the_leaders_are_those_that_are_preferred(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    of_one = ("--topic", topic, "--partition", "0")
    ran = tools.attempt(f"{_TOOLS}.LeaderElectionCommand", "--election-type", "preferred", *of_one)
    assert f"Valid replica already elected for partitions {topic}-0" in ran.out


def test_without_an_authorizer_there_are_no_acls_to_list(tools: Tools) -> None:
    ran = tools.attempt(f"{_TOOLS}.AclCommand", "--list")
    assert (
        "SecurityDisabledException: No Authorizer is configured on the broker" in ran.out + ran.err
    )


def test_a_broker_that_is_not_there_cannot_be_unregistered(tools: Tools) -> None:
    ran = tools.cluster("unregister", "--id", "9")
    assert "BrokerIdNotRegisteredException" in ran.out + ran.err


def test_quotas_and_users_are_described_as_none(tools: Tools) -> None:
    assert tools.configs("--describe", "--entity-type", "clients").lines == []
    assert tools.configs("--describe", "--entity-type", "users").lines == []
    assert tools.configs("--describe", "--entity-type", "ips").lines == []


def test_quotas_are_set_described_and_removed(tools: Tools, new_name: NewName) -> None:
    user, client, address = new_name("user"), new_name("client"), "10.9.8.7"
    pair = ("--entity-type", "users", "--entity-name", user, "--entity-type", "clients")
    whom = (
        ((*pair, "--entity-name", client), "producer_byte_rate=1024.0"),
        (("--entity-type", "users", "--entity-name", user), "request_percentage=50.0"),
        (("--entity-type", "ips", "--entity-name", address), "connection_creation_rate=20.0"),
    )
    for entity, quota in whom:
        altered = tools.configs("--alter", *entity, "--add-config", quota.removesuffix(".0"))
        assert altered.code == 0, altered
        assert quota in tools.configs("--describe", *entity).out
    for entity, quota in whom:
        key = quota.partition("=")[0]
        altered = tools.configs("--alter", *entity, "--delete-config", key)
        assert altered.code == 0, altered
        assert quota not in tools.configs("--describe", *entity).out


def test_client_metrics_are_subscribed_to_and_described(tools: Tools, new_name: NewName) -> None:
    name = new_name("metrics")
    command = f"{_TOOLS}.ClientMetricsCommand"
    of_it = ("--name", name)
    changes = ("--metrics", "org.apache.kafka.producer.", "--interval", "1000")
    altered = tools.attempt(command, "--alter", *of_it, *changes)
    assert altered.code == 0, altered

    def shown() -> set[str]:
        lines = tools.attempt(command, "--describe", *of_it).lines
        return {line.strip() for line in lines if "=" in line}

    see(lambda: {"interval.ms=1000", "metrics=org.apache.kafka.producer."} <= shown(), True)
    assert name in tools.attempt(command, "--list").lines
    tools.attempt(command, "--delete", *of_it)
    see(lambda: name in tools.attempt(command, "--list").lines, False)
