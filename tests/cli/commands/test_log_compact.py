"""``dohle log compact --dry-run``."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.seams import ManualClock, SystemClock
from dohle.storage.directory.manager import LogManager
from dohle.storage.files import OsFileSystem
from tests.storage.cleaning.cleaning import clean, compacted, put
from tests.storage.logs import IDENTITY, NOW_MS, PARTITION, TOPIC_ID


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    fs = OsFileSystem()
    manager = LogManager(fs, clock=ManualClock(NOW_MS), rng=random.Random(1))
    manager.open([str(tmp_path)], IDENTITY, lambda _: compacted())
    log = manager.get_or_create(PARTITION, TOPIC_ID, compacted())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.roll()
    put(log, (b"b", None), pid=1, sequence=0)
    log.roll()
    put(log, (b"a", b"3"), pid=2, sequence=0, transactional=True)
    log.roll()
    put(log, (b"c", b"1"))
    return manager


def test_it_tells_what_a_round_saves_and_writes_nothing(
    manager: LogManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / str(PARTITION)
    log = manager.get(PARTITION)
    assert log is not None
    before = log.size
    log.flush()
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["log", "compact", "--dry-run", "--json", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["log", "compact", "--dry-run", str(folder)]) == 0
    assert "all" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    [group] = found["groups"]
    assert group["baseOffsets"] == [0, 3]
    assert (group["recordsBefore"], group["recordsAfter"], group["tombstones"]) == (4, 2, 1)
    # The undecided transaction, and the active segment.
    assert found["untouchedSegments"] == 2
    clean(log, None, SystemClock().now_ms())
    assert group["bytesBefore"] + found["untouchedBytes"] == before
    assert group["bytesAfter"] + found["untouchedBytes"] == log.size


def test_without_dry_run_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "compact", str(tmp_path)]) == 2
    assert "broker" in capsys.readouterr().err


def test_a_missing_folder_and_a_damaged_file_are_told(
    manager: LogManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "compact", "--dry-run", str(tmp_path / "none-0")]) == 1
    log = manager.get(PARTITION)
    assert log is not None
    path = Path(log.segments.first.path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert main(["log", "compact", "--dry-run", str(path.parent)]) == 1
    assert "checksum" in capsys.readouterr().err
