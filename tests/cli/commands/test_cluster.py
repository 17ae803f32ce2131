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
