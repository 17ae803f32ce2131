"""What else happens to a log between any two steps of a round (compaction 10, 11)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import RecordBatch, batches
from dohle.records.legacy import encode_message
from dohle.storage.cleaning.round import CleaningRound
from dohle.storage.cleaning.round_values import CleaningAborted, Uncleanable
from dohle.storage.cleaning.selection import look_at
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.log import Log
from dohle.storage.log_read import read
from tests.storage.cleaning.cleaning import (
    SETTINGS,
    clean,
    compacted,
    keyed,
    last_values,
    offsets_of,
    put,
    read_all,
    shapes,
)
from tests.storage.logs import NOW_MS, Node, log_batches, property_test

LEFTOVERS = (".cleaned", ".swap")
BOTH = replace(compacted(300), cleanup_policy=frozenset({"compact", "delete"}))


def filled(node: Node, segments: int = 6) -> Log:
    log = node.log
    for number in range(segments):
        put(log, (b"a", b"%d" % number), (b"k%d" % number, b"v" * 80), pid=4, sequence=2 * number)
        put(log, (b"b", b"%d" % number))
        log.roll()
    put(log, (b"z", b""))
    return log


@property_test(60)
@given(st.lists(st.sampled_from(["", "", "append", "roll", "read", "flush", "time"]), max_size=40))
def test_appends_reads_rolls_and_flushes_go_on(events: list[str]) -> None:
    """16.1: at every moment each key's last value is there, also for who has begun to read."""
    node = Node(compacted(300))
    log = filled(node)
    model = last_values(read_all(log))
    held = read(log, 0, 1 << 20, min_one_batch=True).slice
    assert held is not None
    content = held.read()
    coming = iter(events)

    def happen() -> None:
        event = next(coming, "")
        if event == "append":
            value = b"%d" % log.log_end_offset
            put(log, (b"a", value), (b"n", value))
            model.update({b"a": value, b"n": value})
        elif event == "roll":
            log.roll()
        elif event == "flush":
            log.flush()
        elif event == "time":
            node.clock.advance(2_000)
            node.manager.run_due()
            node.manager.flush_due_now()
        assert last_values(read_all(log)) == model

    clean(log, between=happen)
    assert held.read() == content
    assert not any(name.endswith(LEFTOVERS) for name in node.names())
    found, known = shapes(log), dict(log.producer_state.producers)
    log = node.restart(clean=False)
    log.update_high_watermark(log.log_end_offset)
    assert last_values(read_all(log)) == model
    assert shapes(log) == found
    assert log.producer_state.producers.keys() == known.keys()


@pytest.mark.parametrize("step", range(24))
def test_retention_between_any_two_steps_takes_what_it_must(step: int) -> None:
    """10: DeleteRecords and retention win; a start right behind them finds nothing of it again."""
    node = Node(BOTH)
    log = filled(node)
    log.flush()
    steps = 0

    def retain() -> None:
        nonlocal steps
        steps += 1
        if steps == step + 1:
            log.delete_records(7)
            delete_old_segments(log, NOW_MS)
            node.manager.directories[0].checkpoints.write_log_start_offsets()
            first = log.segments.first.base_offset
            crashed = node.disk.copy()
            crashed.crash()
            other = Node(BOTH, fs=crashed)
            other.log.update_high_watermark(other.log.log_end_offset)
            assert other.log.segments.first.base_offset == first
            assert last_values(read_all(other.log)) == last_values(read_all(log))
            other.kill()

    with suppress(CleaningAborted):
        clean(log, between=retain)
    expected = {b"a": b"5", b"b": b"5", b"z": b""}
    assert expected.items() <= last_values(read_all(log)).items()
    assert not any(name.endswith(LEFTOVERS) for name in node.names())
    found = shapes(log)
    log = node.restart(clean=False)
    assert shapes(log) == found


@pytest.mark.parametrize("step", range(24))
def test_a_round_that_is_given_up_leaves_a_whole_log(step: int) -> None:
    """4: what was swapped stays so, all else is as it was, and another round can follow."""
    node = Node(compacted(300))
    log = filled(node)
    model = last_values(read_all(log))
    round = CleaningRound(log, look_at(log, None, NOW_MS), SETTINGS, NOW_MS)
    jobs = 0
    with suppress(CleaningAborted):
        while (job := round.next_job()) is not None:
            if jobs == step:
                round.abort()
            job.run()
            if jobs + 1 == step:
                round.abort()
            round.complete(job)
            jobs += 2
    assert round.next_job() is None
    assert not any(name.endswith(LEFTOVERS) for name in node.names())
    assert last_values(read_all(log)) == model
    clean(log)
    assert last_values(read_all(log)) == model
    log = node.restart(clean=False)
    log.update_high_watermark(log.log_end_offset)
    assert last_values(read_all(log)) == model


def test_the_throttle_is_told_of_all_bytes() -> None:
    """4: those read for the map and for the rewriting, and those written."""
    log = filled(Node(compacted(300)))
    told: list[int] = []
    round = clean(log, settings=replace(SETTINGS, throttle=told.append))
    found = round.statistics
    assert sum(told) == found.map_bytes_read + found.bytes_read + found.bytes_written


def test_an_error_of_the_disk_is_told_as_such() -> None:
    def fail(_: int) -> None:
        raise OSError(5, "broken")

    log = filled(Node(compacted(300)))
    with pytest.raises(OSError, match="broken"):
        clean(log, settings=replace(SETTINGS, throttle=fail))


def test_old_messages_are_cleaned_into_batches_of_format_2() -> None:
    """7a: magic 0 and 1."""
    node = Node(compacted())
    log = node.log
    for offset, (key, value) in enumerate(((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))):
        log.append_as_follower(bytearray(encode_message(offset, 1, 0, NOW_MS, key, value)), 1)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    assert offsets_of(log) == [1, 2, 3]
    assert all(isinstance(batch, RecordBatch) for batch in log_batches(log))


def test_offsets_that_do_not_fit_are_never_grouped() -> None:
    """6: relative offsets."""
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"))
    log.roll()
    far = keyed([(b"a", b"2")])
    far[0:8] = (2**31 + 5).to_bytes(8, "big")
    far[12:16] = (4).to_bytes(4, "big")
    assert next(batches(far)).base_offset == 2**31 + 5
    log.append_as_follower(far, 4)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    assert len(log.segments) == 3
    assert last_values(read_all(log)) == {b"a": b"2", b"z": b""}
    assert Uncleanable("reason").reason == "reason"


def test_a_job_and_who_gives_its_round_up_may_remove_the_same_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the same moment: that one of them is too late takes nothing offline."""
    node = Node(compacted())
    log = filled(node)
    cleaning = CleaningRound(log, look_at(log, None, NOW_MS), SETTINGS, NOW_MS)
    for _ in range(2):
        job = cleaning.next_job()
        assert job is not None
        job.run()
        if not node.files(".cleaned"):
            cleaning.complete(job)
    assert node.files(".cleaned")
    remove = log.fs.remove

    def too_late(path: str) -> None:
        with suppress(FileNotFoundError):
            remove(path)
        remove(path)

    monkeypatch.setattr(log.fs, "remove", too_late)
    cleaning.abort()
    assert not node.files(".cleaned")
