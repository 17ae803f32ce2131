"""``dohle quota``: what is listed, set and removed."""

from __future__ import annotations

import pytest

from tests.cli.running import Command


@pytest.fixture
def quota(command: Command) -> Command:
    for row in command.json("quota", "list"):
        whom = [
            option
            for column, kind in (("user", "user"), ("clientId", "client-id"), ("ip", "ip"))
            if row[column]
            for option in (
                (f"--default-{kind}",) if row[column] == "<default>" else (f"--{kind}", row[column])
            )
        ]
        command.out("quota", "remove", row["key"], *whom)
    return command


def test_what_was_set_is_listed_until_it_is_removed(quota: Command) -> None:
    done = quota.out("quota", "set", "producer_byte_rate=1048576", "--user", "alice")
    shown = [line.split() for line in done.splitlines()]
    assert shown[0] == ["user", "clientId", "ip", "key", "value"]
    assert shown[1] == ["alice", "producer_byte_rate", "1048576"]
    assert quota.out("quota", "list") == done
    assert quota.out("quota", "remove", "--user", "alice") == done
    assert quota.out("quota", "list") == ""


def test_json_has_one_object_for_each_quota(quota: Command) -> None:
    pair = ("--user", "alice", "--default-client-id")
    quota.out("quota", "set", "producer_byte_rate=5", "consumer_byte_rate=6", *pair)
    quota.out("quota", "set", "consumer_byte_rate=7", "--client-id", "app")
    nobody = {"user": "", "clientId": "", "ip": ""}
    of_pair = {**nobody, "user": "alice", "clientId": "<default>"}
    assert quota.json("quota", "list", "--user", "alice") == [
        {**of_pair, "key": "consumer_byte_rate", "value": 6},
        {**of_pair, "key": "producer_byte_rate", "value": 5},
    ]
    of_client = {**nobody, "clientId": "app", "key": "consumer_byte_rate", "value": 7}
    assert quota.json("quota", "list", "--client-id", "app") == [of_client]
    assert len(quota.json("quota", "list")) == 3
    # What is removed of the pair is nobody else's.
    assert len(quota.json("quota", "remove", "producer_byte_rate", *pair)) == 1
    assert len(quota.json("quota", "list")) == 2


def test_addresses_have_quotas_of_connections(quota: Command) -> None:
    quota.out("quota", "set", "connection_creation_rate=500", "--default-ip")
    quota.out("quota", "set", "connection_creation_rate=20", "--ip", "10.0.0.1")
    found = {row["ip"]: row["value"] for row in quota.json("quota", "list")}
    assert found == {"<default>": 500, "10.0.0.1": 20}
    error = quota.error("quota", "set", "connection_creation_rate=20", "--ip", "no host")
    assert "not a valid IP" in error


def test_what_is_no_quota_is_refused_and_says_why(quota: Command) -> None:
    error = quota.error("quota", "set", "producer_byte_rate=0", "--user", "alice")
    assert "must be greater than 0" in error
    error = quota.error("quota", "set", "no_such_key=1", "--user", "alice")
    assert "no_such_key" in error


def test_a_wrong_command_line_says_what_is_missing(quota: Command) -> None:
    _, error = quota.run("quota", "set", "producer_byte_rate=5", code=2)
    assert "say whose quotas" in error
    _, error = quota.run("quota", "set", "producer_byte_rate", "--user", "a", code=2)
    assert "is not KEY=NUMBER" in error


def test_removing_what_is_not_there_changes_nothing(quota: Command) -> None:
    assert quota.out("quota", "remove", "--user", "nobody") == ""
