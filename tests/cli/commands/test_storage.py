from __future__ import annotations

import json
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.ids import BrokerId
from dohle.core.uuid import uuid_from_text
from dohle.raft.membership import Membership, Voter, VoterEndpoint
from dohle.server.quorum.snapshots import SnapshotId, read_control_records, read_snapshot
from dohle.storage.directory.meta_properties import read_meta_properties
from dohle.storage.files import OsFileSystem
from tests.cli.dump.files import CLUSTER_ID, TOPIC_ID_TEXT, Node, orders, records_of
from tests.cli.running import Started


def snapshot_of(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_directories_get_one_identity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "deep" / "one", tmp_path / "two"
    arguments = ["storage", "format", "--data", str(one), "--data", str(two), "--node-id", "3"]
    assert main([*arguments, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["directory"], row["result"], row["nodeId"]) for row in rows] == [
        (str(one), "formatted", 3),
        (str(two), "formatted", 3),
    ]
    found = [read_meta_properties(OsFileSystem(), str(path)) for path in (one, two)]
    assert {properties.node_id for properties in found} == {3}
    assert {properties.cluster_id for properties in found} == {rows[0]["clusterId"]}
    assert len({properties.directory_id for properties in found}) == 2
    uuid_from_text(rows[0]["clusterId"])


def test_every_directory_says_how_a_cluster_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R101: whichever of them is asked, as in Kafka; metadata.version comes first."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["storage", "format", "--data", str(one), "--data", str(two)]) == 0
    capsys.readouterr()
    checkpoint = one / "bootstrap.checkpoint"
    assert read_snapshot(OsFileSystem(), str(checkpoint))
    records = records_of(capsys, checkpoint)
    assert {record["value"]["name"] for record in records} == {"FeatureLevelRecord"}
    features = [record["value"]["data"]["name"] for record in records]
    assert features == [
        "metadata.version",
        "eligible.leader.replicas.version",
        "group.version",
        "transaction.version",
    ]
    assert (two / "bootstrap.checkpoint").read_bytes() == checkpoint.read_bytes()


def test_the_ids_may_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path)
    arguments = ["storage", "format", "--data", path, "-t", CLUSTER_ID, "--node-id", "0"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{path}: formatted (cluster {CLUSTER_ID}, node 0)\n"
    found = read_meta_properties(OsFileSystem(), path)
    assert (found.cluster_id, found.node_id) == (CLUSTER_ID, 0)


def test_a_file_names_directories_and_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=5\nlog.dirs={data}\n")
    assert main(["storage", "format", "--config", str(file)]) == 0
    assert read_meta_properties(OsFileSystem(), str(data)).node_id == 5
    assert main(["storage", "info", "--config", str(file)]) == 0
    assert "nodeId:      5\n" in capsys.readouterr().out


def test_a_formatted_directory_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    orders(old)
    before = snapshot_of(old)
    arguments = ["storage", "format", "--data", str(old), "--data", str(new)]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"dohle: error: Log directory {old} is already formatted.")
    assert not new.exists()
    assert main([*arguments, "--ignore-formatted"]) == 0
    assert capsys.readouterr().out == (
        f"{old}: left as it was (cluster {CLUSTER_ID}, node 1)\n"
        f"{new}: formatted (cluster {CLUSTER_ID}, node 1)\n"
    )
    assert snapshot_of(old) == before
    assert main([*arguments, "--ignore-formatted", "--node-id", "2"]) == 1
    assert "has node.id 1, but 2 is expected" in capsys.readouterr().err


def test_partitions_without_identity_are_not_given_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders(tmp_path)
    (tmp_path / "meta.properties").unlink()
    assert main(["storage", "format", "--data", str(tmp_path)]) == 1
    assert "partitions such as orders-0" in capsys.readouterr().err
    assert not (tmp_path / "meta.properties").exists()


def test_a_directory_in_use_or_given_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(tmp_path)
    try:
        (tmp_path / "meta.properties").unlink()
        assert main(["storage", "format", "--data", str(tmp_path)]) == 1
        assert "is in use by another process" in capsys.readouterr().err
    finally:
        node.close()
    twice = ["--data", str(tmp_path), "--data", str(tmp_path)]
    assert main(["storage", "format", *twice]) == 2


def test_a_node_starts_with_what_was_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert main(["storage", "format", "--data", str(data), "--cluster-id", CLUSTER_ID]) == 0
    with Started(cwd=tmp_path) as started:
        assert started.shown[0].endswith(f"node 1 of cluster {CLUSTER_ID}\n")
        assert started.stop() == 0


