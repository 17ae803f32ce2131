from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.storage.directory.checkpoints import write_offsets
from dohle.storage.files import OsFileSystem
from dohle.storage.producers.entry import BatchMetadata, ProducerEntry
from dohle.storage.producers.snapshot import write_snapshot
from tests.cli.dump.files import (
    CLUSTER_ID,
    LEADER_EPOCH,
    NOW_MS,
    SEGMENT,
    TOPIC_ID_TEXT,
    of_type,
    orders,
    parse_lines,
)

Capture = pytest.CaptureFixture[str]


def dump_json(capsys: Capture, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    assert main(["log", "dump", "--json", *map(str, arguments)]) == code
    return parse_lines(capsys.readouterr().out)


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_a_log_directory_is_shown_file_by_file(tmp_path: Path, capsys: Capture) -> None:
    orders(tmp_path)
    found = dump_json(capsys, tmp_path)
    assert [Path(row["file"]).name for row in of_type(found, "file")] == [
        "meta.properties",
        ".kafka_cleanshutdown",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    (properties,) = of_type(found, "metaProperties")
    assert (properties["cluster.id"], properties["node.id"]) == (CLUSTER_ID, "1")
    (mark,) = of_type(found, "cleanShutdown")
    assert mark["brokerEpoch"] == 9
    recovery_point = of_type(found, "partitionOffset")[0]
    assert (recovery_point["topic"], recovery_point["offset"]) == ("orders", 3)


def test_the_small_files_of_a_partition_are_shown(tmp_path: Path, capsys: Capture) -> None:
    found = dump_json(capsys, orders(tmp_path))
    assert of_type(found, "partitionMetadata")[0]["topicId"] == TOPIC_ID_TEXT
    (epoch,) = of_type(found, "leaderEpoch")
    assert (epoch["epoch"], epoch["startOffset"]) == (LEADER_EPOCH, 0)


# Producer snapshots


def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / f"{SEGMENT}.snapshot"
    producers = [
        ProducerEntry(ProducerId(7), 2, 5, NOW_MS, 90, (BatchMetadata(2, 99, 4, NOW_MS),)),
        ProducerEntry(ProducerId(8), 0, 6, NOW_MS),
    ]
    write_snapshot(OsFileSystem(), str(path), producers, sync=False)
    return path


def test_producers_are_shown(tmp_path: Path, capsys: Capture) -> None:
    assert main(["log", "dump", str(snapshot(tmp_path))]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"producerId: 7 producerEpoch: 2 coordinatorEpoch: 5 currentTxnFirstOffset: 90 "
        f"lastTimestamp: {NOW_MS} firstSequence: {2**31 - 2} lastSequence: 2 lastOffset: 99 "
        "offsetDelta: 4",
        f"producerId: 8 producerEpoch: 0 coordinatorEpoch: 6 currentTxnFirstOffset: -1 "
        f"lastTimestamp: {NOW_MS} firstSequence: -1 lastSequence: -1 lastOffset: -1 "
        "offsetDelta: 0",
    ]


def test_a_corrupt_snapshot_is_named(tmp_path: Path, capsys: Capture) -> None:
    path = snapshot(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["log", "dump", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"dohle: error: {path}: position 0: the checksum is ")


@pytest.mark.parametrize("kind", ["snapshot", "checkpoint"])
def test_the_limit_holds_for_entries(tmp_path: Path, capsys: Capture, kind: str) -> None:
    path = snapshot(tmp_path)
    if kind == "checkpoint":
        path = write(tmp_path / "leader-epoch-checkpoint", "0\n2\n1 0\n2 5\n")
    found = dump_json(capsys, "--limit", "1", path)
    assert [row["type"] for row in found][2:] == ["note"]
    assert found[-1]["message"] == "stopped after 1 of 2 entries"
    assert len(dump_json(capsys, "--limit", "2", path)) == 3


# Checkpoints


def test_an_offset_checkpoint_is_shown_as_it_stands(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    offsets = {
        TopicPartition(TopicName("orders"), 1): 2**40,
        TopicPartition(TopicName("a-b"), 0): 3,
    }
    write_offsets(OsFileSystem(), str(path), offsets)
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"topic: orders partition: 1 offset: {2**40}",
        "topic: a-b partition: 0 offset: 3",
    ]


def test_a_bad_line_of_a_checkpoint_is_named_and_the_others_are_shown(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write(tmp_path / "leader-epoch-checkpoint", "0\n3\n1 0\ntwo 5\n3 9\n")
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1:] == ["epoch: 1 startOffset: 0", "epoch: 3 startOffset: 9"]
    assert shown.err == f"dohle: error: {path}: line 4: 'two' is not a number in range\n"


def test_a_checkpoint_with_too_few_entries_is_shown_and_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write(tmp_path / "replication-offset-checkpoint", "0\n2\norders 0 7\n")
    found = dump_json(capsys, path, code=1)
    assert of_type(found, "partitionOffset")[0]["offset"] == 7
    (problem,) = of_type(found, "problem")
    assert (problem["line"], problem["message"]) == (2, "2 entries are announced, 1 are there")


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "leader-epoch-checkpoint", "1\n0\n")
    assert main(["log", "dump", str(path)]) == 1
    assert f"{path}: line 1: version 1 is unknown" in capsys.readouterr().err


# What says whose a folder is


def test_incomplete_meta_properties_are_shown_and_refused(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "meta.properties", "version=1\nnode.id=4\n")
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "node.id: 4" in shown.out
    assert shown.err.startswith(f"dohle: error: {path}: version 1 needs cluster.id. Restore it")
    write(path, "version=\\u12\n")
    assert main(["log", "dump", str(path)]) == 1
    assert "without four hex digits" in capsys.readouterr().err


def test_a_broken_partition_metadata_is_refused(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "partition.metadata", "version: 0\n")
    assert main(["log", "dump", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"dohle: error: {path}: it must have a 'version: '")


def test_an_old_mark_of_a_clean_stop_is_in_order(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / ".kafka_cleanshutdown", "")
    assert main(["log", "dump", str(path)]) == 0
    assert "note: the last stop was clean" in capsys.readouterr().out


def test_the_state_of_a_quorum_is_shown(tmp_path: Path, capsys: Capture) -> None:
    path = write(
        tmp_path / "quorum-state",
        '{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}',
    )
    assert main(["log", "dump", str(path)]) == 0
    assert 'leaderEpoch: 5 votedId: -1 appliedOffset: 0 currentVoters: [{"voterId":1}]' in (
        capsys.readouterr().out
    )
    assert dump_json(capsys, path)[1]["currentVoters"] == [{"voterId": 1}]


@pytest.mark.parametrize("name", ["meta.properties", "partition.metadata", ".kafka_cleanshutdown"])
def test_the_file_that_is_given_is_shown_and_not_the_one_beside_it(
    tmp_path: Path, capsys: Capture, name: str
) -> None:
    good, bad, shown = {
        "meta.properties": (
            "version=1\nnode.id=4\ncluster.id=c\n",
            "version=2\n",
            "version 2 is unknown, only 0 and 1 are known",
        ),
        "partition.metadata": (
            f"version: 0\ntopic_id: {TOPIC_ID_TEXT}",
            "version: 0\n",
            "it must have a 'version: ' and a 'topic_id: ' line",
        ),
        ".kafka_cleanshutdown": (
            '{"version":0,"brokerEpoch":5}',
            "garbage",
            "not JSON",
        ),
    }[name]
    usual = write(tmp_path / name, good)
    other = write(tmp_path / f"{name}.part", bad)
    assert main(["log", "dump", str(usual)]) == 0
    assert shown not in capsys.readouterr().out
    is_mark = name == ".kafka_cleanshutdown"
    assert main(["log", "dump", str(other)]) == (0 if is_mark else 1)
    captured = capsys.readouterr()
    if is_mark:
        assert f"note: {shown}" in captured.out
    else:
        assert captured.err.startswith(f"dohle: error: {other}: {shown}")
    usual.unlink()
    assert main(["log", "dump", str(other)]) == (0 if is_mark else 1)


def test_garbage_in_the_mark_of_a_clean_stop_is_noted(tmp_path: Path, capsys: Capture) -> None:
    for content in ("garbage", "\0\0", "[" * 100_000):
        path = write(tmp_path / ".kafka_cleanshutdown", content)
        (note,) = of_type(dump_json(capsys, path), "note")
        assert note["message"].startswith("not JSON: ")
        assert note["message"].endswith("; the last stop was clean all the same")


@pytest.mark.parametrize("mode", [(), ("--json",)])
@pytest.mark.parametrize("depth", [17, 200, 900])
def test_a_deeply_nested_quorum_state_is_refused(
    tmp_path: Path, capsys: Capture, mode: tuple[str, ...], depth: int
) -> None:
    nested = "[" * depth + "]" * depth
    path = write(tmp_path / "quorum-state", f'{{"leaderEpoch":{nested}}}')
    assert main(["log", "dump", *mode, str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"dohle: error: {path}: not ")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"leaderId":1}', "[" * 100_000])
def test_a_broken_quorum_state_is_refused(tmp_path: Path, capsys: Capture, content: str) -> None:
    path = write(tmp_path / "quorum-state", content)
    assert main(["log", "dump", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"dohle: error: {path}: not ")
