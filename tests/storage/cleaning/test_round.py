"""A round on a real log."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from dohle.records.batch import Codec, RecordBatch
from dohle.storage.cleaning.round_values import CleaningAborted, Uncleanable
from dohle.storage.cleaning.selection import look_at
from dohle.storage.log_read import aborted_transactions, read
from dohle.storage.log_values import Isolation
from tests.storage.cleaning.cleaning import (
    clean,
    compacted,
    end,
    keyed,
    last_values,
    offsets_of,
    put,
    read_all,
    shapes,
    tiny_map,
)
from tests.storage.logs import LEADER_EPOCH, NOW_MS, Node, log_batches

DAY_MS = 86_400_000


def test_of_each_key_the_last_value_stays() -> None:
    """Compaction 7b: and what is in the active segment is not touched."""
    log = Node(compacted()).log
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.roll()
    put(log, (b"b", b"2"))
    log.roll()
    put(log, (b"a", b"3"))
    round = clean(log)
    assert round.end_offset == 4
    assert offsets_of(log) == [2, 3, 4]
    assert log.segments.base_offsets == (0, 4)
    assert shapes(log)[0] == (0, 2, [2], False)
    assert look_at(log, round.end_offset, NOW_MS).is_eligible is False
    assert round.statistics.messages_read == 4
    assert round.statistics.messages_written == 2


def test_a_tombstone_goes_in_the_first_round_after_its_horizon() -> None:
    """Compaction 7b.4 and 7c."""
    log = Node(compacted()).log
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    [_, batch, _] = log_batches(log) if len(log_batches(log)) == 3 else [None, *log_batches(log)]
    assert isinstance(batch, RecordBatch)
    assert batch.delete_horizon_ms == NOW_MS + DAY_MS
    assert [record.timestamp for record in batch] == [NOW_MS, NOW_MS]
    clean(log, 3, NOW_MS + DAY_MS - 1)
    assert offsets_of(log) == [1, 2, 3]
    clean(log, 3, NOW_MS + DAY_MS)
    assert offsets_of(log) == [2, 3]


def test_aborted_data_goes_at_once_and_its_marker_after_a_horizon() -> None:
    """Compaction 8."""
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"))
    put(log, (b"a", b"no"), pid=5, sequence=0, transactional=True)
    end(log, 5, commit=False)
    put(log, (b"b", b"1"), pid=6, sequence=0, transactional=True)
    end(log, 6, commit=True)
    # Both have written since, so that nothing is kept as their last batch.
    put(log, (b"c", b"1"), pid=5, sequence=1)
    put(log, (b"c", b"1"), pid=6, sequence=1)
    log.roll()
    put(log, (b"d", b"1"))
    before = read_all(log, Isolation.TXN_COMMITTED)
    clean(log)
    assert offsets_of(log) == [0, 2, 3, 4, 6, 7]
    assert [one.last_offset for one in aborted_transactions(log.segments, 0, 100)] == [2]
    assert last_values(read_all(log, Isolation.TXN_COMMITTED)) == last_values(before)
    clean(log)
    marker = next(b for b in log_batches(log) if b.base_offset == 2)
    assert isinstance(marker, RecordBatch)
    assert marker.delete_horizon_ms == NOW_MS + DAY_MS
    assert aborted_transactions(log.segments, 0, 100) == []
    clean(log, None, NOW_MS + DAY_MS)
    assert offsets_of(log) == [0, 3, 4, 6, 7]


def test_the_last_batch_of_an_active_producer_stays_without_records() -> None:
    """Compaction 7a: so a retry is still a duplicate with the old offset."""
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"), (b"a", b"2"), pid=5, sequence=0)
    put(log, (b"a", b"3"))
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    assert shapes(log)[0] == (0, 1, [], False)
    assert log_batches(log)[0].last_sequence == 1
    for name in node.files(".snapshot"):
        node.remove(name)
    log = node.restart(clean=False)
    assert put(log, (b"a", b"1"), (b"a", b"2"), pid=5, sequence=0) == 0


def test_a_map_that_is_too_small_takes_several_rounds() -> None:
    """Compaction 5: it ends there where the map is full, maybe inside a batch."""
    log = Node(compacted()).log
    for value in (b"1", b"2"):
        put(log, *((b"%d" % key, value) for key in range(10)))
    log.roll()
    put(log, (b"z", b""))
    checkpoint, rounds = 0, 0
    while checkpoint < 20:
        rounds += 1
        checkpoint = clean(log, checkpoint, settings=tiny_map(4)).end_offset
    assert rounds > 3
    assert offsets_of(log) == list(range(10, 21))


def test_records_without_a_key_are_dropped_and_counted() -> None:
    """Compaction 7b.2."""
    log = Node(compacted()).log
    put(log, (None, b"1"), (b"a", b"1"))
    log.roll()
    put(log, (None, b"1"))
    assert clean(log).statistics.invalid_messages == 1
    assert offsets_of(log) == [1, 2]


def test_what_has_not_changed_is_not_written() -> None:
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll()
    put(log, (b"z", b""))
    segment, files = log.segments.first, node.files()
    assert clean(log).statistics.bytes_written == 0
    assert log.segments.first is segment
    assert node.files() == files


def test_vanished_segments_lose_their_snapshots_and_files() -> None:
    """Compaction 9: after ``file.delete.delay.ms``."""
    node = Node(compacted())
    log = node.log
    for number in range(4):
        put(log, (b"a", b"1"), pid=5, sequence=number)
        log.roll()
    put(log, (b"z", b""))
    slice = read(log, 1, 1000).slice
    assert slice is not None
    content = slice.read()
    clean(log)
    assert log.segments.base_offsets == (0, 4)
    assert log.producer_state.snapshots.offsets == (4,)
    assert slice.read() == content
    node.clock.advance(1_000)
    node.manager.run_due()
    assert not any(name.endswith((".deleted", ".swap", ".cleaned")) for name in node.names())
    before = (log.log_start_offset, log.log_end_offset, shapes(log))
    log = node.restart(clean=True)
    assert (log.log_start_offset, log.log_end_offset, shapes(log)) == before


@pytest.mark.parametrize(("position", "reason"), [(65, "checksum"), (70, "out of order")])
def test_a_damaged_batch_makes_the_log_uncleanable(position: int, reason: str) -> None:
    """Compaction 4: its files are left as they are."""
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    log.flush()
    node.disk.flip_bit(log.segments.first.path, position, 0)
    files = node.files()
    with pytest.raises(Uncleanable, match=rf"0000\.log: .*{reason}"):
        clean(log)
    assert node.files() == files


@pytest.mark.parametrize("step", range(15))
def test_a_truncation_between_any_two_steps_is_never_undone(step: int) -> None:
    """Compaction 10 and 16.11: also if a crash comes right behind it."""
    node = Node(compacted())
    log = node.log
    for number in range(4):
        put(log, (b"a", b"%d" % number), (b"b%d" % number, b""))
        log.roll()
    put(log, (b"z", b""))
    log.flush()
    steps = 0

    def truncate() -> None:
        nonlocal steps
        steps += 1
        if steps == step + 1:
            log.truncate_to(4)
            fs = node.disk.copy()
            fs.power_loss_everything_unsynced_lost()
            other = Node(compacted(), fs=fs)
            assert other.log.log_end_offset == 4
            other.kill()

    with suppress(CleaningAborted):
        clean(log, between=truncate)
    assert log.log_end_offset == (4 if steps > step else 9)
    assert not any(name.endswith((".swap", ".cleaned")) for name in node.names())
    end_offset, found = log.log_end_offset, shapes(log)
    log = node.restart(clean=False)
    assert (log.log_end_offset, shapes(log)) == (end_offset, found)


def test_a_tombstone_stays_until_a_round_after_the_one_that_sees_it() -> None:
    """Its batch has a horizon before, if the map ended within it."""
    log = Node(compacted(delete_retention_ms=1_000)).log
    put(log, (b"k", b"old"))
    log.roll()
    put(log, (b"a", None), (b"b", None), (b"k", None))
    log.roll()
    put(log, (b"z", b""))
    assert clean(log, 0, settings=tiny_map(1)).end_offset == 2
    assert offsets_of(log) == [0, 1, 2, 3, 4]
    checkpoint = clean(log, 2, NOW_MS + 1_000).end_offset
    assert offsets_of(log) == [2, 3, 4]
    clean(log, checkpoint, NOW_MS + 1_000)
    assert offsets_of(log) == [4]


def test_what_was_accepted_can_be_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of what a batch may decompress to is that of produce: it grows with the batch."""
    for module in ("codecs", "scratch"):
        name = f"dohle.records.compression.{module}.DECOMPRESSED_BYTES_MAX"
        monkeypatch.setattr(name, 1_000_000, raising=False)
    value = random.Random(1).randbytes(40_000) + bytes(4_000_000)
    accepted = keyed([(b"a", value), (b"a", b"")], codec=Codec.ZSTD)
    log = Node(compacted()).log
    log.append_as_leader(accepted, LEADER_EPOCH)
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    assert offsets_of(log) == [1, 2]
