"""A log that is cleaned and moved to another directory at the same time (compaction 10)."""

from __future__ import annotations

from contextlib import suppress

import pytest

from dohle.storage.cleaning.round_values import CleaningAborted
from tests.storage.cleaning.cleaning import clean, compacted, last_values, put, read_all, shapes
from tests.storage.logs import Node
from tests.storage.moves.moving import assign, begin, catch_up, two_directories


def filled() -> Node:
    node = two_directories(compacted(300))
    for number in range(6):
        put(node.log, (b"a", b"%d" % number), (b"k%d" % number, b"v" * 80))
        node.log.roll()
    put(node.log, (b"z", b""))
    return node


def check(node: Node, model: dict[bytes, bytes | None]) -> None:
    log = node.log
    assert log.directory == "/b/orders-0"
    assert last_values(read_all(log)) == model
    names = {entry.name for entry in node.fs.list_dir("/b/orders-0")}
    assert not any(name.endswith((".swap", ".cleaned")) for name in names)
    found = shapes(log)
    assign(node, "/b")
    for is_clean in (False, True):
        log = node.restart(clean=is_clean)
        assert shapes(log) == found


def test_a_move_goes_on_between_the_steps_of_a_cleaning() -> None:
    node = filled()
    model = last_values(read_all(node.log))
    move = begin(node)

    def copy() -> None:
        if (job := move.next_job(200)) is not None:
            move.complete(job, job.run())

    clean(node.log, between=copy)
    catch_up(move)
    move.finish().run()
    check(node, model)


@pytest.mark.parametrize("step", range(25))
def test_a_move_that_ends_between_any_two_steps_ends_the_cleaning(step: int) -> None:
    node = filled()
    model = last_values(read_all(node.log))
    move, steps = begin(node), 0

    def finish() -> None:
        nonlocal steps
        if steps == step:
            catch_up(move)
            move.finish().run()
        steps += 1

    with suppress(CleaningAborted):
        clean(node.log, between=finish)
    assert steps > step
    check(node, model)
