"""Which log is cleaned next, what ends a round, and which logs are left alone."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import finish
from dohle.storage.cleaning.cleaner import LogCleaner
from dohle.storage.directory.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from dohle.storage.log import Log
from dohle.storage.moves.move import ReplicaMove
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.cleaning.cleaning import SETTINGS, compacted, offsets_of, put
from tests.storage.logs import PARTITION, TOPIC_ID, Node

OTHER = TopicPartition(TopicName("other"), 0)
COMPACTED = compacted(max_compaction_lag_ms=10**15)
ENDS = (".cleaned", ".swap")


def fill(log: Log, segments: int = 3) -> None:
    """Write one key again and again, with a new segment after each."""
    for number in range(segments):
        put(log, (b"a", b"%d" % number), (b"a", b"again"))
        log.roll()


def dirty(paths: tuple[str, ...] = ("/data",)) -> tuple[Node, LogCleaner]:
    node = Node(COMPACTED, paths=paths)
    fill(node.log)
    return node, LogCleaner(node.manager, node.clock)


def clean(cleaner: LogCleaner) -> bool:
    return finish(cleaner.clean_next(SETTINGS))


def clean_with(cleaner: LogCleaner, event: Callable[[], object], jobs: int) -> None:
    """Take a round in which something happens while the job of this number runs."""
    steps = cleaner.clean_next(SETTINGS)
    result: object = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration:
            return
        result = step() if callable(step) else None
        if callable(step):
            jobs -= 1
            if jobs == 0:
                event()


def test_a_dirty_log_is_cleaned_once_and_that_is_kept() -> None:
    node, cleaner = dirty()
    assert clean(cleaner)
    assert offsets_of(node.log) == [5]
    assert node.log.cleaner_offset == 6
    assert read_offsets(node.fs, f"/data/{CLEANER_OFFSET_CHECKPOINT}") == {PARTITION: 6}
    assert not clean(cleaner)
    node.restart(clean=False)
    assert not clean(LogCleaner(node.manager, node.clock))
    assert offsets_of(node.log) == [5]


def test_the_dirtiest_log_comes_first() -> None:
    """Compaction 3, 8."""
    node, cleaner = dirty()
    clean(cleaner)
    fill(node.log, 2)
    fill(node.create(OTHER))
    # Of the first a part is clean, of the other nothing.
    assert clean(cleaner)
    assert node.create(OTHER).cleaner_offset == 6
    assert node.log.cleaner_offset == 6
    assert clean(cleaner)
    assert node.log.cleaner_offset == 10
    assert not clean(cleaner)


def test_only_compacted_logs_are_cleaned() -> None:
    node, cleaner = dirty()
    node.log.update_config(replace(COMPACTED, cleanup_policy=frozenset({"delete"})))
    assert not clean(cleaner)
    assert len(offsets_of(node.log)) == 6


def test_recovery_knows_of_gaps_before_there_are_any() -> None:
    """Compaction 9, ADR 4: the entry is on the disk before the first file is replaced."""
    node, cleaner = dirty()
    steps = cleaner.clean_next(SETTINGS)
    result: object = None
    while not any(name.endswith(".swap") for name in node.names()):
        step = steps.send(result)
        result = step() if callable(step) else None
    assert read_offsets(node.fs, f"/data/{CLEANER_OFFSET_CHECKPOINT}") == {PARTITION: 0}
    assert read_offsets(node.fs, f"/data/{RECOVERY_POINT_CHECKPOINT}") == {PARTITION: 6}
    steps.close()


DELETED = replace(COMPACTED, cleanup_policy=frozenset({"delete"}))
EVENTS: dict[str, Callable[[Node], object]] = {
    "policy": lambda node: node.log.update_config(DELETED),
    "nothing cut": lambda node: node.log.truncate_to(6),
    "a record cut": lambda node: node.log.truncate_to(5),
    "all cut": lambda node: node.log.truncate_fully_and_start_at(3),
    "deletion": lambda node: node.manager.delete(PARTITION),
}


@pytest.mark.parametrize("jobs", range(1, 13))
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("is_second", [False, True], ids=["first round", "second round"])
def test_whatever_happens_to_a_log_ends_its_round(event: str, jobs: int, is_second: bool) -> None:
    """Compaction 10: at any job; what is left has the last value, and no file of the round."""
    node, cleaner = dirty()
    if is_second:
        clean(cleaner)
        fill(node.log, 2)
    put(node.log, (b"b", b"kept"))
    clean_with(cleaner, lambda: EVENTS[event](node), jobs)
    assert cleaner.uncleanable == {}
    if PARTITION not in node.manager.directories[0].logs:
        return
    log = node.log
    assert not any(name.endswith(ENDS) for name in node.names())
    assert log.cleaner_offset is None or log.cleaner_offset <= log.segments.active.base_offset
    if log.log_end_offset >= 6 and not is_second:
        assert 5 in offsets_of(log)


def begin_move(node: Node) -> ReplicaMove:
    source = node.manager.directory_of(PARTITION)
    assert source is not None
    (target,) = (each for each in node.manager.directories if each is not source)
    return ReplicaMove(node.log, source, target, TOPIC_ID)


def finish_move(move: ReplicaMove) -> None:
    while (job := move.next_job(1 << 20)) is not None:
        move.complete(job, job.run())
    move.finish().run()


def test_a_log_that_moves_is_left_alone_until_it_has() -> None:
    """Compaction 10."""
    node, cleaner = dirty(("/a", "/b"))
    move = begin_move(node)
    assert not clean(cleaner)
    finish_move(move)
    assert clean(cleaner)
    assert offsets_of(node.log) == [5]


@pytest.mark.parametrize("jobs", range(1, 8))
def test_a_move_that_begins_while_a_log_is_cleaned_ends_the_round(jobs: int) -> None:
    node, cleaner = dirty(("/a", "/b"))
    moves: list[ReplicaMove] = []
    clean_with(cleaner, lambda: moves.append(begin_move(node)), jobs)
    for move in moves:
        finish_move(move)
    assert offsets_of(node.log)[-1] == 5
    assert offsets_of(node.restart(clean=False))[-1] == 5


@pytest.mark.parametrize("jobs", range(1, 8))
def test_a_stop_gives_up_the_round(jobs: int) -> None:
    node, cleaner = dirty()
    clean_with(cleaner, cleaner.stop, jobs)
    assert not any(name.endswith(ENDS) for name in node.names())
    assert offsets_of(node.log)[-1] == 5
    assert not clean(cleaner)


@pytest.mark.parametrize("jobs", range(1, 13))
def test_rounds_that_are_given_up_begin_again(jobs: int) -> None:
    """Compaction 2: as they do when settings of the cleaner are altered."""
    node, cleaner = dirty()
    clean_with(cleaner, cleaner.give_up_rounds, jobs)
    assert not any(name.endswith(ENDS) for name in node.names())
    assert offsets_of(node.log)[-1] == 5
    clean(cleaner)
    assert offsets_of(node.log) == [5]
    assert not clean(cleaner)


def test_no_round_begins_with_settings_that_were_altered_meanwhile() -> None:
    """Compaction 2: while a log is chosen, others have their turn."""
    node, cleaner = dirty()
    steps = cleaner.clean_next(SETTINGS)
    assert next(steps) is None
    cleaner.give_up_rounds()
    assert finish(steps)
    assert len(offsets_of(node.log)) == 6
    assert clean(cleaner)
    assert offsets_of(node.log) == [5]


def test_a_log_that_is_damaged_is_kept_apart_and_the_others_are_cleaned() -> None:
    """Compaction 4."""
    node, cleaner = dirty()
    fill(node.create(OTHER))
    path = node.log.segments.first.path
    file = node.fs.open(path, write=True)
    file.write_at(70, b"\xff\xff\xff")
    file.close()
    while clean(cleaner):
        pass
    assert list(cleaner.uncleanable) == [PARTITION]
    assert "offsets 0 to 1" in cleaner.uncleanable[PARTITION]
    assert node.create(OTHER).cleaner_offset == 6
    # With the log the reason goes.
    node.manager.delete(PARTITION)
    clean(cleaner)
    assert cleaner.uncleanable == {}


def test_a_disk_that_fails_takes_its_directory_offline() -> None:
    node, cleaner = dirty(("/a", "/b"))
    path = node.log.directory.rpartition("/")[0]
    node.disk.fail(Operation.WRITE, lambda path: path.endswith(".log.cleaned"), errno.EIO)
    clean(cleaner)
    assert list(node.manager.offline_directories) == [path]
    assert not clean(cleaner)


def test_without_room_for_the_new_files_it_is_tried_again_after_the_others() -> None:
    """And not at once: that would take a whole processor."""
    node, cleaner = dirty()
    other = node.create(OTHER)
    for number in range(2):
        put(other, (b"%d" % number, b""))
    other.roll()
    node.disk.fail(
        Operation.WRITE,
        lambda path: path.startswith(node.log.directory) and path.endswith(".log.cleaned"),
        errno.ENOSPC,
    )
    assert [clean(cleaner) for _ in range(4)] == [True, True, False, True]
    assert other.cleaner_offset == 2
    assert node.manager.offline_directories == {}
    node.disk.heal()
    assert not clean(cleaner)
    assert clean(cleaner)
    assert offsets_of(node.log) == [5]


@pytest.mark.parametrize("jobs", range(1, 9))
def test_a_swap_that_cannot_be_completed_is_not_left_for_another_round(jobs: int) -> None:
    """The next one would take the new files' names for its own, and delete them."""
    node, cleaner = dirty()
    folder = node.log.directory

    def fail() -> None:
        node.disk.fail(Operation.SYNC_DIR, lambda path: path == folder, errno.EMFILE)

    clean_with(cleaner, fail, jobs)
    node.disk.heal()
    if node.manager.offline_directories:
        node.restart(clean=False)
        cleaner = LogCleaner(node.manager, node.clock)
    assert not [name for name in node.names() if name.endswith(ENDS[1])]
    fill(node.log)
    for _ in range(2):
        clean(cleaner)
    node.clock.advance(100_000)
    node.manager.run_due()
    assert offsets_of(node.log) == [11]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_log_that_cannot_be_flushed_takes_its_directory_offline(code: int) -> None:
    """Once a sync has failed, the next one may succeed without the data."""
    node, cleaner = dirty()
    node.disk.fail(Operation.SYNC, lambda path: path.endswith(".log"), code)
    clean(cleaner)
    assert list(node.manager.offline_directories) == ["/data"]


