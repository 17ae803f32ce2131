"""Finding the batch that holds an offset, whatever the sizes of the batches around it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import HEADER_SIZE, read_batch
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.files import OsFile, OsFileSystem
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.segment.batch_scan import BatchHead
from tests.storage.logs import NOW_MS, Node, append, batch, property_test

LARGE = 12_000

#: A batch: how many records, and how large the value of each.
BATCHES = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 40, 1500, 4100, 8200, LARGE])),
    min_size=1,
    max_size=15,
)


def log_of(node: Node, shapes: Iterable[tuple[int, int]]) -> Log:
    log = node.log
    append(log, *(batch([NOW_MS] * count, value=bytes(size)) for count, size in shapes))
    return log


def first_that_reaches(heads: list[BatchHead], offset: int) -> BatchHead | None:
    return next((head for head in heads if head.last_offset >= offset), None)


@property_test(30)
@given(shapes=BATCHES)
def test_every_offset_is_found_in_the_batch_that_holds_it(shapes: list[tuple[int, int]]) -> None:
    segment = log_of(Node(), shapes).segments.active
    heads = list(segment.reader.heads())
    for offset in range(heads[-1].last_offset + 2):
        assert segment.reader.find(offset) == first_that_reaches(heads, offset)


@property_test(15)
@given(shapes=BATCHES, cut=st.integers(0, 60))
def test_nothing_is_found_in_what_was_cut_off(shapes: list[tuple[int, int]], cut: int) -> None:
    segment = log_of(Node(), shapes).segments.active
    segment.truncate_to(cut)
    heads = list(segment.reader.heads())
    for offset in range(70):
        assert segment.reader.find(offset) == first_that_reaches(heads, offset)


@property_test(30)
@given(
    shapes=BATCHES,
    max_bytes=st.sampled_from([1, 300, 3_000, 9_000, 20_000, 200_000]),
    isolation=st.sampled_from([Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED]),
)
def test_what_is_read_soon_is_what_is_read_otherwise(
    shapes: list[tuple[int, int]], max_bytes: int, isolation: Isolation
) -> None:
    log = log_of(Node(LogConfig(retention_ms=-1, segment_bytes=60_000)), shapes)
    end = log.log_end_offset
    for offset in range(end):
        piece = log_read.read_soon(log, offset, max_bytes, isolation)
        if piece is not None:
            expected = log_read.read(log, offset, max_bytes, isolation, min_one_batch=True).slice
            assert expected is not None
            assert piece in (expected, expected.read())
    assert log_read.read_soon(log, end, max_bytes, isolation) is None
    assert log_read.read_soon(log, -1, max_bytes, isolation) is None


def test_large_batches_are_read_directly_but_for_the_first_of_a_segment() -> None:
    log = log_of(Node(), [(1, LARGE)] * 10)
    log.update_high_watermark(10)
    found = [log_read.read_soon(log, offset, 1, Isolation.HIGH_WATERMARK) for offset in range(10)]
    assert [piece is not None for piece in found] == [False] + [True] * 9


class WatchedFile(OsFile):
    """A file that notes how much is read from it at a time."""

    __slots__ = ()
    reads: ClassVar[list[int]] = []

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        self.reads.append(size)
        return super().read_at(position, size)


class WatchedFileSystem(OsFileSystem):
    """Real files that are watched."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        """Open a file."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return WatchedFile(os.open(path, flags, 0o644), path)


def test_a_large_batch_is_found_with_one_small_read(tmp_path: Path) -> None:
    node = Node(fs=WatchedFileSystem(), paths=[str(tmp_path)])
    segment = log_of(node, [(3, LARGE)] * 20).segments.active
    WatchedFile.reads.clear()
    for offset in range(3, 60):
        head = segment.reader.find(offset)
        assert head is not None
        assert head.base_offset == offset // 3 * 3
    assert WatchedFile.reads == [HEADER_SIZE] * 57
    node.stop()


def test_what_is_little_is_read_once(tmp_path: Path) -> None:
    node = Node(fs=WatchedFileSystem(), paths=[str(tmp_path)])
    log = log_of(node, [(1, 100)] * 200)
    size = log.segments.active.size // 200
    WatchedFile.reads.clear()
    # From the beginning, from the middle, and all that is left at the end.
    for offset, max_bytes, batches in ((3, 1, 1), (150, 2 * size, 2), (190, 1 << 20, 10)):
        piece = log_read.read_soon(log, offset, max_bytes, Isolation.HIGH_WATERMARK)
        assert isinstance(piece, bytes)
        assert read_batch(memoryview(piece)).base_offset == offset
        assert len(piece) == batches * size
    assert len(WatchedFile.reads) == 3
    node.stop()
