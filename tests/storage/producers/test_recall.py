"""Batches of a producer that no snapshot has are found in the log when they are sent again."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.storage.log import Log
from dohle.storage.log_truncation import truncate_to
from dohle.storage.producers.entry import BATCHES_RETAINED
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    LEADER_EPOCH,
    NOW_MS,
    Node,
    append,
    batch,
    data,
    property_test,
    refuses,
)

PID, OTHER_PID = 17, 18
LAST_SEQUENCE = 0x7FFF_FFFF


def idempotent(sequence: int, count: int = 1, *, pid: int = PID, value: bytes = b"") -> bytearray:
    return batch([NOW_MS] * count, pid=pid, epoch=0, sequence=sequence, value=value)


def is_known(log: Log, sequence: int, offset: int, count: int = 1, *, pid: int = PID) -> None:
    info = log.append_as_leader(idempotent(sequence, count, pid=pid), LEADER_EPOCH)
    assert (info.is_duplicate, info.first_offset) == (True, offset)
    assert info.last_offset == offset + count - 1


def is_unknown(log: Log, sequence: int, count: int = 1, *, pid: int = PID) -> None:
    refuses(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: log.append_as_leader(idempotent(sequence, count, pid=pid), LEADER_EPOCH),
    )


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_are_known_after_restarts(clean: bool) -> None:
    node = Node()
    for sequence in range(7):
        append(node.log, idempotent(sequence), data(1), idempotent(sequence, pid=OTHER_PID))
        if sequence == 3:
            node.log.roll(node.log.log_end_offset)
    # The first restart leaves a snapshot of the end, which has the last batch alone.
    node.restart(clean=clean)
    log = node.restart(clean=clean)
    for sequence in range(2, 7):
        is_known(log, sequence, 3 * sequence)
    is_unknown(log, 1)
    # It must be the same batch: these were never one.
    is_unknown(log, 2, 2)
    assert log.log_end_offset == 21
    assert append(log, idempotent(7))[0].first_offset == 21


def test_sequences_that_have_gone_round_are_known_after_a_restart() -> None:
    node = Node()
    append(node.log, idempotent(LAST_SEQUENCE - 1, 3), idempotent(1, 2))
    log = node.restart(clean=True)
    is_known(log, LAST_SEQUENCE - 1, 0, 3)
    is_known(log, 1, 3, 2)


def test_batches_of_an_earlier_epoch_are_not_known_after_a_restart() -> None:
    node = Node()
    append(node.log, idempotent(0), idempotent(1))
    append(node.log, batch(pid=PID, epoch=1, sequence=0), batch(pid=PID, epoch=1, sequence=1))
    log = node.restart(clean=True)
    assert log.append_as_leader(batch(pid=PID, epoch=1, sequence=0), LEADER_EPOCH).first_offset == 2
    refuses(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        lambda: log.append_as_leader(idempotent(1), LEADER_EPOCH),
    )


def test_only_the_end_of_the_log_is_looked_at() -> None:
    node = Node()
    append(node.log, idempotent(0))
    for _ in range(50):
        append(node.log, batch(value=bytes(5000)))
    append(node.log, idempotent(1))
    log = node.restart(clean=True)
    is_unknown(log, 0)
    is_known(log, 1, 51)


def test_what_is_gone_is_not_known_after_a_restart() -> None:
    node = Node()
    append(node.log, idempotent(0), idempotent(1))
    node.log.roll(2)
    append(node.log, idempotent(2))
    node.log.update_high_watermark(3)
    node.log.increment_log_start_offset(2)
    node.log.remove_segments([node.log.segments.first], "a test")
    log = node.restart(clean=True)
    is_unknown(log, 1)
    is_known(log, 2, 2)


def test_who_sends_old_batches_again_and_again_has_the_log_searched_once() -> None:
    node = Node()
    append(node.log, idempotent(100), idempotent(101))
    log = node.restart(clean=True)
    is_unknown(log, 99)
    node.disk.fail(Operation.READ, log.directory, errno.EIO)
    for sequence in (99, 98, 3):
        is_unknown(log, sequence)
    # What the search has found is known for all that.
    is_known(log, 100, 0)


def test_for_a_producer_that_came_after_the_restart_the_log_is_not_searched() -> None:
    node = Node()
    append(node.log, idempotent(0, pid=OTHER_PID))
    log = node.restart(clean=True)
    append(log, idempotent(100))
    node.disk.fail(Operation.READ, log.directory, errno.EIO)
    is_unknown(log, 99)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([PID, OTHER_PID]), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.booleans(), st.none()),
        st.tuples(st.just("truncate"), st.integers(1, 4), st.none()),
        st.tuples(st.just("roll"), st.none(), st.none()),
    ),
    min_size=3,
    max_size=30,
)


@property_test(150)
@given(STEPS)
def test_restarts_and_truncations_change_nothing_for_a_producer(
    steps: list[tuple[str, int, int]],
) -> None:
    """No batch lies further back than is looked: two rolls, and few bytes."""
    node, rolls = Node(), 0
    #: All batches of the log: producer, sequence, count, offset.
    batches: list[tuple[int, int, int, int]] = []
    for step, first, second in steps:
        if step == "append":
            of_it = [one for one in batches if one[0] == first]
            sequence = of_it[-1][1] + of_it[-1][2] if of_it else 0
            offset = node.log.log_end_offset
            append(node.log, idempotent(sequence, second, pid=first))
            batches.append((first, sequence, second, offset))
        elif step == "restart":
            node.restart(clean=bool(first))
        elif step == "truncate" and batches:
            kept = batches[:-first]
            # A producer of whom nothing is left is not known, and may begin anywhere.
            if {one[0] for one in kept} == {one[0] for one in batches}:
                truncate_to(node.log, batches[len(kept)][3], NOW_MS)
                batches = kept
        elif step == "roll" and rolls < 2 and batches:
            rolls += 1
            node.log.roll(node.log.log_end_offset)
    for pid in (PID, OTHER_PID):
        of_it = [one for one in batches if one[0] == pid]
        for _, sequence, count, offset in of_it[-BATCHES_RETAINED:]:
            is_known(node.log, sequence, offset, count, pid=pid)
        for _, sequence, count, _ in of_it[:-BATCHES_RETAINED]:
            is_unknown(node.log, sequence, count, pid=pid)
