"""A copy of logs whose segments are replaced while they are being copied, as the cleaner does."""

from __future__ import annotations

import pytest

from dohle.storage.backup import BackupFailed, CapturedLog, LogCut, NodeCut, SegmentCut, copy_cut
from dohle.storage.config import LogConfig
from dohle.storage.directory.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offsets
from dohle.storage.files import FileSystem, join
from tests.storage.logs import BATCH_SIZE, PARTITION, Node, append, data, log_bytes

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=2 * BATCH_SIZE)
COPY = "/copy"


def captured() -> tuple[Node, NodeCut, bytes]:
    """A node with three segments, and all that it had."""
    node = Node(COMPACTED)
    append(node.log, *(data() for _ in range(5)))
    node.log.cleaner_offset = 2
    node.log.flush()
    cut = CapturedLog.of(node.log).cut(lambda path: path)
    return node, NodeCut(("/data",), (cut,)), log_bytes(node.log)


def replace(fs: FileSystem, segment: SegmentCut, *, keep_old: bool = True) -> None:
    """Let another file have a segment's name, and the old one that of a deleted file."""
    path = join("/data/orders-0", segment.name)
    if keep_old:
        fs.rename(path, path + ".deleted")
    else:
        fs.remove(path)
    file = fs.open(path, write=True, create=True)
    file.write_at(0, b"cleaned")
    file.close()


def copied(fs: FileSystem, cut: LogCut) -> bytes:
    return b"".join(fs.read(join(f"{COPY}/orders-0", segment.name)) for segment in cut.segments)


def test_the_copy_has_the_segments_that_there_were() -> None:
    node, cut, before = captured()
    replace(node.fs, cut.logs[0].segments[0])
    assert copy_cut(node.fs, cut, {"/data": COPY}) == []
    assert copied(node.fs, cut.logs[0]) == before
    assert read_offsets(node.fs, f"{COPY}/{CLEANER_OFFSET_CHECKPOINT}") == {PARTITION: 2}


def test_the_copy_has_no_indexes_of_another_file() -> None:
    node, cut, _ = captured()
    first, second, _ = cut.logs[0].segments
    replace(node.fs, first)
    copy_cut(node.fs, cut, {"/data": COPY})
    names = {entry.name for entry in node.fs.list_dir(f"{COPY}/orders-0")}
    assert first.name.replace(".log", ".index") not in names
    assert second.name.replace(".log", ".index") in names


def test_a_segment_that_is_gone_for_good_ends_the_backup() -> None:
    node, cut, _ = captured()
    replace(node.fs, cut.logs[0].segments[0], keep_old=False)
    with pytest.raises(BackupFailed, match="was deleted before it could be copied: try again"):
        copy_cut(node.fs, cut, {"/data": COPY})
