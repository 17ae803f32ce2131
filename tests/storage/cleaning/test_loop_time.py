"""How long the thread of the logs is held up by a round: processor time, not that of the clock."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from time import thread_time

import pytest

from dohle.core.ids import ProducerId
from dohle.core.steps import Steps, finish
from dohle.storage.cleaning.cleaner import LogCleaner
from dohle.storage.producers.entry import BatchMetadata, ProducerEntry
from dohle.storage.producers.state import AppendPlan
from tests.server.wire import UnsyncedFileSystem
from tests.storage.cleaning.cleaning import SETTINGS, compacted, put
from tests.storage.logs import NOW_MS, Node

#: What a turn of the loop may take.
STEP_S_MAX = 0.005
#: Another program may have emptied the processor's caches in between.
TRIES = 3
CONFIG = compacted(min_compaction_lag_ms=1, max_compaction_lag_ms=3_600_000)


def step_times_s(steps: Steps[bool]) -> list[float]:
    """Take a round, with its jobs beside it; return how long each step between them took."""
    found: list[float] = []
    result: object = None
    while True:
        begun_s = thread_time()
        try:
            step = steps.send(result)
        except StopIteration:
            return [*found, thread_time() - begun_s]
        found.append(thread_time() - begun_s)
        result = step() if callable(step) else None


def with_many_segments(path: Path, count: int = 5_000) -> Node:
    """A log of many segments, in which one key was written again and again."""
    node = Node(CONFIG, fs=UnsyncedFileSystem(), paths=[str(path)])
    for number in range(count):
        put(node.log, (b"key", b"%d" % number), timestamps=(NOW_MS - 7_200_000,))
        node.log.roll()
    # A node flushes each when it is rolled.
    node.log.flush()
    return node


def with_many_producers(path: Path, count: int = 160_000) -> Node:
    """A log of a few segments that many producers have written to."""
    node = Node(CONFIG, fs=UnsyncedFileSystem(), paths=[str(path)])
    log = node.log
    for number in range(40):
        put(log, (b"key", b"%d" % number), timestamps=(NOW_MS - 7_200_000,))
        if number % 4 == 0:
            log.roll()
    entries = {
        number: ProducerEntry(
            ProducerId(number), 0, -1, NOW_MS, batches=(BatchMetadata(0, number % 40, 0, NOW_MS),)
        )
        for number in range(count)
    }
    log.producer_state.commit(AppendPlan(log.log_end_offset, entries=entries))
    return node


def test_many_producers_do_not_make_the_collector_look_at_all_objects(tmp_path: Path) -> None:
    """Compaction 16.12: in whatever thread it runs, the loop would wait for it."""
    node = with_many_producers(tmp_path)
    cleaner = LogCleaner(node.manager, node.clock)
    collections = 0

    def count(phase: str, info: dict[str, int]) -> None:
        nonlocal collections
        collections += phase == "start" and info["generation"] == 2

    gc.collect()
    gc.callbacks.append(count)
    try:
        assert finish(cleaner.clean_next(SETTINGS))
    finally:
        gc.callbacks.remove(count)
    assert collections == 0
    node.kill()


@pytest.mark.parametrize("fill", [with_many_segments, with_many_producers])
def test_no_step_of_a_round_takes_longer_than_a_turn_may(
    fill: Callable[[Path], Node], tmp_path: Path
) -> None:
    """Compaction 16.12: choosing, the map, the swap of each group, the checkpoints."""
    shortest: list[float] = []
    for number in range(TRIES):
        node = fill(tmp_path / str(number))
        gc.collect()
        gc.disable()
        try:
            times = step_times_s(LogCleaner(node.manager, node.clock).clean_next(SETTINGS))
        finally:
            gc.enable()
        assert node.log.cleaner_offset, "nothing was cleaned"
        node.kill()
        # Each time the steps are the same.
        shortest = [min(both) for both in zip(times, shortest or times, strict=True)]
        if max(shortest) <= STEP_S_MAX:
            return
    pytest.fail(f"the longest step took {max(shortest) * 1000:.1f} ms")
