from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.running import DEADLINE_S, Command, at_work, lines


@pytest.fixture
def topic(command: Command) -> str:
    """A topic of two partitions with three records in each."""
    name = f"orders-{uuid.uuid4().hex}"
    command.out("topic", "create", name, "--partitions", "2")
    for partition in ("0", "1"):
        command.out("produce", name, "-p", partition, stdin=lines("abc"))
    return name


def read(command: Command, topic: str, *arguments: str) -> list[str]:
    return sorted(command.run("consume", topic, "--group", topic, *arguments)[0].split())


def described(command: Command, group: str) -> dict[str, Any]:
    (found,) = command.json("group", "describe", group)
    return found


def offsets(command: Command, group: str) -> list[int]:
    return [one["currentOffset"] for one in described(command, group)["partitions"]]


@contextmanager
def member(bootstrap: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that consumes as a member of the topic's group, from its first record on."""
    with at_work("-b", bootstrap, "consume", topic, "--group", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process


def test_a_group_reads_on_where_it_was(command: Command, topic: str) -> None:
    assert read(command, topic, "-e") == ["a", "a", "b", "b", "c", "c"]
    assert read(command, topic, "-e") == []
    command.out("produce", topic, "-p", "1", stdin=lines("d"))
    assert read(command, topic, "-e") == ["d"]
    assert offsets(command, topic) == [3, 4]


def test_only_what_was_printed_is_committed(command: Command, topic: str) -> None:
    assert len(read(command, topic, "-c", "2")) == 2
    assert sum(offsets(command, topic)) == 2
    assert len(read(command, topic, "-e")) == 4


def test_a_group_that_has_not_been_there_begins_where_it_is_told(
    command: Command, topic: str
) -> None:
    assert read(command, topic, "-e", "-o", "end") == []
    assert offsets(command, topic) == [3, 3]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "0"],
        ["-o", "5"],
        ["-o", "-1"],
        ["-o", "s@0"],
        ["-o", "e@0"],
    ],
)
def test_what_the_group_decides_cannot_be_asked_for(command: Command, arguments: list[str]) -> None:
    error = command.error("consume", "orders", "--group", "g", *arguments, code=2)
    assert "group" in error
    assert "--group is empty" in command.error("consume", "orders", "--group", "", code=2)


def test_a_missing_topic_is_not_waited_for(command: Command) -> None:
    assert "there is no topic" in command.error("consume", "no-orders", "--group", "g", "-e")


def test_a_description_shows_the_lag(command: Command, topic: str) -> None:
    read(command, topic, "-e")
    command.out("produce", topic, "-p", "1", stdin=lines("de"))
    first, head, *rows = command.out("group", "describe", topic).splitlines()
    assert first == f"group {topic} (classic, Empty, coordinator 1)"
    assert head.split() == [
        "topic",
        "partition",
        "currentOffset",
        "logEndOffset",
        "lag",
        "memberId",
        "host",
        "clientId",
    ]
    assert [row.split()[1:5] for row in rows] == [["0", "3", "3", "0"], ["1", "3", "5", "2"]]


def test_members_are_shown_and_kept_from_harm(command: Command, topic: str, bootstrap: str) -> None:
    with member(bootstrap, topic):
        found = described(command, topic)
        assert (found["state"], found["type"], found["assignor"]) == ("Stable", "classic", "range")
        (only,) = found["members"]
        assert only["assignment"] == {topic: [0, 1]}
        assert only["subscribedTopics"] == [topic]
        assert only["clientId"] == "dohle-cli"
        assert [one["memberId"] for one in found["partitions"]] == [only["memberId"]] * 2
        assert {one["host"] for one in found["partitions"]} == {"/127.0.0.1"}
        _, head, row = command.out("group", "describe", topic, "--members").splitlines()
        assert head.split()[-2:] == ["partitions", "assignment"]
        assert row.split()[-2:] == ["2", f"{topic}:0,1"]
        _, row = command.out("group", "describe", topic, "--state").splitlines()
        assert row.split() == [topic, "classic", "Stable", "range", "1", "1"]
        stable = command.json("group", "list", "--state", "Stable", "--type", "classic")
        assert topic in {one["groupId"] for one in stable}
        arguments = ["reset-offsets", topic, "--all-topics", "--to-earliest"]
        for more in ([], ["--execute"]):
            error = command.error("group", *arguments, *more)
            assert "stop its consumers first" in error
        error = command.error("group", "delete", topic)
        assert "stop its consumers first" in error
        assert "(NON_EMPTY_GROUP)" in error


def test_ctrl_c_commits_what_was_printed_and_leaves(
    command: Command, topic: str, bootstrap: str
) -> None:
    with member(bootstrap, topic) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    assert offsets(command, topic) == [3, 3]
    assert described(command, topic)["state"] == "Empty"


def test_the_list_has_state_and_type(command: Command, topic: str) -> None:
    read(command, topic, "-e")
    rows = {one["groupId"]: one for one in command.json("group", "list")}
    assert rows[topic] == {
        "groupId": topic,
        "type": "classic",
        "state": "Empty",
        "protocolType": "consumer",
        "coordinator": 1,
    }
    head, *_ = command.out("group", "list").splitlines()
    assert head.split() == ["groupId", "type", "state", "protocolType", "coordinator"]
    assert topic not in {one["groupId"] for one in command.json("group", "list", "--state", "Dead")}