def test_old_segments_of_compacted_logs_are_expired_by_the_cleaner() -> None:
    """Compaction 4: with ``delete`` in the policy by age, too."""
    node, cleaner = dirty()
    both = replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1_000)
    node.log.update_config(both)
    node.clock.advance(2_000)
    node.manager.run_due()
    assert node.log.log_start_offset == 0
    finish(cleaner.expire())
    assert node.log.log_start_offset == 6


def test_the_room_that_appends_leave_is_left_by_the_cleaner_too() -> None:
    """Else the next checkpoint would find none, and take the directory offline."""
    node, cleaner = dirty()
    put(node.log, *((b"%d" % number, bytes(100)) for number in range(100)))
    node.log.roll()
    size, disk = node.log.size, node.log.files.context.disk
    used = sum(map(len, node.disk.files().values()))
    node.fs.make_dirs("/data/others")
    file = node.fs.open("/data/others/file", write=True, create=True)
    file.write_at(0, bytes(2_000_000 - used - 15_000))
    node.disk.set_capacity("/data", 2_000_000)
    # A disk of this size counts as full with 20,000 free bytes, and 10,000 have to be left.
    assert clean(cleaner)
    assert node.log.size == size > 5_000
    assert node.manager.offline_directories == {}
    file.truncate(1_000_000)
    disk.budget_bytes = 1 << 30
    assert not clean(cleaner)
    assert clean(cleaner)
    assert node.log.size < size
    # How much room there is for appends is looked at again.
    assert disk.budget_bytes == 0


@pytest.mark.parametrize("jobs", range(1, 8))
def test_a_new_log_of_the_same_name_waits_for_the_end_of_the_old_ones_round(jobs: int) -> None:
    """Whose job would remove its files."""
    node, cleaner = dirty()

    def recreate() -> None:
        if PARTITION in node.manager.directories[0].logs:
            node.manager.delete(PARTITION)
            fill(node.create(PARTITION))
            assert not clean(cleaner)

    clean_with(cleaner, recreate, jobs)
    clean(cleaner)
    assert offsets_of(node.log) == [5]
