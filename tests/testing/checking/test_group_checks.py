"""Histories of groups made by hand: who owns what, whose commits count, where readers begin."""

from __future__ import annotations

import pytest

from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History, Outcome, Owned, Partition

P0 = Partition("input", 0)
GROUP = "group"
PATIENCE_NS = 100


def found(history: History) -> set[str]:
    """Return the ids of the checks that have found something."""
    return {violation.check.split()[0] for violation in check(history)}


def owned(*members: tuple[str, int]) -> History:
    """Return a history in which members were given a partition, each in a generation."""
    history = History()
    for at_ns, (process, generation) in enumerate(members):
        history.owned.append(Owned(GROUP, generation, P0, process, at_ns))
    return history


def test_a_partition_is_one_members_in_a_generation() -> None:
    assert found(owned(("a", 1), ("b", 2), ("a", 3), ("a", 3))) == set()
    assert found(owned(("a", 1), ("b", 1))) == {"G1"}


def test_who_has_lost_its_place_when_it_hears_of_a_partition_says_nothing() -> None:
    assert found(owned(("a", -1), ("b", -1))) == set()


def commit(history: History, offset: int, generation: int, began_ns: int, at_ns: int) -> None:
    made = history.commit(GROUP, {P0: offset}, generation=generation, began_ns=began_ns)
    history.committed(made, at_ns)


@pytest.mark.parametrize(
    ("generation", "began_ns", "expected"), [(1, 5, {"G5"}), (2, 5, set()), (1, 0, set())]
)
def test_a_commit_of_a_generation_that_is_past_is_refused(
    generation: int, began_ns: int, expected: set[str]
) -> None:
    """Unless it was sent before anybody knew of the next one."""
    history = owned(("a", 1), ("b", 2))
    commit(history, 3, generation, began_ns, 9)
    assert found(history) == expected


@pytest.mark.parametrize(("first", "expected"), [(7, set()), (9, set()), (6, {"G6"})])
def test_who_is_given_a_partition_begins_where_its_group_has_come_to(
    first: int, expected: set[str]
) -> None:
    history = History()
    commit(history, 5, 1, 0, 1)
    commit(history, 7, 1, 2, 3)
    reading = history.read_by("reader", P0, 4, GROUP)
    send = history.send("a", P0)
    send.acknowledged(first, 0)
    history.final[P0] = [(first, send.value)]
    reading.given(first, send.value, 5)
    assert found(history) == expected
    # Who began before the last commit was known of may begin before it.
    reading.began_ns = 2
    assert found(history) == set()


@pytest.mark.parametrize(("patience_ns", "expected"), [(PATIENCE_NS, set()), (1 << 62, {"G7"})])
def test_a_commit_that_was_sent_twice_may_come_again(patience_ns: int, expected: set[str]) -> None:
    """It had no answer for so long that it was sent again; the first may be on its way still."""
    history = History()
    history.patience_ns = patience_ns
    commit(history, 5, 1, 0, PATIENCE_NS + 1)
    commit(history, 7, 1, PATIENCE_NS + 2, PATIENCE_NS + 3)
    history.looked(GROUP, P0, 5)
    assert found(history) == expected


def test_a_producer_is_told_that_it_is_out_of_order_behind_what_it_gave_up_only() -> None:
    history = History()
    told = history.send("a", P0)
    told.is_out_of_order = True
    assert found(history) == set(), "by a broker of Apache Kafka that was restarted"
    history.knows_batches = True
    assert found(history) == {"J9"}
    given_up = history.send("a", P0)
    assert given_up.outcome is Outcome.UNKNOWN
    assert found(history) == set()
