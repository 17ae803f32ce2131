from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.records.control import build_txn_marker
from dohle.storage.config import LogConfig
from dohle.storage.files import OsFileSystem
from dohle.storage.log import Log
from dohle.storage.producers.state import AppendOrigin
from dohle.storage.segment.index import OffsetIndex, TimeIndex
from tests.cli.dump.files import (
    LEADER_EPOCH,
    NOW_MS,
    SEGMENT,
    Node,
    append,
    batch,
    of_type,
    orders,
    parse_lines,
    write_segment,
)

Capture = pytest.CaptureFixture[str]

#: An entry for every second batch.
DENSE = LogConfig(index_interval_bytes=100)
CHECKS = ("--index-sanity-check", "--verify-index-only")


def partition(tmp_path: Path) -> Path:
    return orders(tmp_path, batches=20, config=DENSE)


def dump_json(capsys: Capture, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    assert main(["log", "dump", "--json", *map(str, arguments)]) == code
    return parse_lines(capsys.readouterr().out)


def test_an_offset_index_is_shown_entry_by_entry(tmp_path: Path, capsys: Capture) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.index"
    expected = OffsetIndex(OsFileSystem(), str(path), 0, 1 << 20).entries()
    assert len(expected) > 5
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"offset: {offset} position: {position}" for offset, position in expected
    ]
    found = of_type(dump_json(capsys, path), "offsetIndexEntry")
    assert [(row["offset"], row["position"]) for row in found] == expected


def test_a_time_index_is_shown_entry_by_entry(tmp_path: Path, capsys: Capture) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.timeindex"
    expected = TimeIndex(OsFileSystem(), str(path), 0, 1 << 20).entries()
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"timestamp: {timestamp} offset: {offset}" for timestamp, offset in expected
    ]
    found = of_type(dump_json(capsys, path), "timeIndexEntry")
    assert [(row["timestamp"], row["offset"]) for row in found] == expected