def test_without_a_name_all_groups_are_described(command: Command, topic: str) -> None:
    read(command, topic, "-e")
    listed = {one["groupId"] for one in command.json("group", "list")}
    assert {one["groupId"] for one in command.json("group", "describe")} == listed


def test_groups_are_deleted_with_their_offsets(command: Command, topic: str) -> None:
    read(command, topic, "-e")
    assert command.out("group", "delete", topic) == f"{topic}: deleted\n"
    error = command.error("group", "describe", topic)
    assert (
        error
        == f"dohle: error: group {topic} does not exist; `dohle group list` shows all groups\n"
    )
    assert "does not exist" in command.error("group", "delete", topic)
    assert command.json("group", "delete", topic, "--if-exists") == [
        {"groupId": topic, "result": "missing"}
    ]
    assert len(read(command, topic, "-e")) == 6


def reset(command: Command, topic: str, *arguments: str) -> list[int]:
    """Reset the offsets of the topic's group and return what they are then."""
    shown = command.json("group", "reset-offsets", topic, *arguments, "--execute")
    assert all(one["isExecuted"] for one in shown)
    found = offsets(command, topic)
    for one in shown:
        assert found[one["partition"]] == one["newOffset"]
    return found


def test_offsets_are_reset_to_wherever_one_likes(command: Command, topic: str) -> None:
    everything = ("--all-topics",)
    read(command, topic, "-e")
    assert reset(command, topic, *everything, "--to-earliest") == [0, 0]
    assert reset(command, topic, *everything, "--to-latest") == [3, 3]
    assert reset(command, topic, *everything, "--shift-by", "-2") == [1, 1]
    assert reset(command, topic, "--topic", topic, "--to-offset", "2") == [2, 2]
    assert reset(command, topic, "--topic", f"{topic}:1", "--to-offset", "0") == [2, 0]
    assert reset(command, topic, *everything, "--to-datetime", "1999-12-31T23:59") == [0, 0]
    assert reset(command, topic, *everything, "--to-datetime", "2999-01-01T00:00:00Z") == [3, 3]
    assert reset(command, topic, "--topic", f"{topic}:0,1", "--to-earliest") == [0, 0]
    assert len(read(command, topic, "-e")) == 6


def test_without_execute_nothing_changes(command: Command, topic: str) -> None:
    read(command, topic, "-e")
    out, err = command.run("group", "reset-offsets", topic, "--all-topics", "--to-earliest")
    head, *rows = out.splitlines()
    assert head.split() == ["topic", "partition", "currentOffset", "newOffset"]
    assert [row.split() for row in rows] == [[topic, "0", "3", "0"], [topic, "1", "3", "0"]]
    assert "dry run" in err
    assert offsets(command, topic) == [3, 3]


def test_a_group_can_be_given_offsets_before_it_exists(command: Command, topic: str) -> None:
    assert reset(command, topic, "--topic", topic, "--to-latest") == [3, 3]
    assert read(command, topic, "-e") == []


def test_offsets_outside_the_log_are_brought_into_it_with_a_warning(
    command: Command, topic: str
) -> None:
    read(command, topic, "-e")
    _, err = command.run(
        "group", "reset-offsets", topic, "--topic", f"{topic}:0", "--to-offset", "99", "--execute"
    )
    assert f"{topic}-0: offset 99 is not between 0 and 3" in err
    _, err = command.run("group", "reset-offsets", topic, "--all-topics", "--shift-by", "-99")
    assert err.count("dohle: warning:") == 2
    assert offsets(command, topic) == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--topic", "no-such-topic", "--to-earliest"], "there is no topic no-such-topic"),
        (["--all-topics", "--to-earliest"], "has no committed offsets"),
        (["--topic", "{topic}:7", "--to-earliest"], "has 2 partitions, from 0 on, and no 7"),
        (["--topic", "{topic}", "--shift-by", "1"], "no offset for"),
    ],
)
def test_what_cannot_be_reset_is_said(
    command: Command, topic: str, arguments: list[str], expected: str
) -> None:
    filled = [each.replace("{topic}", topic) for each in arguments]
    assert expected in command.error("group", "reset-offsets", f"new-{topic}", *filled)


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "reset-offsets", "g"],
        ["group", "reset-offsets", "g", "--to-earliest"],
        ["group", "reset-offsets", "g", "--all-topics"],
        ["group", "reset-offsets", "g", "--all-topics", "--topic", "t", "--to-earliest"],
        ["group", "reset-offsets", "g", "--all-topics", "--to-earliest", "--to-latest"],
        ["group", "reset-offsets", "g", "--all-topics", "--to-offset", "-1"],
        ["group", "reset-offsets", "g", "--all-topics", "--to-datetime", "yesterday"],
        ["group", "reset-offsets", "g", "--all-topics", "--to-datetime", "1969-01-01"],
        ["group", "reset-offsets", "g", "--all-topics", "--shift-by", "far"],
        ["group", "reset-offsets", "g", "--topic", "t:", "--to-earliest"],
        ["group", "reset-offsets", "g", "--topic", "t:a", "--to-earliest"],
        ["group", "list", "--type", "other"],
        ["group", "delete"],
        ["group", "describe", "g", "--members", "--state"],
    ],
)
def test_a_wrong_command_line_is_not_sent_anywhere(command: Command, arguments: list[str]) -> None:
    _, err = command.run(*arguments, code=2)
    assert "error:" in err
