"""``dohle acl``: what is listed, added and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.core.config.authorizer import STANDARD_AUTHORIZER
from dohle.testing.broker import Broker
from tests.cli.running import Command

_ADMIN = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The address of a broker with an authorizer, whose clients may do everything."""
    with Broker(_ADMIN) as broker:
        yield broker.bootstrap


@pytest.fixture
def acl(
    guarded: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Command:
    """Commands against it."""
    command = Command(guarded, capsys, monkeypatch, tmp_path)
    command.out("acl", "remove", "--all")
    return command


def _rows(acl: Command, *arguments: str) -> set[tuple[str, ...]]:
    names = ("resourceType", "resourceName", "patternType", "principal", "operation")
    return {tuple(row[name] for name in names) for row in acl.json("acl", "list", *arguments)}


def test_what_was_added_is_listed_until_it_is_removed(acl: Command) -> None:
    who = ("--principal", "User:alice")
    added = acl.out("acl", "add", *who, "--operation", "read", "--topic", "orders")
    shown = [line.split() for line in added.splitlines()]
    assert shown == [
        [
            "resourceType",
            "resourceName",
            "patternType",
            "principal",
            "host",
            "operation",
            "permissionType",
        ],
        ["TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"],
    ]
    assert acl.out("acl", "list") == added
    assert acl.out("acl", "remove", *who) == added
    assert acl.out("acl", "list") == ""


def test_json_has_one_object_for_each_acl(acl: Command) -> None:
    given = ("--principal", "User:eve", "--host", "10.0.0.1", "--operation", "all", "--deny")
    assert acl.json("acl", "add", *given, "--topic", "logs-", "--prefixed") == [
        {
            "resourceType": "TOPIC",
            "resourceName": "logs-",
            "patternType": "PREFIXED",
            "principal": "User:eve",
            "host": "10.0.0.1",
            "operation": "ALL",
            "permissionType": "DENY",
        }
    ]


def test_a_producer_and_a_consumer_get_what_they_need(acl: Command) -> None:
    who = ("--principal", "User:app", "--topic", "orders")
    acl.out("acl", "add", *who, "--producer", "--transactional-id", "payments")
    acl.out("acl", "add", *who, "--consumer", "--group", "billing")
    assert {(row[0], row[4]) for row in _rows(acl)} == {
        ("TOPIC", "READ"),
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("GROUP", "READ"),
    }


def test_match_finds_every_pattern_that_applies(acl: Command) -> None:
    for arguments in (("--topic", "orders"), ("--topic", "ord", "--prefixed"), ("--topic", "*")):
        acl.out("acl", "add", "--principal", "User:a", "--operation", "read", *arguments)
    acl.out("acl", "add", "--principal", "User:a", "--operation", "alter", "--cluster")
    assert len(_rows(acl)) == 4
    assert {row[1] for row in _rows(acl, "--topic", "orders")} == {"orders"}
    assert {row[1] for row in _rows(acl, "--topic", "orders", "--match")} == {"orders", "ord", "*"}
    assert {row[1] for row in _rows(acl, "--operation", "alter")} == {"kafka-cluster"}


def test_a_wrong_command_line_says_what_is_missing(acl: Command) -> None:
    _, error = acl.run("acl", "remove", code=2)
    assert "say which ACLs" in error
    _, error = acl.run("acl", "add", "--principal", "User:a", "--operation", "read", code=2)
    assert "name a resource" in error
    _, error = acl.run("acl", "add", "--principal", "User:a", "--topic", "t", code=2)
    assert "say what may be done" in error


def test_a_principal_without_a_type_is_refused(acl: Command) -> None:
    given = ("--principal", "alice", "--operation", "read", "--topic", "orders")
    _, error = acl.run("acl", "add", *given, code=1)
    assert "no colon" in error


def test_without_an_authorizer_there_are_no_acls(command: Command) -> None:
    error = command.error("acl", "list")
    assert "SECURITY_DISABLED" in error


def test_operations_may_be_written_as_by_kafkas_tools(acl: Command) -> None:
    who = ("--principal", "User:alice")
    for text in ("Read", "DESCRIBE_CONFIGS", "DescribeConfigs"):
        acl.out("acl", "add", *who, "--operation", text, "--topic", "orders")
    assert {row[-1] for row in _rows(acl)} == {"READ", "DESCRIBE_CONFIGS"}
    assert {row[-1] for row in _rows(acl, "--operation", "Read")} == {"READ"}


def test_an_operation_that_does_not_exist_is_refused(acl: Command) -> None:
    what = ("--principal", "User:a", "--operation", "reed", "--topic", "t")
    _, err = acl.run("acl", "add", *what, code=2)
    assert "there is no reed: choose from all, read, write" in err
