from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dohle.cli import soon
from dohle.cli.commands.topic_description import (
    describe,
    partition_state,
    under_replicated,
)
from dohle.client import (
    Admin,
    ClientConfig,
    Cluster,
    PartitionInfo,
    PartitionReassignment,
    ResourceType,
    TopicInfo,
)
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dohle.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from dohle.protocol.messages.list_offsets import ListOffsetsRequest
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.cli.running import Command, lines
from tests.client.offset_answers import offsets_answer
from tests.client.scripted_broker import SILENCE, Reply, ScriptedCluster, within


def names(command: Command) -> set[str]:
    return {topic["name"] for topic in command.json("topic", "list")}


def test_a_topic_is_created_as_asked_and_told_so(command: Command) -> None:
    shown = command.out("topic", "create", "made", "--partitions", "3", "--replication-factor", "1")
    assert shown == "made: created (partitions: 3, replicationFactor: 1)\n"
    (described,) = command.json("topic", "describe", "made")
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "leaderEpoch": 0,
        "replicas": [1],
        "isr": [1],
        "elr": [],
        "lastKnownElr": [],
        "offlineReplicas": [],
        "state": "ok",
        "startOffset": 0,
        "endOffset": 0,
    }


def test_partitions_are_told_apart_by_what_is_missing() -> None:
    one, two, three = map(BrokerId, (1, 2, 3))
    whole = PartitionInfo(0, one, replicas=(one, two), isr=(two, one))
    assert partition_state(whole, None) == "ok"
    assert partition_state(replace(whole, isr=(one,)), None) == "under-replicated"
    assert partition_state(replace(whole, leader_id=BrokerId(-1)), None) == "offline"
    # Those that are being added are not missed, as in Kafka.
    growing = replace(whole, replicas=(one, two, three))
    added = PartitionReassignment(growing.replicas, adding=(three,), removing=())
    assert partition_state(growing, added) == "ok"
    assert partition_state(replace(growing, isr=(one,)), added) == "under-replicated"


