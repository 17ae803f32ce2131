"""kafka-consumer-groups and kafka-groups."""

from __future__ import annotations

import pytest

from tests.interop.waiting import wait_until
from tests.jvm.conftest import NewJvm, NewName, NewTopic
from tests.jvm.tools import Tools

_NOBODY = ["-", "-", "-"]


def _fill(tools: Tools, topic: str) -> None:
    """Write two records to partition 0, and two to partition 2 of a topic with four."""
    tools.console_producer(
        *("--topic", topic, "--reader-property", "parse.key=true"), stdin="x\t1\ny\t2\nx\t3\ny\t4\n"
    )


def _read(tools: Tools, topic: str, group: str) -> None:
    ran = tools.console_consumer(
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "4")
    )
    assert sorted(ran.lines) == ["1", "2", "3", "4"]


def _rows(tools: Tools, group: str, *arguments: str) -> list[list[str]]:
    _, *rows = tools.consumer_groups("--describe", "--group", group, *arguments).table
    return sorted(rows)


def test_a_group_without_members_is_listed_and_described(
    tools: Tools, new_topic: NewTopic, new_name: NewName
) -> None:
    topic, group = new_topic(4), new_name("group")
    _fill(tools, topic)
    _read(tools, topic, group)
    assert [group, "Empty"] in tools.consumer_groups("--list", "--state").table
    assert [group, "Classic"] in tools.consumer_groups("--list", "--type").table
    assert [group, "Classic", "consumer"] in tools.groups("--list").table
    assert _rows(tools, group) == [
        [group, topic, str(partition), str(end), str(end), "0", *_NOBODY]
        for partition, end in enumerate([2, 0, 2, 0])
    ]
    assert _rows(tools, group, "--members") == []
    assert _rows(tools, group, "--state") == [[group, tools.bootstrap, "(1)", "-", "Empty", "0"]]


def test_offsets_are_reset_in_every_way(
    tools: Tools, new_topic: NewTopic, new_name: NewName
) -> None:
    topic, group = new_topic(4), new_name("group")
    _fill(tools, topic)
    _read(tools, topic, group)
    base = ["--reset-offsets", "--group", group]
    for arguments, offsets in [
        (["--topic", topic, "--to-earliest"], {0: 0, 1: 0, 2: 0, 3: 0}),
        (["--topic", f"{topic}:0,1", "--to-offset", "1"], {0: 1, 1: 0}),
        (["--topic", topic, "--shift-by", "1"], {0: 2, 1: 0, 2: 1, 3: 0}),
        (["--all-topics", "--to-latest"], {0: 2, 1: 0, 2: 2, 3: 0}),
        (["--all-topics", "--by-duration", "PT1H"], {0: 0, 1: 0, 2: 0, 3: 0}),
        (["--all-topics", "--to-datetime", "2020-01-01T00:00:00.000"], {0: 0, 1: 0, 2: 0, 3: 0}),
        (["--all-topics", "--to-current"], {0: 0, 1: 0, 2: 0, 3: 0}),
    ]:
        rows = tools.consumer_groups(*base, *arguments, "--execute").table
        assert sorted(row for row in rows if row[0] == group) == [
            [group, topic, str(partition), str(offset)] for partition, offset in offsets.items()
        ]
    tools.consumer_groups(*base, "--topic", topic, "--to-latest", "--dry-run")
    assert [row[3] for row in _rows(tools, group)] == ["0", "0", "0", "0"]


def test_a_group_and_its_offsets_are_deleted(
    tools: Tools, new_topic: NewTopic, new_name: NewName
) -> None:
    topic, group = new_topic(4), new_name("group")
    _fill(tools, topic)
    _read(tools, topic, group)
    ran = tools.consumer_groups("--delete-offsets", "--group", group, "--topic", f"{topic}:0,1")
    assert [topic, "0", "Successful"] in ran.table
    assert [row[2] for row in _rows(tools, group)] == ["2", "3"]
    ran = tools.consumer_groups("--delete", "--group", group)
    assert ran.lines == [f"Deletion of requested consumer groups ('{group}') was successful."]
    assert group not in tools.consumer_groups("--list").lines
    assert "GroupIdNotFoundException" in tools.consumer_groups("--delete", "--group", group).out


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_described_with_what_they_hold(
    tools: Tools, new_topic: NewTopic, new_name: NewName, new_jvm: NewJvm, protocol: str
) -> None:
    topic, group = new_topic(4), new_name("group")
    new_jvm().begin("HoldingConsumers", tools.bootstrap, topic, group, protocol, "2")
    wait_until(lambda: [group, "Stable"] in tools.consumer_groups("--list", "--state").table)

    def members() -> list[list[str]]:
        return _rows(tools, group, "--members")

    wait_until(lambda: [row[4] for row in members()] == ["2", "2"])
    assert sorted((row[2], row[3]) for row in members()) == [
        ("/127.0.0.1", "holder-0"),
        ("/127.0.0.1", "holder-1"),
    ]
    strategy = "range" if protocol == "classic" else "uniform"
    assert _rows(tools, group, "--state") == [
        [group, tools.bootstrap, "(1)", strategy, "Stable", "2"]
    ]
    owners = {row[1]: row[3] for row in members()}
    rows = _rows(tools, group)
    assert [row[2] for row in rows] == ["0", "1", "2", "3"]
    assert {row[6]: row[8] for row in rows} == owners
    ran = tools.consumer_groups("--delete", "--group", group)
    assert "GroupNotEmptyException" in ran.out
    ran = tools.consumer_groups(
        *("--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    )
    assert "Assignments can only be reset if the group" in ran.out
