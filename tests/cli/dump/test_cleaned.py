"""``dohle log dump`` of files that were really cleaned (compaction 14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.storage.files import OsFileSystem
from tests.cli.dump.files import LEADER_EPOCH, NOW_MS, SEGMENT, of_type, parse_lines
from tests.storage.cleaning.cleaning import clean, compacted, end, put
from tests.storage.logs import PARTITION, Node

DAY_MS = 86_400_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log that was cleaned: an empty batch, a gap, a tombstone, an abort marker."""
    node = Node(compacted(), fs=OsFileSystem(), paths=[str(tmp_path)])
    log = node.log
    put(log, (b"a", b"1"), pid=7, sequence=0)
    put(log, (b"a", b"2"), (b"b", b"1"), (b"b", b"2"))
    log.roll()
    put(log, (b"c", b"no"), pid=8, sequence=0, transactional=True)
    end(log, 8, commit=False)
    put(log, (b"d", None))
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    node.stop()
    return tmp_path / str(PARTITION)


def test_batches_of_a_cleaned_segment_are_shown_as_by_kafkas_tool(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compaction 14: an empty batch has no records and 61 bytes; the horizon is shown."""
    path = folder / f"{SEGMENT}.log"
    assert main(["log", "dump", "--records", "--json", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    rows = parse_lines(shown.out)
    found = [
        (row["baseOffset"], row["lastOffset"], row["count"], row["deleteHorizonMs"])
        for row in of_type(rows, "batch")
    ]
    assert found == [
        (0, 0, 0, None),
        (1, 3, 2, None),
        (4, 4, 0, None),
        (5, 5, 1, None),
        (6, 6, 1, NOW_MS + DAY_MS),
    ]
    empty = of_type(rows, "batch")[0]
    assert (empty["size"], empty["producerId"], empty["lastSequence"]) == (61, 7, 0)
    assert empty["partitionLeaderEpoch"] == LEADER_EPOCH
    assert all(row["isvalid"] for row in of_type(rows, "batch"))
    assert [row["offset"] for row in of_type(rows, "record")] == [1, 3, 6]
    assert of_type(rows, "record")[-1]["value"] is None
    assert [row["offset"] for row in of_type(rows, "controlRecord")] == [5]


def test_indexes_of_a_cleaned_segment_agree_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compaction 14: offset and time index, and the transaction that the marker is kept for."""
    names = [f"{SEGMENT}{kind}" for kind in (".index", ".timeindex")]
    for option in ("--verify-index-only", "--index-sanity-check"):
        arguments = [str(folder / name) for name in names]
        assert main(["log", "dump", option, *arguments]) == 0, capsys.readouterr()
    capsys.readouterr()
    assert main(["log", "dump", "--json", str(folder / f"{SEGMENT}.txnindex")]) == 0
    rows = parse_lines(capsys.readouterr().out)
    entries = [row for row in rows if "producerId" in row]
    assert [(row["producerId"], row["firstOffset"], row["lastOffset"]) for row in entries] == [
        (8, 4, 5)
    ]


def test_a_folder_is_shown_while_its_old_files_are_still_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compaction 9: under the names that they have for ``file.delete.delay.ms``."""
    assert main(["log", "dump", str(folder)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert f"{SEGMENT}.log " in shown.out
