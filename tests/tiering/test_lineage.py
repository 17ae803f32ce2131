"""Which remote segments are of a log (T3.1, T8, T15b)."""

from __future__ import annotations

import pytest

from dohle.tiering.lineage import (
    epochs_of_range,
    highest_remote_offset,
    is_within,
    last_common_offset,
    newest_copy_of,
    remote_log_start,
    without_empty,
)
from dohle.tiering.segments import Epochs
from tests.tiering.values import DELETED, DELETING, copied, segment, update

_LINEAGE: Epochs = ((0, 0), (2, 100), (3, 200))


@pytest.mark.parametrize(
    ("start", "end", "epochs", "wanted"),
    [
        (0, 99, ((0, 0),), True),
        (50, 149, ((0, 50), (2, 100)), True),
        (100, 250, ((2, 100), (3, 200)), True),
        # Ends behind the end of its epoch in this log.
        (50, 149, ((0, 50),), False),
        # An epoch that this log does not have.
        (100, 149, ((1, 100),), False),
        (50, 149, ((0, 50), (1, 90), (2, 100)), False),
        # The next epoch begins elsewhere.
        (50, 149, ((0, 50), (2, 90)), False),
        # Behind the log end.
        (250, 300, ((3, 250),), False),
        # Newer than all.
        (200, 250, ((4, 200),), False),
        # Begins before its epoch does here.
        (90, 149, ((2, 90),), False),
        # An epoch without records is not looked at.
        (100, 149, ((1, 100), (2, 100)), True),
    ],
)
def test_a_segment_is_of_the_log_if_its_epochs_are(
    start: int, end: int, epochs: Epochs, wanted: bool
) -> None:
    """T8."""
    assert is_within(segment(1, start, end, epochs), 300, _LINEAGE) is wanted


def test_epochs_below_the_first_of_the_log_are_not_looked_at() -> None:
    """T8: the log start has moved."""
    lineage = ((2, 120), (3, 200))
    assert is_within(segment(1, 50, 149, ((0, 50), (2, 100))), 300, lineage)
    assert not is_within(segment(1, 50, 99, ((0, 50),)), 300, lineage)


def test_epochs_are_cut_to_the_range_of_a_segment() -> None:
    """T3.5: the first one begins with the segment."""
    assert epochs_of_range(_LINEAGE, 50, 150) == ((0, 50), (2, 100))
    assert epochs_of_range(_LINEAGE, 100, 200) == ((2, 100),)
    assert epochs_of_range(_LINEAGE, 210, 220) == ((3, 210),)


def test_epochs_without_records_are_left_out() -> None:
    """T15b."""
    assert without_empty([(0, 0), (1, 50), (2, 50), (3, 60)]) == ((0, 0), (2, 50), (3, 60))


def test_the_highest_remote_offset_is_bounded_by_the_epoch_in_this_log() -> None:
    """T3.1: an unclean election may have cut the epoch here."""
    cache = copied(segment(1, 0, 149))
    assert highest_remote_offset(cache, ((0, 0),), 0, 300) == 149
    assert highest_remote_offset(cache, _LINEAGE, 0, 300) == 99
    assert highest_remote_offset(cache, ((5, 0),), 0, 300) == -1
    assert highest_remote_offset(cache, ((0, 150),), 20, 300) == 19


def test_the_log_is_remote_only_as_far_as_there_is_no_hole() -> None:
    """T27.2: a copy that is deleted counts no more, nor does what is behind it."""
    gone = segment(2, 100, 149, ((2, 100),))
    cache = copied(segment(1, 0, 99), gone, segment(3, 150, 250, ((2, 150), (3, 200))))
    assert highest_remote_offset(cache, _LINEAGE, 0, 300) == 250
    assert highest_remote_offset(cache, _LINEAGE, 0, 220) == 219
    for state in (DELETING, DELETED):
        cache.apply(update(gone, state))
        assert highest_remote_offset(cache, _LINEAGE, 0, 300) == 99
        assert highest_remote_offset(cache, _LINEAGE, 120, 300) == 119
        assert highest_remote_offset(cache, _LINEAGE, 160, 300) == 250


@pytest.mark.parametrize(
    ("end", "epochs", "offset", "wanted"),
    [
        (99, ((0, 50),), 60, 99),
        (150, ((0, 50), (2, 100)), 60, 150),
        (250, ((0, 50), (2, 100), (3, 200)), 60, 250),
        # Epoch 0 was longer there, or another one came next: the log has other records then.
        (149, ((0, 50),), 60, 99),
        (149, ((0, 50), (1, 80)), 60, 79),
        (149, ((0, 50), (1, 100)), 60, 99),
        (320, ((3, 250),), 260, 299),
    ],
)
def test_a_segment_is_read_as_far_as_the_log_has_the_same(
    end: int, epochs: Epochs, offset: int, wanted: int
) -> None:
    """T8, T27.1: nothing is served that an unclean election has lost."""
    found = segment(1, epochs[0][1], end, epochs)
    assert last_common_offset(found, _LINEAGE, offset, 300) == wanted


def test_the_remote_part_begins_with_the_first_segment_of_the_earliest_epoch() -> None:
    """T3.1."""
    cache = copied(segment(1, 20, 99), segment(2, 100, 149, ((2, 100),)))
    assert remote_log_start(cache, _LINEAGE) == 20
    assert remote_log_start(cache, _LINEAGE[1:]) == 100
    assert remote_log_start(cache, ((7, 0),)) is None


def test_the_newest_copy_of_an_offset_is_that_of_the_newest_epoch() -> None:
    """T15a: for a log whose own epochs are lost."""
    old, new = segment(1, 0, 99), segment(2, 50, 99, ((2, 50),))
    cache = copied(old, new, segment(3, 100, 149, ((3, 100),)))
    found = newest_copy_of(cache, 60)
    assert found is not None
    assert found.id == new.id
    assert newest_copy_of(cache, 150) is None
