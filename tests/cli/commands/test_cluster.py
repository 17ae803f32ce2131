from __future__ import annotations

import socket

import pytest

from dohle.cli.main import main
from tests.cli.running import Command


def test_the_cluster_tells_who_it_is(command: Command, bootstrap: str) -> None:
    (found,) = command.json("cluster", "info")
    assert found.keys() == {"clusterId", "controllerId", "brokers", "features"}
    assert found["controllerId"] == 1
    host, _, port = bootstrap.rpartition(":")
    assert found["brokers"] == [
        {"id": 1, "host": host, "port": int(port), "rack": None, "isFenced": False}
    ]
    levels = {one["feature"]: one for one in found["features"]}
    assert levels["metadata.version"]["finalized"] >= levels["metadata.version"]["minSupported"]
    shown = command.out("cluster", "info")
    assert f"clusterId:    {found['clusterId']}\n" in shown
    assert "\nbrokers\n" in shown


def test_the_requests_that_are_answered_are_shown_on_demand(command: Command) -> None:
    (found,) = command.json("cluster", "info", "-v")
    apis = {one["key"]: one["api"] for one in found["apis"]}
    assert {0: "Produce", 1: "Fetch", 3: "Metadata", 18: "ApiVersions"}.items() <= apis.items()


def test_options_may_stand_before_or_behind_the_command(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (
        ["-b", bootstrap, "--json", "cluster", "info"],
        ["cluster", "info", "--json", "-b", bootstrap],
        ["--json", "-b", "nowhere:1", "cluster", "info", "-b", bootstrap],
    ):
        assert main(arguments) == 0
        assert capsys.readouterr().out.startswith('{"clusterId": ')
    monkeypatch.setenv("DOHLE_BOOTSTRAP", bootstrap)
    assert main(["cluster", "info"]) == 0


def test_a_broker_that_is_not_there_is_told_at_once_and_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["-b", address, "topic", "list"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dohle: error: no broker can be reached: ")
    assert address in err
    assert "start a broker with `dohle start`" in err
    assert err.count("\n") == 1


def test_an_address_that_is_none_is_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["-b", "host:port", "topic", "list"]) == 2
    assert "'port' is not a port" in capsys.readouterr().err


def test_the_quorum_is_described(command: Command) -> None:
    (found,) = command.json("cluster", "quorum")
    assert found["leaderId"] == 1
    assert found["highWatermark"] > 0
    (only,) = found["replicas"]
    assert (only["nodeId"], only["status"], only["lag"]) == (1, "Leader", 0)
    assert only["logEndOffset"] >= found["highWatermark"]
    shown = command.out("cluster", "quorum")
    assert "leaderId:      1\n" in shown
    assert "Leader" in shown
    assert "0 ms ago" in shown


def test_the_voters_of_a_static_quorum_stay(command: Command) -> None:
    """R105: kraft.version 0."""
    _, err = command.run("cluster", "remove-controller", "1", code=1)
    assert "the voters of this quorum are in the configuration of its nodes" in err
    voter = "2@127.0.0.1:9093:JEXY6aqzQY-32P5TStzaFg"
    _, err = command.run("cluster", "add-controller", voter, code=1)
    assert "(UNSUPPORTED_VERSION)" in err


def test_brokers_are_listed(command: Command, bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    assert command.json("cluster", "brokers") == [
        {"id": 1, "host": host, "port": int(port), "rack": None, "isFenced": False}
    ]
    assert command.out("cluster", "brokers").split()[:2] == ["id", "host"]


def test_a_broker_that_is_not_registered_is_not_unregistered(command: Command) -> None:
    out, err = command.run("cluster", "unregister", "77", code=1)
    assert out == ""
    assert err.startswith("dohle: error: broker 77 cannot be unregistered")
    assert "(BROKER_ID_NOT_REGISTERED)" in err


def test_a_broker_that_is_alive_and_has_replicas_is_not_unregistered(command: Command) -> None:
    command.out("topic", "create", "counts-on-it", "--partitions", "2")
    _, err = command.run("cluster", "unregister", "1", code=1)
    assert err.startswith("dohle: error: broker 1 is alive and has replicas of ")
    assert "`dohle cluster reassign plan --remove 1`" in err
    assert "--force" in err
    assert [row["id"] for row in command.json("cluster", "brokers")] == [1]


def test_levels_of_features_are_shown_and_checked(command: Command) -> None:
    rows = {row["feature"]: row for row in command.json("cluster", "features")}
    level = rows["metadata.version"]["finalized"]
    assert rows["metadata.version"].keys() == {
        *("feature", "finalized", "minSupported", "maxSupported")
    }
    assert command.json("cluster", "features", "--upgrade", f"metadata.version={level}") == [
        {"feature": "metadata.version", "level": level, "result": "done"}
    ]
    checked = ["--downgrade", f"metadata.version={level - 1}", "--dry-run"]
    assert command.json("cluster", "features", *checked)[0]["result"] == "possible"
    assert command.json("cluster", "features")[0] == rows[min(rows)], "nothing has changed"
    _, err = command.run("cluster", "features", "--upgrade", "metadata.version=9999", code=1)
    assert "(INVALID_UPDATE_VERSION)" in err or "(FEATURE_UPDATE_FAILED)" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["features", "--unsafe"], "--unsafe is for --downgrade"),
        (["features", "--dry-run"], "--dry-run is for --upgrade and --downgrade"),
        (["features", "--upgrade", "a=1", "--downgrade", "a=1"], "not allowed with"),
        (["features", "--upgrade", "a"], "is not of the form name=value"),
        (["elect"], "name the topics whose leaders are to be elected, or pass --all"),
        (["elect", "--all", "t"], "name the topics whose leaders are to be elected, or pass --all"),
        (["unregister", "x"], "is not a number"),
        (["add-controller"], "name the controller as ID@HOST:PORT:DIRECTORY"),
        (["add-controller", "2@h:1"], "No colon following port"),
        (["add-controller", "-c", "x", "--listener-name", "C"], "leave out --listener-name"),
        (["remove-controller", "1", "--directory-id", "x"], "--directory-id"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    command: Command, arguments: list[str], reason: str
) -> None:
    _, err = command.run("cluster", *arguments, code=2)
    assert reason in err


def test_leaders_are_elected_where_that_is_needed(command: Command) -> None:
    topic = "to-be-elected"
    command.out("topic", "create", topic, "--partitions", "3")
    assert command.json("cluster", "elect", f"{topic}:0,2") == [
        {"topic": topic, "partition": partition, "result": "not needed"} for partition in (0, 2)
    ]
    assert "not needed" in command.out("cluster", "elect", topic)
    assert command.json("cluster", "elect", "--all") == [], "as in Kafka, only what was needed"
    _, err = command.run("cluster", "elect", "there-is-none", code=1)
    assert "there is no topic there-is-none" in err
