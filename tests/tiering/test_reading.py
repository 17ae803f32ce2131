"""Reading remote segments by their cached indexes: the same as reading the log (T10, T12)."""

from __future__ import annotations

from random import Random

import pytest

from dohle.core.ids import Uuid
from dohle.records.batch import batches
from dohle.records.record import Record
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.leader_epochs import encode_leader_epochs
from dohle.storage.log import Log
from dohle.testing.simulation.files import SimulatedFileSystem
from dohle.tiering.index_cache import IndexCache
from dohle.tiering.layout import INDEXES, LOG, MANIFEST, object_key
from dohle.tiering.reading import SegmentAt
from dohle.tiering.segments import RemoteSegment, SegmentId
from dohle.tiering.store import FolderStore, StoreError
from dohle.tiering.upload import CopyJob
from tests.storage.logs import (
    NOW_MS,
    Node,
    append,
    append_marker,
    append_transactional,
    batch,
)
from tests.tiering.values import TOPIC_ID

_CACHE = "/data/remote-log-index-cache"


def _copy(node: Node, base: int) -> RemoteSegment:
    """Copy a closed segment of a node's log to its store."""
    log = node.log
    local, behind = log.segments.from_offset(base)[:2]
    snapshot = log.producer_state.snapshots.find(behind.base_offset)
    assert snapshot is not None
    local.indexes.write_out()
    segment = RemoteSegment(
        SegmentId("orders", TOPIC_ID, 0, Uuid(base.to_bytes(16, "big"))),
        base,
        behind.base_offset - 1,
        local.largest_timestamp_ms(),
        1,
        NOW_MS,
        ((4, base),),
        local.size,
    )
    CopyJob(
        segment,
        log_path=local.path,
        offset_index_path=local.indexes.offset.path,
        time_index_path=local.indexes.time.path,
        txn_index_path=None if local.indexes.txn.is_empty else local.indexes.txn.path,
        snapshot_path=snapshot,
        epochs=encode_leader_epochs(log.leader_epochs.entries),
    ).run(node.fs, FolderStore(node.fs, "/store"))
    return segment


def _cache(node: Node, bytes_max: int = 1 << 20) -> IndexCache:
    cache = IndexCache(node.fs, _CACHE, bytes_max)
    cache.open()
    return cache


def _at(node: Node, segment: RemoteSegment) -> SegmentAt:
    store = FolderStore(node.fs, "/store")
    indexes = _cache(node).load(store, segment, "")
    return SegmentAt(node.fs, store, segment, indexes, "")


def _filled() -> Node:
    """A node whose log has a segment of 40 batches of 3 records, of different sizes, and more."""
    node = Node(LogConfig(index_interval_bytes=400, retention_ms=-1))
    for number in range(40):
        times = [NOW_MS + 10 * number + index for index in range(3)]
        append(node.log, batch(times, value=bytes(number * 13 % 200)))
    node.log.roll()
    append(node.log, batch([NOW_MS]))
    return node


def _local(log: Log, offset: int, limit: int, *, whole: bool) -> bytes:
    found = log_read.read(log, offset, limit, min_one_batch=whole)
    if found.slice is None or found.first_batch_incomplete:
        return b""
    return found.slice.read()


def test_every_offset_is_read_as_from_the_log_with_any_limit() -> None:
    """T12: from the batch that holds it on; the first one whole if that is asked."""
    node = _filled()
    at = _at(node, _copy(node, 0))
    for offset in range(120):
        for limit in (1, 100, 500, 3_000, 1 << 20):
            for whole in (True, False):
                found = at.read(offset, limit, whole_batch=whole)
                assert found is not None
                assert found.records == _local(node.log, offset, limit, whole=whole)
                if found.records:
                    ends = [each.next_offset for each in batches(found.records)]
                    assert ends == [] or found.upper >= ends[-1]


def test_behind_its_last_record_a_segment_has_nothing() -> None:
    """T12: then the next segment is looked at."""
    node = _filled()
    assert _at(node, _copy(node, 0)).read(120, 100, whole_batch=True) is None


def test_a_time_is_found_as_in_the_log() -> None:
    """T13."""
    node = _filled()
    at = _at(node, _copy(node, 0))
    for timestamp in range(NOW_MS - 5, NOW_MS + 393, 7):
        for start in (0, 60):
            wanted = node.log.segments.first.reader.find_by_timestamp(timestamp, start)
            assert at.find_by_timestamp(timestamp, start) == wanted
    assert at.find_by_timestamp(NOW_MS + 10_000, 0) is None


def test_aborted_transactions_come_from_the_index_in_the_store() -> None:
    """T12."""
    node = Node(LogConfig(retention_ms=-1))
    append_transactional(node.log, 7, 0, 3)
    append_marker(node.log, 7, commit=False)
    append_transactional(node.log, 7, 3, 2)
    append_marker(node.log, 7, commit=True)
    node.log.update_high_watermark(node.log.log_end_offset)
    node.log.roll()
    found = _at(node, _copy(node, 0)).read(0, 1 << 20, whole_batch=True)
    assert found is not None
    assert [(each.producer_id, each.first_offset) for each in found.aborted] == [(7, 0)]


