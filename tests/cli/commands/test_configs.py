from __future__ import annotations

import pytest

from tests.cli.running import Command


def values(command: Command, *arguments: str) -> dict[str, object]:
    rows = command.json("config", "describe", *arguments)
    found = {row["name"]: row["value"] for row in rows}
    # A new cluster has set it for all brokers, since eligible leaders depend on it.
    assert found.pop("min.insync.replicas") == "1"
    return found


def test_only_what_was_set_is_shown_unless_all_is_asked_for(command: Command) -> None:
    command.out("topic", "create", "set", "--config", "retention.ms=1000")
    shown = command.out("config", "describe", "topic", "set").splitlines()
    assert [line.split() for line in shown] == [
        ["name", "value", "source", "isReadOnly", "hasEffect"],
        ["min.insync.replicas", "1", "DYNAMIC_DEFAULT_BROKER_CONFIG", "false", "true"],
        ["retention.ms", "1000", "DYNAMIC_TOPIC_CONFIG", "false", "true"],
    ]
    everything = values(command, "topic", "set", "--all")
    assert everything["retention.ms"] == "1000"
    assert everything["cleanup.policy"] == "delete"


def test_what_has_no_effect_says_so_and_why(command: Command) -> None:
    lines = command.out("config", "describe", "broker", "1", "--all").splitlines()
    told = [line for line in lines if line.startswith("no effect, because this limit")]
    assert told == [
        "no effect, because this limit is not enforced yet: max.connection.creation.rate, "
        "max.connections.per.ip.overrides",
    ]
    effects = {
        row["name"]: row["hasEffect"]
        for row in command.json("config", "describe", "broker", "1", "--all")
    }
    assert effects["log.retention.ms"]
    assert not effects["max.connection.creation.rate"]


def test_configs_are_set_deleted_appended_and_subtracted(command: Command) -> None:
    command.out("topic", "create", "changes", "--config", "retention.ms=1000")
    of = ("topic", "changes")
    change = ("--set", "segment.ms=5000", "--delete", "retention.ms")
    assert command.out("config", "alter", *of, *change) == "topic changes: altered\n"
    assert values(command, *of) == {"segment.ms": "5000"}
    command.out("config", "alter", *of, "--append", "cleanup.policy=compact")
    assert values(command, *of)["cleanup.policy"] == "delete,compact"
    command.out("config", "alter", *of, "--subtract", "cleanup.policy=delete")
    assert values(command, *of)["cleanup.policy"] == "compact"


def test_validating_changes_nothing(command: Command) -> None:
    command.out("topic", "create", "stays")
    shown = command.json(
        "config", "alter", "topic", "stays", "--set", "segment.ms=5000", "--validate-only"
    )
    assert shown == [{"kind": "topic", "name": "stays", "result": "valid"}]
    assert values(command, "topic", "stays") == {}


def test_a_wrong_value_is_refused_by_name(command: Command) -> None:
    command.out("topic", "create", "refuses")
    error = command.error("config", "alter", "topic", "refuses", "--set", "segment.ms=soon")
    assert "soon" in error
    assert "segment.ms" in error
    assert "(INVALID_CONFIG)" in error


def test_synonyms_and_documentation_are_shown_on_demand(command: Command) -> None:
    command.out("topic", "create", "explained", "--config", "retention.ms=1000")
    rows = command.json("config", "describe", "topic", "explained", "--synonyms", "--docs")
    (row,) = (each for each in rows if each["name"] == "retention.ms")
    assert row["type"] == "LONG"
    assert row["documentation"]
    assert row["synonyms"][0] == {
        "name": "retention.ms",
        "value": "1000",
        "source": "DYNAMIC_TOPIC_CONFIG",
    }
    shown = command.out("config", "describe", "topic", "explained", "--synonyms", "--docs")
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in shown
    assert "\nretention.ms: " in shown


def test_a_broker_and_all_brokers_have_configs(command: Command) -> None:
    assert values(command, "broker", "1")["node.id"] == "1"
    command.out("config", "alter", "broker", "1", "--set", "max.connections=777")
    assert values(command, "broker", "1")["max.connections"] == "777"
    command.out("config", "alter", "broker", "1", "--delete", "max.connections")
    assert "max.connections" not in values(command, "broker", "1")
    shown = command.out("config", "alter", "broker", "--default", "--set", "max.connections=778")
    assert shown == "broker (default): altered\n"
    assert values(command, "broker", "--default") == {"max.connections": "778"}
    command.out("config", "alter", "broker", "--default", "--delete", "max.connections")
    assert values(command, "broker", "--default") == {}


def test_what_cannot_change_while_running_is_refused(command: Command) -> None:
    error = command.error("config", "alter", "broker", "1", "--set", "log.dirs=/elsewhere")
    assert "log.dirs" in error


def test_a_topic_that_is_not_there_has_no_configs(command: Command) -> None:
    assert "(UNKNOWN_TOPIC_OR_PARTITION)" in command.error("config", "describe", "topic", "nowhere")


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "topic"],
        ["describe", "topic", "x", "--default"],
        ["describe", "broker"],
        ["describe", "broker", "1", "--default"],
        ["describe", "broker", "one"],
        ["alter", "topic", "x"],
    ],
)
def test_a_resource_that_makes_no_sense_is_a_wrong_command_line(
    command: Command, arguments: list[str]
) -> None:
    command.error("config", *arguments, code=2)
