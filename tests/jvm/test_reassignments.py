"""Kafka's kafka-reassign-partitions against a cluster of dohle, and its files in dohle's hands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.client import Admin, NewTopic, Producer, ProducerConfig, run
from dohle.client import Cluster as Client
from dohle.core.ids import TopicName
from dohle.testing import Cluster
from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm, Ran
from tests.jvm.tools import Tools

COMMAND = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
PARTITIONS = 2
DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # A batch at a time, so that a throttle may tell.
    with Cluster(nodes=3, config={"replica.fetch.max.bytes": "1000"}) as running:
        yield running


@pytest.fixture
def tools(cluster: Cluster, jvm: Jvm) -> Tools:
    return Tools(jvm, cluster.bootstrap)


def filled_topic(cluster: Cluster, name: str, *replicas: int) -> TopicName:
    """Make a topic on these brokers, with 800 KB of records in small batches."""

    async def work() -> None:
        assignments = dict.fromkeys(range(PARTITIONS), replicas)
        async with Client(cluster.bootstrap) as client:
            (await Admin(client).create_topics([NewTopic(name, assignments=assignments)])).ok()
            async with Producer(client, ProducerConfig(linger_ms=0)) as producer:
                for number in range(40):
                    sent = await producer.send_soon(
                        name, bytes(20_000), partition=number % PARTITIONS
                    )
                    await sent

    run(work())
    return TopicName(name)


def plan_of(path: Path, topic: str, *replicas: int) -> tuple[str, str]:
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for index in range(PARTITIONS)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(path)


def reassign(tools: Tools, *arguments: str) -> Ran:
    ran = tools.attempt(COMMAND, *arguments)
    assert ran.code == 0, ran
    return ran


def throttles(tools: Tools, topic: str) -> list[str]:
    shown = tools.configs("--describe", "--entity-type", "topics", "--entity-name", topic).out
    for node in (1, 2, 3):
        of_one = ("--entity-type", "brokers", "--entity-name", str(node))
        shown += tools.configs("--describe", *of_one).out
    return re.findall(r"^ *(\S+throttled\S+)=", shown, re.M)


def test_kafkas_tool_generates_executes_and_verifies_a_plan(
    cluster: Cluster, tools: Tools, tmp_path: Path
) -> None:
    topic = filled_topic(cluster, "generated", 1, 2)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    to = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    generated = reassign(tools, "--generate", *to)
    plan = tmp_path / "plan.json"
    plan.write_text(generated.out.split("Proposed partition reassignment configuration")[1])
    file = ("--reassignment-json-file", str(plan))
    executed = reassign(tools, *file, "--execute", "--throttle", "100000000")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in executed.out

    def is_complete() -> bool:
        verified = reassign(tools, *file, "--verify").out
        return verified.count("is completed.") == PARTITIONS

    wait_until(is_complete, DEADLINE_S)
    wait_until(lambda: throttles(tools, topic) == [], DEADLINE_S)
    folder = cluster.data(1) / f"{topic}-0"
    wait_until(lambda: not folder.exists(), DEADLINE_S)
    # dohle reads the same file, and says the same.
    assert main(["-b", cluster.bootstrap, "cluster", "reassign", "verify", str(plan)]) == 0


def test_kafkas_tool_sees_a_throttle_hold_and_cancels(
    cluster: Cluster, tools: Tools, tmp_path: Path
) -> None:
    topic = filled_topic(cluster, "cancelled", 1)
    file = plan_of(tmp_path / "plan.json", topic, 3)
    # At this rate it takes more than an hour.
    reassign(tools, *file, "--execute", "--throttle", "200")
    wait_until(lambda: len(throttles(tools, topic)) == 6, DEADLINE_S)
    going_on = reassign(tools, "--list").out
    assert f"{topic}-0: replicas: 3,1. adding: 3. removing: 1." in going_on
    verified = reassign(tools, *file, "--verify").out
    assert verified.count("is still in progress.") == PARTITIONS
    refused = tools.attempt(COMMAND, *file, "--execute").out
    assert "Cannot execute because there is an existing partition assignment." in refused
    cancelled = reassign(tools, *file, "--cancel").out
    assert "Successfully cancelled partition reassignments" in cancelled
    assert "No partition reassignments found." in reassign(tools, "--list").out
    wait_until(lambda: throttles(tools, topic) == [], DEADLINE_S)


def test_kafkas_tool_executes_what_dohle_has_planned(
    cluster: Cluster, tools: Tools, tmp_path: Path
) -> None:
    topic = filled_topic(cluster, "planned", 1, 3)
    plan = str(tmp_path / "plan.json")
    command = ["-b", cluster.bootstrap, "cluster", "reassign", "plan", topic, "--remove", "3"]
    assert main([*command, "-o", plan]) == 0
    file = ("--reassignment-json-file", plan)
    reassign(tools, *file, "--execute")
    wait_until(
        lambda: reassign(tools, *file, "--verify").out.count("is completed.") == PARTITIONS,
        DEADLINE_S,
    )
