"""A segment whose offsets do not fit into four bytes is split when cleaned (compaction 7.4)."""

from __future__ import annotations

import random
from itertools import count

import pytest

from dohle.records.batch import Record
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.segment.index import MAX_RELATIVE_OFFSET
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.storage.cleaning.cleaning import (
    clean,
    compacted,
    end,
    keyed,
    last_values,
    offsets_of,
    put,
    read_all,
)
from tests.storage.logs import LEADER_EPOCH, PARTITION, Node, name_of

FAR = MAX_RELATIVE_OFFSET + 10
FARTHER = 2 * FAR
CONFIG = compacted()


def follow(log: Log, base_offset: int, *keys: bytes) -> None:
    """Append a batch at an offset of the leader's."""
    batch = keyed([(key, b"%d" % base_offset) for key in keys])
    batch[0:8] = base_offset.to_bytes(8, "big")
    batch[12:16] = LEADER_EPOCH.to_bytes(4, "big")
    log.append_as_follower(batch, LEADER_EPOCH)
    log.update_high_watermark(log.log_end_offset)


def overflowing(*, is_dirty: bool = True) -> Node:
    """A node with a segment whose offsets go from 0 to far beyond, as old brokers wrote them."""
    node = Node(CONFIG)
    log = node.log
    follow(log, 0, b"a", b"b")
    follow(log, FAR, b"a" if is_dirty else b"c", b"d")
    put(log, (b"aborted", b""), pid=2, sequence=0, transactional=True)
    end(log, 2, commit=False)
    follow(log, FARTHER, b"e")
    log.roll()
    put(log, (b"z", b""))
    node.stop()
    bases = (0, FAR, FARTHER)
    files = node.files()
    node.put(name_of(0, ".log"), b"".join(files[name_of(base, ".log")] for base in bases))
    for suffix in (".index", ".timeindex"):
        node.put(name_of(0, suffix), b"")
    # A transaction index has whole offsets; only its name says to which segment it belongs.
    node.put(name_of(0, ".txnindex"), files[name_of(FAR, ".txnindex")])
    for base in bases[1:]:
        for name in files:
            if name.startswith(name_of(base, "")):
                node.remove(name)
    node.start()
    assert node.log.segments.base_offsets == (0, FARTHER + 1)
    return node


def view(log: Log) -> list[Record]:
    return read_all(log, Isolation.TXN_COMMITTED)


@pytest.mark.parametrize("is_dirty", [True, False])
def test_it_becomes_several_segments_with_what_stays(is_dirty: bool) -> None:
    node = overflowing(is_dirty=is_dirty)
    log = node.log
    before = last_values(view(log))
    assert clean(log).end_offset == FARTHER + 1
    assert log.segments.base_offsets == (0, FAR, FARTHER, FARTHER + 1)
    kept = [1] if is_dirty else [0, 1]
    # The aborted data is gone, but for its producer's last batch, which has no records.
    assert offsets_of(log) == [*kept, FAR, FAR + 1, FAR + 3, FARTHER, FARTHER + 1]
    assert last_values(view(log)) == before
    for is_clean in (True, False):
        log = node.restart(clean=is_clean)
        assert log.segments.base_offsets == (0, FAR, FARTHER, FARTHER + 1)
        assert last_values(view(log)) == before
        assert log.segments.base_offsets == (0, FAR, FARTHER, FARTHER + 1)
    # From now on it is like any other.
    checkpoint = clean(log).end_offset
    assert last_values(view(log)) == before
    assert checkpoint == FARTHER + 1


def test_death_at_any_file_operation_leaves_one_or_the_others() -> None:
    node = overflowing()
    before, values = offsets_of(node.log), last_values(view(node.log))
    written = node.disk
    written.settle()
    for operations in count():
        fs = written.copy()
        fs.cut_after_operations(operations)
        is_complete = False
        try:
            log = opened(fs)
            clean(log)
            is_complete = True
        except SimulatedCrash:
            pass
        for seed in range(4):
            left = fs.copy()
            if seed == 0:
                left.crash()
            elif seed == 1:
                left.power_loss_everything_unsynced_lost()
            else:
                left.power_loss(random.Random(seed * 10_000 + operations))
            log = opened(left)
            bases = log.segments.base_offsets
            assert bases in ((0, FARTHER + 1), (0, FAR, FARTHER, FARTHER + 1))
            assert last_values(view(log)) == values
            assert set(offsets_of(log)) <= set(before)
            assert not [path for path in left.files() if path.endswith((".swap", ".cleaned"))]
        if is_complete:
            break


def opened(fs: SimulatedFileSystem) -> Log:
    return Node(CONFIG, fs=fs).create(PARTITION)
