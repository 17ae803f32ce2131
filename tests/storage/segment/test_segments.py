"""The list of a log's segments: whatever is added and removed, it stays in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("remove the oldest"), st.integers(0, 5)),
        st.tuples(st.just("remove one"), st.integers(0, 20)),
    ),
    max_size=30,
)


def segment(base_offset: int) -> LogSegment:
    return cast(LogSegment, SimpleNamespace(base_offset=base_offset))


@given(CHANGES)
def test_segments_are_those_that_were_added_and_not_removed(changes: list[tuple[str, int]]) -> None:
    segments, model = Segments(), dict[int, LogSegment]()
    for what, number in changes:
        if what == "add" and number not in model:
            model[number] = segment(number)
            segments.add(model[number])
        elif what == "remove the oldest":
            oldest = sorted(model)[:number]
            segments.remove([model.pop(base_offset) for base_offset in oldest])
        elif what == "remove one" and number in model:
            segments.remove([model.pop(number)])
        assert list(segments) == [model[base_offset] for base_offset in sorted(model)]
        assert segments.base_offsets == tuple(sorted(model))
        assert len(segments) == len(model)
        if model:
            assert segments.active is model[max(model)]
