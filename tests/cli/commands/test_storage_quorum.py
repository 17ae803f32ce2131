"""How the quorum of a formatted node begins (R100-R103), by Kafka's rules and in Kafka's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.ids import BrokerId
from dohle.core.uuid import uuid_from_text
from dohle.raft.membership import Membership, Voter, VoterEndpoint
from dohle.server.quorum.snapshots import SnapshotId, read_control_records
from dohle.storage.directory.meta_properties import MetaProperties, read_meta_properties
from dohle.storage.files import OsFileSystem

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
ONE, TWO = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
INITIAL = f"2@b.example:9094:{TWO},1@[::1]:9093:{ONE}"
VOTERS = (
    Voter(BrokerId(1), uuid_from_text(ONE), (VoterEndpoint("CONTROLLER", "::1", 9093),)),
    Voter(BrokerId(2), uuid_from_text(TWO), (VoterEndpoint("CONTROLLER", "b.example", 9094),)),
)
SERVERS = "controller.quorum.bootstrap.servers=a.example:9093,b.example:9094"
STATIC = "controller.quorum.voters=1@a.example:9093,2@b.example:9094"


def properties(folder: Path, node_id: int, quorum: str, roles: str = "controller") -> Path:
    """Write the file of a node."""
    listeners = {
        "broker": "PLAINTEXT://:9092",
        "controller": "CONTROLLER://:9093",
        "broker,controller": "PLAINTEXT://:9092,CONTROLLER://:9093",
    }
    path = folder / f"{node_id}.properties"
    path.write_text(
        f"process.roles={roles}\nnode.id={node_id}\n{quorum}\nlisteners={listeners[roles]}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={folder}/data\n"
        f"metadata.log.dir={folder}/metadata\n"
    )
    return path


def format_node(file: Path, *options: str) -> int:
    return main(["storage", "format", "-c", str(file), "-t", CLUSTER, *options])


def identity(folder: Path) -> MetaProperties:
    return read_meta_properties(OsFileSystem(), str(folder))


def first_snapshot(folder: Path) -> Path:
    return folder / "__cluster_metadata-0" / SnapshotId(0, 0).file_name


def membership(folder: Path) -> Membership:
    return Membership().after(read_control_records(OsFileSystem(), str(first_snapshot(folder))))


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_initial_controllers_are_written_to_every_node(tmp_path: Path, node_id: int) -> None:
    """R101: nodes that are not in the list get the checkpoint too; a voter has its listed id."""
    assert format_node(properties(tmp_path, node_id, SERVERS), "-I", INITIAL) == 0
    metadata, data = tmp_path / "metadata", tmp_path / "data"
    assert membership(metadata) == Membership(1, VOTERS)
    assert not first_snapshot(data).exists()
    listed = {1: VOTERS[0].directory_id, 2: VOTERS[1].directory_id}
    found = identity(metadata)
    assert (found.cluster_id, found.node_id) == (CLUSTER, node_id)
    assert found.directory_id not in (None, identity(data).directory_id)
    assert node_id == 3 or found.directory_id == listed[node_id]
    assert found.directory_id not in listed.values() or node_id != 3


def test_a_broker_gets_the_initial_controllers_too(tmp_path: Path) -> None:
    """R101: it needs none, but may be formatted like all others."""
    file = properties(tmp_path, 7, SERVERS, "broker")
    assert format_node(file, "--initial-controllers", INITIAL) == 0
    assert membership(tmp_path / "metadata") == Membership(1, VOTERS)


@pytest.mark.parametrize(
    ("roles", "quorum", "options"),
    [
        ("controller", SERVERS, ["--no-initial-controllers"]),
        ("broker", SERVERS, []),
        ("broker", SERVERS, ["-f", "kraft.version=1"]),
        ("broker", STATIC.replace("1@", "9@"), ["-f", "kraft.version=0"]),
        ("controller", STATIC, []),
        ("controller", STATIC, ["-f", "kraft.version=0"]),
        ("broker,controller", STATIC, []),
    ],
)
def test_other_nodes_learn_the_voters_elsewhere(
    tmp_path: Path, roles: str, quorum: str, options: list[str]
) -> None:
    """R100, R101: from the leader, or from their own file."""
    assert format_node(properties(tmp_path, 1, quorum, roles), *options) == 0
    assert not first_snapshot(tmp_path / "metadata").exists()
    assert (tmp_path / "metadata" / "bootstrap.checkpoint").exists()


@pytest.mark.parametrize(
    ("roles", "quorum", "options", "reason"),
    [
        (
            "controller",
            SERVERS,
            [],
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers.",
        ),
        (
            "controller",
            STATIC,
            ["--standalone"],
            "You cannot specify controller.quorum.voters and format the node with "
            "--initial-controllers or --standalone.",
        ),
        ("controller", STATIC, ["-I", INITIAL], "You cannot specify controller.quorum.voters"),
        ("broker", SERVERS, ["-s"], "You can only use --standalone on a controller."),
        (
            "controller",
            SERVERS,
            ["-N", "-f", "kraft.version=0"],
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty",
        ),
        (
            "controller",
            STATIC,
            ["-f", "kraft.version=1"],
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty",
        ),
        ("controller", SERVERS, ["-I", ","], "No voters given."),
        (
            "controller",
            SERVERS,
            ["-I", f"1@a:1:{ONE},1@b:1:{TWO}"],
            "Node id 1 was specified more than once.",
        ),
        ("controller", SERVERS, ["-I", "a:1"], "No @ found in dynamic voter string."),
        ("controller", SERVERS, ["-I", "x@a:1"], "Failed to parse node id in dynamic voter"),
        ("controller", SERVERS, ["-I", "1@a"], "No colon following hostname could be found."),
        ("controller", SERVERS, ["-I", "1@[a:1"], "no right bracket was found."),
        ("controller", SERVERS, ["-I", "1@[a]1"], "Port section must start with a colon."),
        ("controller", SERVERS, ["-I", "1@:1:x"], "No hostname found after node id."),
        ("controller", SERVERS, ["-I", "1@a:1"], "No colon following port could be found."),
        ("controller", SERVERS, ["-I", f"1@a:x:{ONE}"], "Failed to parse port in dynamic voter"),
        ("controller", SERVERS, ["-I", f"1@a:65536:{ONE}"], "Invalid port 65536 in dynamic voter"),
        ("controller", SERVERS, ["-I", "1@a:1:one"], "Failed to parse directory ID in dynamic"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    roles: str,
    quorum: str,
    options: list[str],
    reason: str,
) -> None:
    """R101."""
    assert format_node(properties(tmp_path, 1, quorum, roles), *options) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_only_one_way_to_begin_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = properties(tmp_path, 1, SERVERS)
    assert format_node(file, "--standalone", "--no-initial-controllers") == 2
    assert "not allowed with" in capsys.readouterr().err


def test_nodes_of_one_cluster_need_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = properties(tmp_path, 1, SERVERS)
    assert main(["storage", "format", "-c", str(file), "-I", INITIAL]) == 2
    assert "You must specify the cluster id" in capsys.readouterr().err
