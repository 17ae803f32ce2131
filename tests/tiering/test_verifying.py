"""What ``dohle tier verify`` finds (T27)."""

from __future__ import annotations

from dohle.tiering.layout import INDEXES, LOG, MANIFEST, object_key
from dohle.tiering.segments import RemoteSegment
from dohle.tiering.verifying import problems_of
from tests.tiering.values import copied, segment

_ONE, _TWO = segment(1, 0, 99), segment(2, 100, 199)


def _objects(*segments: RemoteSegment) -> dict[str, int]:
    return {
        object_key(each, suffix): each.size
        for each in segments
        for suffix in (LOG, INDEXES, MANIFEST)
    }


def test_nothing_is_wrong_where_every_segment_has_its_objects_and_no_offset_is_missing() -> None:
    """T27.1, T27.6: also where both tiers overlap."""
    cache = copied(_ONE, _TWO)
    assert problems_of(cache, _objects(_ONE, _TWO), 0, 200) == []
    assert problems_of(cache, _objects(_ONE, _TWO), 50, 120) == []


def test_objects_that_are_missing_cut_or_of_nobody_are_told() -> None:
    """T27.6."""
    found = _objects(_ONE, _TWO)
    del found[object_key(_ONE, MANIFEST)]
    found[object_key(_TWO, LOG)] = 7
    found["t/0/stray.log"] = 1
    assert problems_of(copied(_ONE, _TWO), found, 0, 200) == [
        f"{object_key(_ONE, MANIFEST)}: is missing",
        f"{object_key(_TWO, LOG)}: has 7 bytes, and not 100",
        "t/0/stray.log: no record tells of this object",
    ]


def test_offsets_that_are_in_no_tier_are_told() -> None:
    """T27.1: at the beginning, in the middle and before what is local."""
    three = segment(3, 300, 399)
    assert problems_of(copied(_TWO, three), _objects(_TWO, three), 50, 500) == [
        "offsets 50 to 99 are in no tier",
        "offsets 200 to 299 are in no tier",
        "offsets 400 to 499 are in no tier",
    ]


def test_a_copy_that_is_not_finished_counts_for_nothing_but_owns_its_objects() -> None:
    """T4."""
    cache = copied(_ONE)
    cache.apply(_TWO)
    assert problems_of(cache, _objects(_ONE, _TWO), 0, 200) == ["offsets 100 to 199 are in no tier"]