def test_a_damaged_or_missing_object_is_a_store_error() -> None:
    """T15a: never an empty answer, nor other records."""
    node = _filled()
    segment = _copy(node, 0)
    at = _at(node, segment)
    disk = node.disk
    path = f"/store/{object_key(segment, LOG)}"
    disk.put(path, disk.read(path)[:50])
    with pytest.raises(StoreError):
        at.read(60, 1000, whole_batch=True)
    disk.remove(path)
    with pytest.raises(StoreError):
        at.read(60, 1000, whole_batch=True)
    disk.put(f"/store/{object_key(segment, INDEXES)}", b"")
    with pytest.raises(StoreError, match="shorter"):
        _at(node, segment)
    disk.put(f"/store/{object_key(segment, MANIFEST)}", b"{}")
    with pytest.raises(StoreError, match="manifest"):
        _at(node, segment)


@pytest.mark.parametrize("position", [3, 7, 10, 30, 300, 2000])
def test_a_segment_that_is_damaged_on_the_disk_is_not_copied(position: int) -> None:
    """T27.1-2: its copy would take the place of the good ones that other replicas have."""
    node = _filled()
    node.disk.flip_bit(node.log.segments.first.path, position, 1)
    with pytest.raises(StoreError, match="damaged"):
        _copy(node, 0)
    assert not [path for path in node.disk.files() if path.startswith("/store")]


def test_no_flipped_bit_of_the_log_comes_to_a_reader() -> None:
    """T15a, T27.1: neither in what the checksum covers nor in the offsets, which it does not."""
    node = _filled()
    segment = _copy(node, 0)
    at, path = _at(node, segment), f"/store/{object_key(segment, LOG)}"

    def read(offset: int) -> list[tuple[int, int, list[Record]]]:
        found = at.read(offset, 1 << 20, whole_batch=True)
        assert found is not None
        return [(each.base_offset, each.last_offset, list(each)) for each in batches(found.records)]

    wanted = {offset: read(offset) for offset in (0, 60, 118)}
    refused = 0
    for position in (*range(61), *range(61, segment.size, 23)):
        node.disk.flip_bit(path, position, position % 8)
        for offset, good in wanted.items():
            try:
                found = read(offset)
            except StoreError:
                refused += 1
                continue
            # The last one may be cut, and is none then.
            assert found
            assert found == good[: len(found)]
        node.disk.flip_bit(path, position, position % 8)
    assert refused > 100


def test_what_the_log_has_no_more_is_not_read() -> None:
    """T8: an unclean election has cut the log at offset 60; the store has what was behind."""
    node = _filled()
    at = _at(node, _copy(node, 0))
    for offset in range(60):
        found = at.read(offset, 1 << 20, whole_batch=True, last=59)
        assert found is not None
        assert [each.next_offset for each in batches(found.records)][-1] == 60
        assert found.upper == 60
        assert not found.is_complete
    assert at.read(60, 1 << 20, whole_batch=True, last=59) is None


def test_the_cache_keeps_the_indexes_used_last_and_finds_them_after_a_restart() -> None:
    """T10: so many bytes; names and files are Kafka's."""
    node = Node(LogConfig(segment_bytes=2_000, index_interval_bytes=100, retention_ms=-1))
    for _ in range(60):
        append(node.log, batch([NOW_MS], value=bytes(100)))
    segments = [_copy(node, base) for base in node.log.segments.base_offsets[:3]]
    store, cache = FolderStore(node.fs, "/store"), _cache(node)
    loaded = [cache.load(store, each, "") for each in segments[:2]]
    assert cache.add(segments[0], loaded[0]) == []
    assert f"{_CACHE}/0_AAAAAAAAAAAAAAAAAAAAAA.index" in loaded[0].paths
    assert cache.add(segments[1], loaded[1]) == []
    again = _cache(node, loaded[0].size + loaded[1].size)
    assert again.get(segments[0]) is not None
    again.remove(again.add(segments[2], again.load(store, segments[2], "")))
    assert again.size <= loaded[0].size + loaded[1].size
    left = {path for path in node.disk.files() if path.startswith(_CACHE)}
    assert left == {path for each in again_cached(again, segments) for path in each}
    again.remove(again.forget(segments[2]))
    assert again.get(segments[2]) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_is_whole_after_a_power_cut(seed: int) -> None:
    """T10: an empty index of transactions would show aborted records to readers of committed."""
    node = Node(LogConfig(retention_ms=-1))
    append_transactional(node.log, 7, 0, 3)
    append_marker(node.log, 7, commit=False)
    node.log.update_high_watermark(node.log.log_end_offset)
    node.log.roll()
    segment = _copy(node, 0)
    node.disk.settle()
    _at(node, segment)
    node.disk.power_loss(Random(seed))
    indexes = _cache(node).get(segment)
    if indexes is not None:
        at = SegmentAt(node.fs, FolderStore(node.fs, "/store"), segment, indexes, "")
        found = at.read(0, 1 << 20, whole_batch=True)
        assert found is not None
        assert [each.producer_id for each in found.aborted] == [7]


def again_cached(cache: IndexCache, segments: list[RemoteSegment]) -> list[tuple[str, str, str]]:
    found = [cache.get(each) for each in segments]
    return [each.paths for each in found if each is not None]


def test_what_a_crash_has_left_in_the_cache_is_removed() -> None:
    """T10: unfinished files, and segments that have not all three."""
    fs = SimulatedFileSystem()
    name = "12_adh9f8BMS4anaUnD8KWfWg"
    fs.put(f"{_CACHE}/{name}.index", b"")
    fs.put(f"{_CACHE}/{name}.timeindex.tmp", b"x")
    fs.put(f"{_CACHE}/nonsense.index", b"")
    IndexCache(fs, _CACHE, 100).open()
    assert [path for path in fs.files() if path.startswith(_CACHE)] == []
