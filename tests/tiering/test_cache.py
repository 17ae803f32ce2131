"""What is remote of a partition, as the records tell it (T9)."""

from __future__ import annotations

import pytest

from dohle.tiering.cache import RemoteLogMetadataCache
from tests.tiering.values import DELETED, DELETING, FINISHED, copied, segment, update


def test_a_segment_can_be_read_when_its_copy_is_finished_and_until_its_deletion_begins() -> None:
    """T4: state 1 only."""
    cache, one = RemoteLogMetadataCache(), segment(1, 0, 99)
    cache.apply(one)
    assert cache.find(0, 50) is None
    assert cache.of_epoch(0) == [one]
    cache.apply(update(one, FINISHED))
    found = cache.find(0, 50)
    assert found is not None
    assert found.id == one.id
    cache.apply(update(one, DELETING))
    assert cache.find(0, 50) is None
    assert len(cache.of_epoch(0)) == 1
    cache.apply(update(one, DELETED))
    assert len(cache) == 0


def test_a_segment_of_two_epochs_is_found_in_each_up_to_its_end() -> None:
    """T9: lookup by epoch and offset."""
    cache = copied(segment(1, 0, 99, ((0, 0), (2, 60))))
    assert cache.find(0, 59) is not None
    assert cache.find(0, 60) is None
    assert cache.find(2, 60) is not None
    assert cache.find(2, 100) is None
    assert cache.find(1, 10) is None


def test_a_later_and_larger_copy_takes_the_place_of_an_earlier_one() -> None:
    """T9: the earlier one stays listed, to be cleaned up."""
    small, large = segment(1, 0, 99), segment(2, 0, 149)
    cache = copied(small, large)
    found = cache.find(0, 10)
    assert found is not None
    assert found.id == large.id
    assert {each.id for each in cache.of_epoch(0)} == {small.id, large.id}


@pytest.mark.parametrize(("start", "end"), [(0, 79), (20, 79), (20, 99), (50, 149)])
def test_the_late_copy_of_a_leader_of_before_hides_nothing(start: int, end: int) -> None:
    """T9, T27.1: its segments begin and end elsewhere, and it may be finished last."""
    cache = copied(segment(1, 0, 99), segment(2, 100, 199), segment(3, start, end))
    for offset in range(200):
        found = cache.find(0, offset)
        assert found is not None
        assert found.start_offset <= offset <= found.end_offset
        last = cache.last_offset(0, offset)
        assert last == found.end_offset
    assert {each.id for each in cache.of_epoch(0)} == {each.id for each in cache}


def test_records_that_do_not_follow_are_left_out() -> None:
    """T4."""
    cache, one = RemoteLogMetadataCache(), segment(1, 0, 99)
    assert not cache.apply(update(one, FINISHED))
    cache.apply(one)
    assert not cache.apply(update(one, DELETED))
    assert cache.apply(update(one, DELETING))
    assert not cache.apply(update(one, FINISHED))


def test_records_that_come_twice_change_nothing() -> None:
    """T4: each state to itself."""
    one = segment(1, 0, 99)
    cache = copied(one)
    assert cache.apply(update(one, FINISHED))
    assert [each.id for each in cache.of_epoch(0)] == [one.id]
