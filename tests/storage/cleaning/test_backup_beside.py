"""A copy of a log that is cleaned while it is being copied."""

from __future__ import annotations

import pytest

from dohle.storage.backup import BackupFailed, CapturedLog, NodeCut, copy_cut
from tests.storage.cleaning.cleaning import clean, compacted, put
from tests.storage.logs import Node, log_bytes


def captured() -> tuple[Node, NodeCut, bytes]:
    node = Node(compacted())
    log = node.log
    for number in range(4):
        put(log, (b"a", b"%d" % number), (b"k%d" % number, b""))
        log.roll()
    put(log, (b"z", b""))
    log.flush()
    return node, NodeCut(("/data",), (CapturedLog.of(log).cut(str),)), log_bytes(log)


def test_it_is_of_the_log_as_it_was() -> None:
    """Compaction 9: the old files are there for ``file.delete.delay.ms``."""
    node, cut, content = captured()
    clean(node.log)
    node.fs.make_dirs("/copy")
    copy_cut(node.fs, cut, {"/data": "/copy"})
    copy = Node(compacted(), fs=node.fs, paths=["/copy"])
    assert log_bytes(copy.log) == content


def test_it_fails_if_they_are_gone() -> None:
    node, cut, _ = captured()
    clean(node.log)
    node.clock.advance(1_000)
    node.manager.run_due()
    node.fs.make_dirs("/copy")
    with pytest.raises(BackupFailed, match="try again"):
        copy_cut(node.fs, cut, {"/data": "/copy"})


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_was_active_may_be_cleaned_meanwhile(is_gone: bool) -> None:
    """A file of its name is another one then."""
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"1"))
    log.flush()
    cut, content = NodeCut(("/data",), (CapturedLog.of(log).cut(str),)), log_bytes(log)
    put(log, *((b"%d" % key, b"x" * 100) for key in range(100)))
    log.roll()
    clean(log)
    node.fs.make_dirs("/copy")
    if is_gone:
        node.clock.advance(1_000)
        node.manager.run_due()
        with pytest.raises(BackupFailed, match="try again"):
            copy_cut(node.fs, cut, {"/data": "/copy"})
        return
    copy_cut(node.fs, cut, {"/data": "/copy"})
    copy = Node(compacted(), fs=node.fs, paths=["/copy"])
    assert log_bytes(copy.log) == content