def test_offsets_are_those_of_the_log_and_not_relative(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "00000000000000001000.index.deleted"
    path.write_bytes(struct.pack(">iiii", 5, 100, 9, 200))
    found = of_type(dump_json(capsys, path), "offsetIndexEntry")
    assert [row["offset"] for row in found] == [1005, 1009]


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_preallocated_zeros_are_noted_and_not_shown_as_entries(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.{kind}"
    size = path.stat().st_size
    whole = dump_json(capsys, path)
    with path.open("ab") as file:
        file.truncate(10_485_760 // 24 * 24)
    *entries, note = dump_json(capsys, path)
    assert entries[1:] == whole[1:]
    assert (note["type"], note["position"]) == ("note", size)
    assert "zero bytes up to the end" in note["message"]


@pytest.mark.parametrize(("kind", "entry_size"), [("index", 8), ("timeindex", 12)])
def test_an_index_that_is_all_zeros_has_no_entries(
    tmp_path: Path, capsys: Capture, kind: str, entry_size: int
) -> None:
    path = tmp_path / f"{SEGMENT}.{kind}"
    path.write_bytes(bytes(entry_size * 1000))
    assert [row["type"] for row in dump_json(capsys, path)] == ["file", "note"]


def test_a_torn_entry_is_damage_behind_the_whole_ones(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / f"{SEGMENT}.index"
    path.write_bytes(struct.pack(">iii", 5, 100, 9))
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "offset: 5 position: 100" in shown.out
    assert shown.err == (
        f"dohle: error: {path}: position 8: torn entry: 4 bytes are left, an entry has 8\n"
    )


def test_entries_that_do_not_rise_are_damage(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / f"{SEGMENT}.index"
    path.write_bytes(struct.pack(">iiii", 5, 100, 5, 200))
    assert main(["log", "dump", str(path)]) == 1
    assert f"{path}: position 8: offset 5 at 200 cannot follow offset 5" in capsys.readouterr().err
    path = tmp_path / f"{SEGMENT}.timeindex"
    path.write_bytes(struct.pack(">qiqi", NOW_MS, 5, NOW_MS - 1, 6))
    assert main(["log", "dump", str(path)]) == 1
    assert f"{path}: position 12: timestamp {NOW_MS - 1}" in capsys.readouterr().err


def test_the_limit_holds_for_entries(tmp_path: Path, capsys: Capture) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.index"
    found = dump_json(capsys, "--limit", "3", path)
    assert [row["type"] for row in found] == ["file", *["offsetIndexEntry"] * 3, "note"]


def test_an_index_without_its_base_offset_is_refused(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "copy.index"
    path.write_bytes(b"")
    assert main(["log", "dump", str(path)]) == 1
    assert "starts with its base offset" in capsys.readouterr().err


# Checks


@pytest.mark.parametrize("check", CHECKS)
def test_good_indexes_pass_the_checks(tmp_path: Path, capsys: Capture, check: str) -> None:
    folder = partition(tmp_path)
    paths = [str(folder / f"{SEGMENT}.{kind}") for kind in ("index", "timeindex")]
    assert main(["log", "dump", check, *paths]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "position:" not in shown.out
    assert ("passed the sanity check" in shown.out) == (check == CHECKS[0])


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_index_that_a_broker_would_rebuild_fails_the_sanity_check(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.{kind}"
    with path.open("ab") as file:
        file.write(bytes(24))
    assert main(["log", "dump", "--index-sanity-check", str(path)]) == 1
    assert f"{path}: sanity check failed, a broker would rebuild" in capsys.readouterr().err


def test_an_offset_index_that_points_elsewhere_is_found_out(
    tmp_path: Path, capsys: Capture
) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.index"
    path.write_bytes(struct.pack(">8i", 2, 156, 3, 156, 4, 300, 5, 1 << 30))
    assert main(["log", "dump", "--verify-index-only", str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"dohle: error: {path}: position 8: offset 3 is said to be at 156: ")
    assert lines[1].startswith(f"dohle: error: {path}: position 16: offset 4 is said to be at 300")
    assert lines[2].endswith("offset 5 is said to be at 1073741824, outside of the log")


def test_a_time_index_that_lies_is_found_out(tmp_path: Path, capsys: Capture) -> None:
    path = partition(tmp_path) / f"{SEGMENT}.timeindex"
    path.write_bytes(struct.pack(">qiqiqi", NOW_MS + 2, 2, NOW_MS + 9, 3, NOW_MS + 99, 99))
    assert main(["log", "dump", "--verify-index-only", str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert f"position 12: timestamp {NOW_MS + 9} is said to be at offset 3, where" in lines[0]
    assert "past the end of the log" in lines[1]


def test_an_index_of_a_log_with_larger_batches_names_only_last_offsets(
    tmp_path: Path, capsys: Capture
) -> None:
    write_segment(tmp_path, batch(b"a", b"b", b"c"))
    path = tmp_path / f"{SEGMENT}.timeindex"
    path.write_bytes(struct.pack(">qi", NOW_MS, 1))
    assert main(["log", "dump", "--verify-index-only", str(path)]) == 1
    assert "at offset 1, where no batch ends" in capsys.readouterr().err


def test_verifying_needs_the_log_beside_the_index(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / f"{SEGMENT}.index"
    path.write_bytes(b"")
    assert main(["log", "dump", "--verify-index-only", str(path)]) == 1
    assert f"{SEGMENT}.log must lie beside it" in capsys.readouterr().err


# Aborted transactions


def abort(log: Log, producer_id: int, sequence: int) -> None:
    guard = log.producer_state.start_transaction_verification(
        producer_id, sequence, 0, False, NOW_MS
    )
    log.append_as_leader(
        batch(
            b"x",
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        ),
        LEADER_EPOCH,
        verification_guard=guard,
    )
    log.append_as_leader(
        build_txn_marker(False, producer_id, 0, 3, NOW_MS),
        LEADER_EPOCH,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=0,
    )


def test_aborted_transactions_are_shown(tmp_path: Path, capsys: Capture) -> None:
    node = Node(tmp_path)
    log = node.log("orders")
    append(log, batch(b"before"))
    abort(log, 70, 0)
    abort(log, 71, 0)
    node.close()
    folder = tmp_path / "orders-0"
    assert main(["log", "dump", str(folder / f"{SEGMENT}.txnindex")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "version: 0 producerId: 70 firstOffset: 1 lastOffset: 2 lastStableOffset: 3",
        "version: 0 producerId: 71 firstOffset: 3 lastOffset: 4 lastStableOffset: 5",
    ]
    found = dump_json(capsys, "--records", folder)
    assert [row["firstOffset"] for row in of_type(found, "abortedTransaction")] == [1, 3]
    assert [row["controlType"] for row in of_type(found, "controlRecord")] == ["ABORT"] * 2
    producers = of_type(found, "producer")
    assert sorted(row["producerId"] for row in producers) == [70, 71]
    assert {row["coordinatorEpoch"] for row in producers} == {3}


def test_damage_in_a_transaction_index_is_named(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / f"{SEGMENT}.txnindex"
    good = struct.pack(">hqqqq", 0, 7, 1, 2, 1)
    path.write_bytes(good + good)
    assert main(["log", "dump", str(path)]) == 1
    assert "position 34: the transaction from 1 to 2 cannot follow" in capsys.readouterr().err
    path.write_bytes(good + struct.pack(">hqqqq", 3, 7, 3, 4, 3))
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "producerId: 7" in shown.out
    assert "position 34: the entry has version 3" in shown.err
