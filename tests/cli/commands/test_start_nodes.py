"""``dohle start --nodes``: one command for a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from dohle.cli.commands.node_properties import read_properties
from dohle.cli.main import main
from dohle.storage.directory.meta_properties import read_meta_properties
from dohle.storage.files import OsFileSystem
from tests.cli.running import Started, dohle
from tests.interop.waiting import wait_until
from tests.ports import free_ports


def test_three_nodes_are_one_cluster_that_stops_and_starts_again(tmp_path: Path) -> None:
    with Started("--nodes", "3", cwd=tmp_path) as started:
        assert started.field("data") == "data/1, data/2, data/3"
        for url in started.field("metrics").split(", "):
            with urlopen(url) as page:
                assert page.status == 200
        first, second, third = started.bootstrap.split(",")
        assert dohle("-b", first, "topic", "create", "t", "--partitions", "6").returncode == 0
        shown = dohle("-b", second, "cluster", "quorum", "--json")
        (quorum,) = map(json.loads, shown.stdout.splitlines())
        assert [one["nodeId"] for one in quorum["replicas"]] == [1, 2, 3]
        listed = dohle("-b", third, "cluster", "brokers", "--json")
        brokers = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [(one["id"], one["isFenced"]) for one in brokers] == [
            (number, False) for number in (1, 2, 3)
        ]
        assert started.stop(signal.SIGINT) == 0
        assert {line[:4] for line in started.log.splitlines()} == {"1 | ", "2 | ", "3 | "}
        for number in (1, 2, 3):
            assert re.search(rf"^{number} \| .*node {number} has stopped$", started.log, re.M)
    found = [read_meta_properties(OsFileSystem(), str(tmp_path / "data" / n)) for n in "123"]
    assert [one.node_id for one in found] == [1, 2, 3]
    assert len({one.cluster_id for one in found}) == 1
    _edit(tmp_path / "data" / "2" / "server.properties", "broker.rack=attic\nnum.partitions=5\n")
    options = ("--log-format", "json", "-X", "num.partitions=7")
    with Started("--nodes", "3", *options, cwd=tmp_path) as started:
        listed = dohle("-b", started.bootstrap, "cluster", "brokers", "--json")
        racks = [json.loads(line)["rack"] for line in listed.stdout.splitlines()]
        assert racks == [None, "attic", None]
        assert b'"name": "t"' in dohle("-b", started.bootstrap, "topic", "list", "--json").stdout
        os.kill(_pid_of_node(started, 2), signal.SIGKILL)
        wait_until(lambda: "node 2 was ended by SIGKILL" in started.log)
        assert dohle("-b", started.bootstrap, "topic", "create", "u").returncode == 0
        assert started.stop() == 1, "one of the nodes did not stop on request"
        lines = [json.loads(line) for line in started.log.splitlines()]
        assert {line["node"] for line in lines} == {1, 2, 3}
        command = "dohle start --config data/2/server.properties " + " ".join(options)
        assert any(f"`{command}` starts it again" in line["message"] for line in lines)
    kept = read_properties(str(tmp_path / "data" / "2" / "server.properties"))
    assert (kept["broker.rack"], kept["num.partitions"]) == ("attic", "5")


def _edit(file: Path, more: str) -> None:
    file.write_text(file.read_text() + more)


def _pid_of_node(started: Started, number: int) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            command = folder.joinpath("cmdline").read_text()
        except OSError:
            continue
        if parent == str(started.pid) and f"data/{number}/server.properties" in command:
            return int(folder.name)
    raise AssertionError("there is no such node")


def test_a_node_that_cannot_start_ends_all(tmp_path: Path) -> None:
    (taken,) = free_ports(1)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", taken))
        listener.listen()
        done = dohle("start", "--nodes", "2", "--listener", f"127.0.0.1:{taken - 1}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{taken}" in done.stderr.decode()
    assert b"dohle: node 2 ended with 1\n" in done.stderr
    assert b"not all nodes have started: the others stop" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--config", "x.properties"], "--config is for one node"),
        (["--node-id", "7"], "--node-id is for one node"),
        (["--advertised", "example.org"], "--advertised is for one node"),
        (["--data", "a", "--data", "b"], "takes one --data"),
        (["-X", "log.dirs=/x"], "-X log.dirs: each of the nodes has its own"),
        (["--listener", "0.0.0.0:9092"], "that clients can be told"),
        (["--nodes", "10"], "no more than 9"),
        (["--listener", "127.0.0.1:65000"], "ports up to 65554 are needed"),
        (["-X", "num.partitions=none"], "num.partitions"),
    ],
)
def test_what_is_for_one_node_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["start", "--nodes", "3", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_data_of_other_nodes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = tmp_path / "single"
    assert main(["storage", "format", "--data", str(single)]) == 0
    assert main(["start", "--nodes", "3", "--data", str(single)]) == 1
    assert "has the data of a single node" in capsys.readouterr().err
    several = tmp_path / "several"
    for number in "12":
        folder = str(several / number)
        assert main(["storage", "format", "--data", folder, "--node-id", number]) == 0
        (several / number / "__cluster_metadata-0").mkdir()
        (several / number / "__cluster_metadata-0" / "quorum-state").touch()
    assert main(["start", "--nodes", "3", "--data", str(several)]) == 1
    assert "has a cluster of other nodes (1, 2)" in capsys.readouterr().err


def test_a_folder_of_nodes_does_not_become_a_node_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in "123":
        assert main(["storage", "format", "--data", f"data/{number}", "--node-id", number]) == 0
    (tmp_path / "data" / "1" / "server.properties").touch()
    capsys.readouterr()
    assert main(["start"]) == 1
    assert capsys.readouterr().err == (
        "dohle: error: data has the nodes 1, 2, 3 of a cluster: start it with `dohle start --nodes "
        "3`, one of them with --config data/1/server.properties, or choose another folder with "
        "--data\n"
    )
    assert main(["start", "--data", str(tmp_path / "data")]) == 1
    assert f"`dohle start --nodes 3 --data {tmp_path / 'data'}`" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["1", "2", "3"]


def _became_voter_of_three(folder: Path) -> bytes:
    assert main(["storage", "format", "--data", str(folder), "--node-id", folder.name]) == 0
    (folder / "__cluster_metadata-0").mkdir()
    voters = ",".join(f'{{"voterId":{each}}}' for each in (1, 2, 3))
    state = (
        '{"clusterId":"","leaderId":2,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        f'"currentVoters":[{voters}],"data_version":0}}'
    )
    (folder / "__cluster_metadata-0" / "quorum-state").write_text(state)
    return state.encode()


def test_a_node_of_three_does_not_decide_alone_when_its_configuration_is_forgotten(
    tmp_path: Path,
) -> None:
    """What it committed alone would be lost when it meets the others again."""
    states = {n: _became_voter_of_three(tmp_path / n) for n in "123"}
    (tmp_path / "1" / "server.properties").touch()
    folder, file = tmp_path / "1", tmp_path / "1" / "__cluster_metadata-0" / "quorum-state"
    alone = ("start", "--data", str(folder), "--listener", "127.0.0.1:0", "--log-level", "error")
    done = dohle(*alone)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == (
        f"dohle: error: {file} says that the voters of the quorum are 1, 2, 3, but the "
        "configuration has the voter 1, whose decisions the others would not know: start this "
        f"node with --config {folder}/server.properties, or all with --nodes 3 --data {tmp_path}; "
        "or, to change the voters for good, stop all nodes, give each the new "
        "controller.quorum.voters, and remove this file from each"
    )
    assert file.read_bytes() == states["1"]
    # Whoever wants that says so.
    file.unlink()
    with Started("--data", str(folder), cwd=tmp_path) as started:
        assert started.stop() == 0
