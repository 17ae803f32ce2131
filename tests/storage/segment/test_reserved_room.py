"""Room reserved on the disk ahead of large writes: nothing shows it, and it is given back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from dohle.storage.config import LogConfig
from dohle.storage.files import OsFile, OsFileSystem
from dohle.storage.log import Log
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.segment_file import RESERVED_BYTES
from tests.storage.logs import Node, batch

MB = 1_000_000


class NotingFile(OsFile):
    """A file that notes what is reserved and where it is cut."""

    __slots__ = ()
    reserved: ClassVar[list[tuple[int, int]]] = []
    cuts: ClassVar[list[int]] = []

    def reserve(self, position: int, size: int) -> None:
        """Reserve room."""
        self.reserved.append((position, size))
        super().reserve(position, size)

    def truncate(self, size: int) -> None:
        """Cut."""
        self.cuts.append(size)
        super().truncate(size)


class NotingFileSystem(OsFileSystem):
    """Real files that are watched."""

    def __init__(self) -> None:
        super().__init__()
        NotingFile.reserved.clear()
        NotingFile.cuts.clear()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        """Open a file."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return NotingFile(os.open(path, flags, 0o644), path)


def node_in(
    path: Path, segment_bytes: int = 100 * MB, *, open_files: OpenFiles | None = None
) -> Node:
    config = LogConfig(retention_ms=-1, segment_bytes=segment_bytes)
    return Node(config, fs=NotingFileSystem(), paths=[str(path)], open_files=open_files)


def write(log: Log, *sizes: int) -> None:
    for size in sizes:
        log.append_as_leader(batch(value=bytes(size)), 0, defer_write=True)
        log.write_appends()


def test_a_long_segment_has_room_reserved_ahead_of_large_writes(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    log = node.log
    write(log, *[MB] * 30)
    segment = log.segments.active
    assert os.stat(segment.path).st_size == segment.size
    ends = [position + size for position, size in NotingFile.reserved]
    assert len(ends) == 3
    assert all(end - start > RESERVED_BYTES for start, end in zip([0, *ends], ends, strict=False))
    assert NotingFile.reserved[0][0] <= RESERVED_BYTES
    assert segment.size < ends[-1] <= segment.size + RESERVED_BYTES
    node.stop()


def test_small_writes_and_short_segments_have_no_room_reserved(tmp_path: Path) -> None:
    node = node_in(tmp_path, segment_bytes=RESERVED_BYTES)
    write(node.log, *[MB] * 20, *[200_000] * 60)
    assert NotingFile.reserved == []
    node.stop()


@pytest.mark.parametrize("is_let_go", [False, True])
def test_what_was_reserved_is_given_back_when_the_segment_is_closed(
    tmp_path: Path, is_let_go: bool
) -> None:
    open_files = OpenFiles()
    node = node_in(tmp_path, open_files=open_files)
    write(node.log, *[MB] * 10)
    segment = node.log.segments.active
    size = segment.size
    NotingFile.cuts.clear()
    while is_let_go and open_files.give_back():
        pass
    node.log.roll()
    assert NotingFile.cuts[0] == size
    assert os.stat(segment.path).st_size == size
    assert [head.size for head in segment.reader.heads()] == [size // 10] * 10
    node.stop()


def test_a_log_goes_on_where_it_ended_after_a_crash_with_room_reserved(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    write(node.log, *[MB] * 10)
    size = node.log.segments.active.size
    node.kill()
    node.start()
    assert node.log.log_end_offset == 10
    assert node.log.segments.active.size == size
    write(node.log, *[MB] * 10)
    assert node.log.log_end_offset == 20
    node.stop()


def test_room_that_cannot_be_had_is_done_without(tmp_path: Path) -> None:
    file = OsFileSystem().open(str(tmp_path / "file"), write=True, create=True)
    file.write_at(0, b"bytes")
    file.reserve(0, 1 << 60)
    file.reserve(5, 1 << 20)
    assert file.size() == 5
    assert file.read_at(0, 10) == b"bytes"
    file.close()