def test_the_directory_of_the_metadata_log_is_formatted_and_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a", "b", "m")
    config = tmp_path / "server.properties"
    config.write_text(
        f"log.dirs={tmp_path}/a,{tmp_path}/b\nmetadata.log.dir={tmp_path}/m\n"
        "process.roles=broker,controller\nnode.id=4\nlisteners=PLAINTEXT://127.0.0.1:0\n"
    )
    assert main(["storage", "format", "--config", str(config)]) == 0
    capsys.readouterr()
    assert [(tmp_path / name / "meta.properties").exists() for name in names] == [True] * 3
    assert main(["storage", "info", "--config", str(config), "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["directory"] for one in shown] == [f"{tmp_path}/{name}" for name in names]
    assert {one["nodeId"] for one in shown} == {4}


def test_a_directory_is_described_without_being_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders(tmp_path)
    before = snapshot_of(tmp_path)
    assert main(["storage", "info", "--data", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert snapshot_of(tmp_path) == before
    (partition,) = found["partitions"]
    assert partition.pop("size") == sum(
        len(content) for name, content in before.items() if name.startswith("orders-0/")
    )
    assert partition == {
        "topic": "orders",
        "partition": 0,
        "kind": "live",
        "topicId": TOPIC_ID_TEXT,
        "segments": 1,
    }
    assert found["size"] == sum(map(len, before.values()))
    assert (found["clusterId"], found["nodeId"], found["version"]) == (CLUSTER_ID, 1, 1)
    assert found["isClean"] is True
    assert found["problem"] is None


def test_people_get_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders(tmp_path / "one")
    orders(tmp_path / "two")
    (tmp_path / "two" / ".kafka_cleanshutdown").unlink()
    paths = [str(tmp_path / name) for name in ("one", "two")]
    assert main(["storage", "info", "--data", paths[0], "--data", paths[1]]) == 0
    one, two = capsys.readouterr().out.split("\n\ndirectory:")
    assert "state:       closed cleanly\n" in one
    assert "state:       in use, or not closed cleanly\n" in two
    assert one.splitlines()[-2].split() == [
        *("topic", "partition", "kind", "topicId", "segments", "size")
    ]
    assert one.splitlines()[-1].split()[:3] == ["orders", "0", "live"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "not formatted"),
        ("version=9\n", "version 9 is unknown"),
        ("version=1\n", "version 1 needs node.id and cluster.id"),
    ],
)
def test_what_is_wrong_with_a_directory_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "meta.properties").write_text(content)
    assert main(["storage", "info", "--data", str(tmp_path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert problem in json.loads(out)["problem"]
    assert err.startswith(f"dohle: error: {tmp_path}: ")


def test_a_missing_directory_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none"
    assert main(["storage", "info", "--data", str(path)]) == 1
    assert capsys.readouterr().err == f"dohle: error: {path}: the directory does not exist\n"
    assert not path.exists()


def test_a_quorum_that_can_grow_begins_with_its_only_voter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=5\nprocess.roles=broker,controller\nlog.dirs={tmp_path}/data\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    )
    assert main(["storage", "format", "--config", str(file), "--standalone"]) == 0
    directory_id = read_meta_properties(OsFileSystem(), f"{tmp_path}/data").directory_id
    assert directory_id is not None
    first = tmp_path / "data" / "__cluster_metadata-0" / SnapshotId(0, 0).file_name
    records = read_control_records(OsFileSystem(), str(first))
    endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093)
    assert Membership().after(records) == Membership(
        1, (Voter(BrokerId(5), directory_id, (endpoint,)),)
    )
    assert read_snapshot(OsFileSystem(), str(first)) == []


def levels(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, int]:
    capsys.readouterr()
    records = records_of(capsys, path / "bootstrap.checkpoint")
    found = (record["value"]["data"] for record in records)
    return {each["name"]: each["featureLevel"] for each in found}


def test_the_features_of_a_new_cluster_may_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, expected in [
        (["--release-version", "3.9"], {"metadata.version": 21}),
        (
            ["-r", "4.0-IV3", "-f", "transaction.version=0", "-f", "kraft.version=0"],
            {"metadata.version": 25, "group.version": 1},
        ),
        (
            ["-f", "metadata.version=24", "-f", "share.version=1"],
            {
                "metadata.version": 24,
                "group.version": 1,
                "share.version": 1,
                "transaction.version": 2,
            },
        ),
    ]:
        path = tmp_path / arguments[1]
        assert main(["storage", "format", "--data", str(path), *arguments]) == 0
        assert levels(capsys, path) == expected
        assert not (path / "__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-s", "-f", "kraft.version=0"], "Cannot set kraft.version to 0 if controller."),
        (["-f", "kraft.version=1"], "Cannot set kraft.version to 1 unless control"),
        (["-f", "kraft.version=2"], "kraft.version has no level 2, only 0-1"),
        (["-f", "no.version=1"], "Unsupported feature: no.version. Supported features are: elig"),
        (["-r", "9.9"], "Unknown metadata.version 9.9. Supported metadata.version are 3.3-IV3 to"),
        (["-r", "4.0", "-f", "metadata.version=22"], "Use --release-version instead"),
        (
            ["-r", "3.9", "-f", "eligible.leader.replicas.version=1"],
            "needs the metadata.version of a later release",
        ),
    ],
)
def test_features_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    path = tmp_path / "data"
    assert main(["storage", "format", "--data", str(path), *arguments]) == 1
    assert reason in capsys.readouterr().err
    assert not path.exists()