def test_nodes_that_hang_cost_what_only_they_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One leader is silent, and so is the controller; the leaders shown are those of the end."""

    def configs(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        result = DescribeConfigsResult(resource_type=ResourceType.TOPIC, resource_name="t")
        return DescribeConfigsResponse(results=(result,))

    def eligible(
        request: DescribeTopicPartitionsRequest, version: int
    ) -> DescribeTopicPartitionsResponse:
        partition = DescribeTopicPartitionsResponsePartition(
            partition_index=1, eligible_leader_replicas=(BrokerId(2),)
        )
        topic = DescribeTopicPartitionsResponseTopic(name=TopicName("t"), partitions=(partition,))
        return DescribeTopicPartitionsResponse(topics=(topic,))

    async def body() -> list[dict[str, object]]:
        async with (
            ScriptedCluster(2, topics={"t": 2}) as scripted,
            Cluster(scripted.bootstrap, ClientConfig(retry_backoff_ms=1)) as cluster,
        ):

            def hang(request: ListOffsetsRequest, version: int) -> Reply:
                scripted.topics["t"].leaders[1] = (-1, 6)
                return SILENCE

            async def wait(request: ListPartitionReassignmentsRequest, version: int) -> Reply:
                """Answer nothing else on this connection either, as a broker does."""
                await asyncio.Event().wait()
                return SILENCE

            scripted.serve(ApiKey.DESCRIBE_CONFIGS, configs)
            scripted.serve(ApiKey.LIST_PARTITION_REASSIGNMENTS, wait)
            scripted.serve(ApiKey.DESCRIBE_TOPIC_PARTITIONS, eligible)
            scripted[1].serve(ApiKey.LIST_OFFSETS, offsets_answer)
            scripted[2].serve(ApiKey.LIST_OFFSETS, hang)
            admin = Admin(cluster)
            return await describe(admin, [(await admin.describe_topics(["t"])).one()])

    monkeypatch.setattr(soon, "SOON_S", 1.0)
    (described,) = within(30, body())
    partitions = described["partitions"]
    assert isinstance(partitions, list)
    shown = [(one["leader"], one["startOffset"], one["endOffset"]) for one in partitions]
    assert shown == [(1, 998, 999), (-1, None, None)]
    assert partitions[1]["elr"] == (2,)
    offsets, reassignments = capsys.readouterr().err.splitlines()
    assert "offsets of 1 partitions are not shown, t-1 among them" in offsets
    assert "reassignments are not shown" in reassignments


def test_partitions_with_replicas_out_of_sync_are_listed() -> None:
    """As kafka-topics does: a replica that is being added is not missed yet."""
    isrs = {0: (1, 2), 1: (2,), 2: (1,)}
    partitions = {
        number: PartitionInfo(number, BrokerId(isr[0]), 5, brokers(1, 2), brokers(*isr))
        for number, isr in isrs.items()
    }
    topic = TopicInfo(TopicName("t"), Uuid(bytes(16)), False, partitions)

    def moving(
        request: ListPartitionReassignmentsRequest, version: int
    ) -> ListPartitionReassignmentsResponse:
        partition = OngoingPartitionReassignment(
            partition_index=2, replicas=brokers(1, 2), adding_replicas=brokers(2)
        )
        ongoing = OngoingTopicReassignment(name=TopicName("t"), partitions=(partition,))
        return ListPartitionReassignmentsResponse(topics=(ongoing,))

    async def body() -> list[dict[str, object]]:
        async with ScriptedCluster(1) as scripted, Cluster(scripted.bootstrap) as cluster:
            scripted.serve(ApiKey.LIST_PARTITION_REASSIGNMENTS, moving)
            return await under_replicated(Admin(cluster), [topic])

    (row,) = within(30, body())
    assert row == {"topic": "t", "partition": 1, "leader": 2, "replicas": (1, 2), "isr": (2,)}


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def test_nothing_is_listed_when_all_replicas_are_in_sync(command: Command) -> None:
    command.out("topic", "create", "in-sync", "--partitions", "2")
    assert command.out("topic", "describe", "--under-replicated-partitions") == ""


def test_what_was_created_is_told_to_programs_too(command: Command) -> None:
    created = command.json("topic", "create", "made-json", "--config", "retention.ms=1000")
    assert [(row["name"], row["result"], row["partitions"]) for row in created] == [
        ("made-json", "created", 1)
    ]
    (described,) = command.json("topic", "describe", "made-json")
    assert described["topicId"] == created[0]["topicId"]
    assert described["configs"] == {"retention.ms": "1000"}


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(command: Command) -> None:
    command.out("topic", "create", "twice")
    error = command.error("topic", "create", "twice")
    assert "twice" in error
    assert "(TOPIC_ALREADY_EXISTS)" in error
    assert command.out("topic", "create", "twice", "--if-not-exists") == "twice: exists already\n"
    assert command.json("topic", "create", "twice", "--if-not-exists") == [
        {"name": "twice", "result": "exists"}
    ]


def test_one_bad_name_does_not_keep_the_others_from_being_created(command: Command) -> None:
    out, err = command.run("topic", "create", "good-one", "not/good", code=1)
    assert out == "good-one: created (partitions: 1, replicationFactor: 1)\n"
    assert "not/good" in err
    assert "(INVALID_TOPIC_EXCEPTION)" in err
    assert "good-one" in names(command)


def test_validating_creates_nothing(command: Command) -> None:
    shown = command.out("topic", "create", "thought-of", "--partitions", "2", "--validate-only")
    assert shown.startswith("thought-of: valid")
    assert "thought-of" not in names(command)
    error = command.error(
        "topic", "create", "thought-of", "--config", "no.such=1", "--validate-only"
    )
    assert "no.such" in error


def test_the_list_is_a_table_with_a_head(command: Command) -> None:
    command.out("topic", "create", "listed", "--partitions", "12")
    head, *rows = command.out("topic", "list").splitlines()
    assert head.split() == ["name", "partitions", "replicationFactor", "topicId", "isInternal"]
    (row,) = [row.split() for row in rows if row.startswith("listed ")]
    assert row[:3] + row[4:] == ["listed", "12", "1", "false"]
    assert len({row.rindex(row.split()[-1]) for row in (head, *rows)}) == 1


def test_a_description_shows_offsets_and_the_configs_of_the_topic(command: Command) -> None:
    command.out("topic", "create", "shown", "--config", "segment.bytes=1048576")
    command.out("produce", "shown", stdin=lines("abc"))
    first, config, head, row = command.out("topic", "describe", "shown").splitlines()
    assert first.startswith("topic shown (id ")
    assert config == "config segment.bytes=1048576"
    assert head.split()[-2:] == ["startOffset", "endOffset"]
    assert row.split() == ["0", "1", "0", "1", "1", "0", "3"]


def test_of_a_compacted_topic_it_is_shown_how_far_it_is_cleaned(command: Command) -> None:
    command.out("topic", "create", "how-far-cleaned", "--config", "cleanup.policy=compact")
    *_, head, row = command.out("topic", "describe", "how-far-cleaned").splitlines()
    assert head.split()[-3:] == ["dirtyRatio", "lastCleaned", "uncleanable"]
    assert row.split()[-3:] == ["0.0", "-", "-"]
    (described,) = command.json("topic", "describe", "how-far-cleaned")
    (partition,) = described["partitions"]
    assert [partition[name] for name in ("dirtyRatio", "lastCleaned", "uncleanable")] == [
        0.0,
        None,
        None,
    ]


def test_describing_without_a_name_describes_all(command: Command) -> None:
    command.out("topic", "create", "all-a", "all-b")
    assert names(command) == {one["name"] for one in command.json("topic", "describe")}


def test_a_missing_topic_is_said_to_be_missing_and_the_others_are_shown(command: Command) -> None:
    command.out("topic", "create", "there")
    out, err = command.run("topic", "describe", "there", "not-there", code=1)
    assert out.startswith("topic there ")
    assert err == "dohle: error: there is no topic not-there; `dohle topic list` shows all\n"
    assert "not-there" not in names(command)


def test_a_topic_gets_more_partitions_and_other_configs(command: Command) -> None:
    command.out("topic", "create", "grows", "--config", "retention.ms=1000")
    shown = command.out(
        "topic",
        "alter",
        "grows",
        "--partitions",
        "4",
        "--config",
        "segment.ms=5000",
        "--delete-config",
        "retention.ms",
    )
    assert shown == "grows: altered\n"
    (described,) = command.json("topic", "describe", "grows")
    assert len(described["partitions"]) == 4
    assert described["configs"] == {"segment.ms": "5000"}


def test_fewer_partitions_are_refused(command: Command) -> None:
    command.out("topic", "create", "shrinks", "--partitions", "2")
    assert "(INVALID_PARTITIONS)" in command.error("topic", "alter", "shrinks", "--partitions", "1")


def test_altering_nothing_is_a_wrong_command_line(command: Command) -> None:
    assert "nothing to alter" in command.error("topic", "alter", "whatever", code=2)


def test_topics_are_deleted(command: Command) -> None:
    command.out("topic", "create", "goes", "goes-too")
    assert command.out("topic", "delete", "goes") == "goes: deleted\n"
    assert command.json("topic", "delete", "goes-too") == [
        {"name": "goes-too", "result": "deleted"}
    ]
    assert not {"goes", "goes-too"} & names(command)
    assert "there is no topic goes; `dohle topic list`" in command.error("topic", "delete", "goes")
    shown = command.out("topic", "delete", "goes", "--if-exists")
    assert shown == "goes: does not exist\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create"],
        ["topic", "create", "x", "--partitions", "0"],
        ["topic", "create", "x", "--partitions", "many"],
        ["topic", "create", "x", "--config", "no-equals-sign"],
        ["topic", "delete"],
        ["topic", "alter"],
        ["topic", "rename", "x"],
    ],
)
def test_a_wrong_command_line_is_not_sent_anywhere(command: Command, arguments: list[str]) -> None:
    _, err = command.run(*arguments, code=2)
    assert "error:" in err
