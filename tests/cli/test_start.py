from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.uuid import uuid_from_text
from dohle.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE, has_clean_shutdown
from dohle.storage.files import OsFileSystem
from dohle.storage.meta_properties import read_meta_properties
from tests.cli.files import CLUSTER_ID, Node, orders


def test_an_empty_directory_is_formatted_and_closed_cleanly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "new" / "data"
    assert main(["start", "--data", str(data)]) == 0
    shown = capsys.readouterr()
    found = read_meta_properties(OsFileSystem(), str(data))
    assert found.node_id == 1
    assert found.cluster_id is not None
    uuid_from_text(found.cluster_id)
    assert shown.out == (
        f"node id: 1\ncluster id: {found.cluster_id}\ndata directory: {data} (new), partitions: 0\n"
    )
    assert "does not listen on the network yet" in shown.err
    assert has_clean_shutdown(OsFileSystem(), str(data))


def test_what_is_in_the_directory_is_told_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = orders(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["start", "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"cluster id: {CLUSTER_ID}\n" in shown
    assert f"{tmp_path} (was closed cleanly), partitions: 1\n" in shown
    assert "  orders-0: start offset 0, end offset 3, 234 bytes, segments: 1\n" in shown
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_directory_that_was_not_closed_cleanly_is_recovered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = orders(tmp_path)
    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with next(folder.glob("*.log")).open("ab") as log:
        log.write(b"torn")
    assert main(["start", "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"{tmp_path} (was not closed cleanly), partitions: 1\n" in shown
    assert "end offset 3, 234 bytes" in shown


def test_several_directories_are_opened_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert main(["start", "--node-id", "7", "--data", one, "--data", two]) == 0
    found = [read_meta_properties(OsFileSystem(), path) for path in (one, two)]
    assert {properties.node_id for properties in found} == {7}
    assert len({properties.cluster_id for properties in found}) == 1
    assert len({properties.directory_id for properties in found}) == 2
    assert main(["start", "--data", one, "--data", two]) == 0
    assert "node id: 7\n" in capsys.readouterr().out


def test_the_directory_of_another_node_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders(tmp_path)
    assert main(["start", "--node-id", "2", "--data", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"dohle: error: {tmp_path}/meta.properties has node.id 1, but 2")


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path)
    try:
        assert main(["start", "--data", str(tmp_path)]) == 1
        assert "is in use by another process" in capsys.readouterr().err
    finally:
        node.close()


def test_a_broken_meta_properties_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meta.properties").write_text("version=9\n")
    assert main(["start", "--data", str(tmp_path)]) == 1
    assert "version 9 is unknown" in capsys.readouterr().err


def test_a_directory_that_is_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text("")
    assert main(["start", "--data", str(path)]) == 1
    assert "none of the log directories can be used" in capsys.readouterr().err


def test_the_default_directory_is_data_in_the_working_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dohle", "start"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "data directory: ./data (new), partitions: 0\n" in done.stdout
    assert (tmp_path / "data" / "meta.properties").exists()
