"""``kafka-storage format`` and ``dohle storage format`` leave the same, and refuse the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.raft.membership import Membership
from dohle.server.quorum.snapshots import SnapshotId, read_control_records, read_snapshot
from dohle.storage.directory.meta_properties import read_meta_properties
from dohle.storage.files import OsFileSystem
from tests.jvm.jvm import Jvm

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
INITIAL = "2@b:9094:MvDxzVmcRsaTz33bUuRU6A,1@a:9093:JEXY6aqzQY-32P5TStzaFg"
SERVERS = "controller.quorum.bootstrap.servers=a:9093,b:9094"
STATIC = "controller.quorum.voters=1@a:9093,2@b:9094"
#: What Kafka finalizes by itself and dohle does not have.
FEATURES = ["-f", "share.version=1", "-f", "streams.version=1"]
LISTENERS = {"broker": "PLAINTEXT://h:9092", "controller": "CONTROLLER://h:9093"}


def properties(folder: Path, roles: str, node_id: int, quorum: str) -> Path:
    folder.mkdir()
    path = folder / "node.properties"
    path.write_text(
        f"process.roles={roles}\nnode.id={node_id}\n{quorum}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners={','.join(LISTENERS[role] for role in roles.split(','))}\n"
        f"log.dirs={folder}/one,{folder}/two\nmetadata.log.dir={folder}/metadata\n"
    )
    return path


def kafka_format(jvm: Jvm, file: Path, *options: str) -> int:
    command = ("format", "-c", str(file), "-t", CLUSTER, *options)
    return jvm.run("kafka.tools.StorageTool", *command).code


def dohle_format(file: Path, *options: str) -> int:
    return main(["storage", "format", "-c", str(file), "-t", CLUSTER, *FEATURES, *options])


def left(folder: Path, *, is_random: bool) -> dict[str, Any]:
    """Return what was written, but for the time and the ids that are drawn."""
    fs = OsFileSystem()
    found: dict[str, Any] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = str(path.relative_to(folder))
        if path.name == "meta.properties":
            read = read_meta_properties(fs, str(path.parent))
            is_voter = path.parent.name == "metadata" and not is_random
            found[name] = (read.cluster_id, read.node_id, is_voter and read.directory_id)
        elif path.name == SnapshotId(0, 0).file_name:
            members = Membership().after(read_control_records(fs, str(path)))
            found[name] = (
                members.kraft_version,
                [
                    (one.id, one.endpoints, one.kraft_versions, is_random or one.directory_id)
                    for one in members.voters
                ],
            )
        elif path.suffix == ".checkpoint":
            found[name] = read_snapshot(fs, str(path))
    return found


@pytest.mark.parametrize(
    ("roles", "node_id", "quorum", "options"),
    [
        ("controller", 1, SERVERS, ["--initial-controllers", INITIAL]),
        ("broker,controller", 2, SERVERS, ["-I", INITIAL]),
        ("controller", 1, SERVERS, ["--standalone"]),
        ("broker", 3, STATIC, []),
    ],
)
def test_both_write_the_same(
    jvm: Jvm, tmp_path: Path, roles: str, node_id: int, quorum: str, options: list[str]
) -> None:
    """R101, R103."""
    ours, theirs = tmp_path / "dohle", tmp_path / "kafka"
    assert dohle_format(properties(ours, roles, node_id, quorum), *options) == 0
    assert kafka_format(jvm, properties(theirs, roles, node_id, quorum), *options) == 0
    is_random = INITIAL not in options
    found = left(theirs, is_random=is_random)
    assert left(ours, is_random=is_random) == found
    assert sum(name.endswith("bootstrap.checkpoint") for name in found) == 3


@pytest.mark.parametrize(
    ("roles", "quorum", "options"),
    [
        ("controller", SERVERS, []),
        ("controller", STATIC, ["--standalone"]),
        ("broker", SERVERS, ["--standalone"]),
        ("controller", SERVERS, ["-N", "-f", "kraft.version=0"]),
        ("controller", STATIC, ["-f", "kraft.version=1"]),
        ("controller", SERVERS, ["-I", "1@a:1"]),
    ],
)
def test_both_refuse_the_same(
    jvm: Jvm, tmp_path: Path, roles: str, quorum: str, options: list[str]
) -> None:
    """R101."""
    ours = properties(tmp_path / "dohle", roles, 1 if roles == "controller" else 3, quorum)
    theirs = properties(tmp_path / "kafka", roles, 1 if roles == "controller" else 3, quorum)
    assert kafka_format(jvm, theirs, *options) == 1
    assert dohle_format(ours, *options) == 1
