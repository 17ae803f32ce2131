"""``dohle cluster reassign`` on three nodes: plan, execute, watch, verify, cancel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.client import Admin, Beginning, Consumer, NewTopic, Producer, ProducerConfig, run
from dohle.client import Cluster as Client
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing import Cluster
from tests.interop.waiting import wait_until

PARTITIONS, RECORDS = 3, 60
Reassign = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        # A batch at a time, so that a throttle may tell.
        "replica.fetch.max.bytes": "1000",
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "500",
    }
    with Cluster(nodes=3, config=config) as running:
        yield running


@pytest.fixture
def reassign(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Reassign:
    """Run a command, insist on its exit code, and return its rows."""

    def command(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        found = main(["-b", cluster.bootstrap, "--json", "cluster", "reassign", *arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return [json.loads(line) for line in out.splitlines()]

    return command


def filled_topic(cluster: Cluster, name: str, *replicas: int, size: int = 100) -> TopicName:
    """Make a topic on these brokers, with records."""
    topic = TopicName(name)

    async def work() -> None:
        assignments = dict.fromkeys(range(PARTITIONS), replicas)
        async with Client(cluster.bootstrap) as client:
            (await Admin(client).create_topics([NewTopic(name, assignments=assignments)])).ok()
            async with Producer(client, ProducerConfig(linger_ms=0)) as producer:
                for number in range(RECORDS):
                    value = b"%d".ljust(size) % number
                    await producer.send_soon(topic, value, partition=number % PARTITIONS)

    run(work())
    return topic


def numbers(cluster: Cluster, topic: TopicName) -> list[int]:
    async def work() -> list[int]:
        async with Client(cluster.bootstrap) as client, Consumer(client) as consumer:
            partitions = (TopicPartition(topic, index) for index in range(PARTITIONS))
            await consumer.assign(dict.fromkeys(partitions, Beginning()), stop_at_end=True)
            return [int(found.record.value or b"") async for found in consumer]

    return sorted(run(work()))


def throttles(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return which throttles are set."""
    found = []
    for kind in (("topic", topic), *(("broker", str(node)) for node in cluster.nodes)):
        assert main(["-b", cluster.bootstrap, "--json", "config", "describe", *kind]) == 0
        for line in capsys.readouterr().out.splitlines():
            entry = json.loads(line)
            if "throttled" in entry["name"] and entry["value"] not in (None, "", str(2**63 - 1)):
                found.append(entry["name"])
    return found


def described(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["-b", cluster.bootstrap, "--json", "topic", "describe", topic]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_broker_is_freed_by_a_plan_and_its_folders_go(
    cluster: Cluster, reassign: Reassign, tmp_path: Path
) -> None:
    topic = filled_topic(cluster, "freed", 1, 2)
    plan, back = str(tmp_path / "plan.json"), str(tmp_path / "back.json")
    (planned,) = reassign("plan", topic, "--remove", "1", "-o", plan)
    assert planned == json.loads(Path(plan).read_text())
    assert [each["replicas"] for each in planned["partitions"]] == [[3, 2]] * PARTITIONS
    rows = reassign("execute", plan, "--wait", "--rollback", back)
    assert [row["state"] for row in rows] == ["completed"] * PARTITIONS
    nothing = [{"version": 1, "partitions": []}]
    wait_until(lambda: reassign("plan", topic, "--remove", "1") == nothing, 60.0)
    assert numbers(cluster, topic) == list(range(RECORDS))
    folder = cluster.data(1) / f"{topic}-0"
    wait_until(lambda: not folder.exists(), 60.0)
    # And all the way back.
    reassign("verify", back, code=1)
    reassign("execute", back)
    rows = reassign("verify", back, "--wait")
    assert [row["replicas"] for row in rows] == [[1, 2]] * PARTITIONS
    assert numbers(cluster, topic) == list(range(RECORDS))


def test_a_throttled_reassignment_is_listed_cancelled_and_leaves_nothing_behind(
    cluster: Cluster,
    reassign: Reassign,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = filled_topic(cluster, "slow", 1, size=20_000)
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": index, "replicas": [3]} for index in range(3)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    # At this rate it takes an hour.
    reassign("execute", str(plan), "--throttle", "300")
    # On both sides: the topic's replicas, and the rates of two brokers.
    wait_until(lambda: len(throttles(cluster, topic, capsys)) == 6, 60.0)
    listed = reassign("list")
    assert [(row["adding"], row["removing"]) for row in listed] == [([3], [1])] * PARTITIONS
    assert all(row["percent"] < 100 for row in listed)
    first = described(cluster, topic, capsys)["partitions"][0]
    assert first["addingReplicas"] == [3]
    assert first["state"] == "ok", "nothing is missing of what there was"
    assert {row["state"] for row in reassign("verify", str(plan), code=1)} == {"in progress"}
    assert reassign("execute", str(plan), code=1) == [], "one at a time, unless it is asked for"
    cancelled = reassign("cancel", str(plan))
    assert [row["result"] for row in cancelled] == ["cancelled"] * PARTITIONS
    assert reassign("list") == []
    wait_until(lambda: throttles(cluster, topic, capsys) == [], 60.0)
    assert numbers(cluster, topic) == list(range(RECORDS))


def test_what_a_dead_broker_has_had_is_made_anew_elsewhere(
    cluster: Cluster, reassign: Reassign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = filled_topic(cluster, "orphaned", 3, 1)
    cluster.kill(3)

    def states() -> set[str]:
        return {each["state"] for each in described(cluster, topic, capsys)["partitions"]}

    wait_until(lambda: states() == {"under-replicated"}, 60.0)
    many = ["cluster", "reassign", "plan", topic, "--replication-factor", "4"]
    assert main(["-b", cluster.bootstrap, *many]) == 1
    assert "too few brokers: 2 may be used (1, 2), and down are 3" in capsys.readouterr().err
    plan = str(tmp_path / "plan.json")
    # Nothing is taken from it that was not asked for: it may just be away for a while.
    (balanced,) = reassign("plan", topic)
    assert all(3 in each["replicas"] for each in balanced["partitions"])
    reassign("plan", topic, "--remove", "3", "-o", plan)
    rows = reassign("execute", plan, "--throttle", "100000000", "--wait")
    assert [row["replicas"] for row in rows] == [[2, 1]] * PARTITIONS
    assert numbers(cluster, topic) == list(range(RECORDS))
    cluster.restart(3)
    cluster.wait_until_ready()
    # What it still had is set aside.
    wait_until(lambda: not (cluster.data(3) / f"{topic}-0").exists(), 60.0)
    wait_until(lambda: states() == {"ok"}, 60.0)


def test_what_is_no_plan_is_refused(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    for text, reason in (
        ("{", "is not a plan"),
        ("[]", "is not a plan"),
        ('{"version": 2, "partitions": []}', "its version is 2"),
        ('{"version": 1, "partitions": []}', "it has no partitions"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "it has no 'replicas'"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "twice"),
    ):
        plan.write_text(text)
        command = ["-b", cluster.bootstrap, "cluster", "reassign", "verify", str(plan)]
        assert main(command) == 2
        assert reason in capsys.readouterr().err
