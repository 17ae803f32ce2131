"""The offsets of a stream: batches that join up, replays that read the same, and limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import TopicName, TopicPartition
from dohle.spark.source.offsets import (
    INITIAL,
    Known,
    LogView,
    StreamOffset,
    batch_ranges,
    go_on_from,
    limit_offsets,
    missed_by,
    offsets_between,
    parse_offset,
    plan_end,
)

A0, A1, B0 = (TopicPartition(TopicName(t), p) for t, p in (("a", 0), ("a", 1), ("b", 0)))
IDS = {TopicName("a"): "id-a", TopicName("b"): "id-b"}

partitions = st.builds(
    TopicPartition, st.sampled_from([TopicName("a"), TopicName("b")]), st.integers(0, 3)
)
positions = st.dictionaries(partitions, st.integers(0, 100))
ranges = st.dictionaries(
    partitions, st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda r: (r[0], sum(r)))
)


def _written(offset: dict[str, Any]) -> StreamOffset | None:
    """Read an offset as it comes back from the checkpoint."""
    return parse_offset(json.loads(json.dumps(offset)))


@given(positions, positions, positions)
def test_an_offset_comes_back_from_the_checkpoint_as_it_was(
    at: dict[TopicPartition, int],
    first: dict[TopicPartition, int],
    gone: dict[TopicPartition, int],
) -> None:
    offset = StreamOffset(at, first, IDS, gone)

    assert _written(offset.to_json()) == offset


def test_the_offset_before_the_first_batch_says_nothing() -> None:
    assert _written(INITIAL) is None


@pytest.mark.parametrize("form", [{}, {"version": 2, "offsets": {}}, {"a": {"0": 5}}])
def test_an_offset_of_another_source_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another source or a newer dohle"):
        parse_offset(form)


def test_a_replay_of_the_first_batch_needs_nothing_but_its_end() -> None:
    first = {A0: 3, A1: 0}
    view = LogView({A0: 5, A1: 4}, IDS)
    end = _written(plan_end(None, Known({}, (A0, A1), ()), first, view.latest, view))
    assert end is not None

    assert batch_ranges(_written(INITIAL), end) == {A0: (3, 5), A1: (0, 4)}


def test_a_batch_that_begins_where_it_ends_reads_nothing_though_it_was_the_first() -> None:
    end = StreamOffset({A0: 5}, {A0: 3}, IDS)

    assert batch_ranges(end, end) == {}


def test_nothing_new_gives_the_start_itself() -> None:
    start = StreamOffset({A0: 5}, {A0: 3}, IDS)
    view = LogView({A0: 5}, IDS)
    known = go_on_from(start, view)

    assert json.dumps(plan_end(start, known, {}, view.latest, view)) == json.dumps(start.to_json())


def test_new_partitions_begin_in_the_batch_that_finds_them() -> None:
    start = StreamOffset({A0: 5}, {A0: 0}, IDS)
    view = LogView({A0: 6, A1: 2, B0: 0}, IDS)
    known = go_on_from(start, view)
    end = _written(plan_end(start, known, {A1: 0, B0: 0}, view.latest, view))
    assert end is not None

    assert known.new == (A1, B0)
    assert not known.losses
    assert batch_ranges(start, end) == {A0: (5, 6), A1: (0, 2)}
    assert end.positions[B0] == 0


def test_a_partition_that_is_gone_is_a_loss_that_is_told_once() -> None:
    start = StreamOffset({A0: 5, B0: 7}, {}, IDS)
    view = LogView({A0: 5}, {TopicName("a"): "id-a"})
    known = go_on_from(start, view)
    end = _written(plan_end(start, known, {}, view.latest, view))
    assert end is not None
    still = go_on_from(end, view)

    assert "b-0 is gone" in known.losses[0]
    assert end.positions == {A0: 5}
    assert batch_ranges(start, end) == {}
    assert not still.losses
    assert _written(plan_end(end, still, {}, view.latest, view)) == end


@pytest.mark.parametrize(
    ("topic_id", "ends_at", "new", "read"),
    [("id-b", 9, (), (7, 9)), ("another", 9, (B0,), (0, 9)), ("id-b", 7, (), None)],
    ids=["the same", "recreated", "the same without news"],
)
def test_a_partition_that_is_there_again_is_not_read_twice(
    topic_id: str, ends_at: int, new: tuple[TopicPartition, ...], read: tuple[int, int] | None
) -> None:
    start = StreamOffset({A0: 5}, {}, IDS, {B0: 7})
    view = LogView({A0: 5, B0: ends_at}, {**IDS, TopicName("b"): topic_id})
    known = go_on_from(start, view)
    end = _written(plan_end(start, known, dict.fromkeys(new, 0), view.latest, view))
    assert end is not None

    assert (known.new, known.losses) == (new, ())
    assert batch_ranges(start, end) == ({B0: read} if read else {})
    assert (end.positions, end.gone) == ({A0: 5, B0: ends_at}, {})


def test_a_new_partition_that_does_not_begin_at_its_beginning_is_a_loss() -> None:
    known = go_on_from(StreamOffset({A0: 5}, {}, IDS), LogView({A0: 5, A1: 4, B0: 1}, IDS))

    assert missed_by(known, {A1: 3, B0: 0}) == (
        "a-1 is new and begins at offset 3: what was before it was not read",
    )


def test_a_topic_made_anew_is_a_loss_and_begins_again_even_if_it_is_longer_by_now() -> None:
    start = StreamOffset({A0: 5}, {}, IDS)
    view = LogView({A0: 9}, {TopicName("a"): "another"})
    known = go_on_from(start, view)
    end = _written(plan_end(start, known, {A0: 0}, view.latest, view))
    assert end is not None

    assert "recreated" in known.losses[0]
    assert known.new == (A0,)
    assert batch_ranges(start, end) == {A0: (0, 9)}
    assert end.topic_ids == {"a": "another"}


def test_a_log_that_was_cut_is_a_loss_and_goes_on_at_its_end() -> None:
    start = StreamOffset({A0: 5}, {}, IDS)
    view = LogView({A0: 4}, IDS)
    known = go_on_from(start, view)
    end = _written(plan_end(start, known, {}, view.latest, view))
    assert end is not None

    assert "was truncated" in known.losses[0]
    assert end.positions == {A0: 4}
    assert batch_ranges(start, end) == {}


def test_brokers_without_topic_ids_do_not_make_topics_look_new() -> None:
    start = StreamOffset({A0: 5}, {}, {})

    assert not go_on_from(start, LogView({A0: 9}, IDS)).losses
    assert not go_on_from(StreamOffset({A0: 5}, {}, IDS), LogView({A0: 9}, {})).losses


def test_an_offset_log_without_a_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="where a-0 begins"):
        batch_ranges(None, StreamOffset({A0: 5}, {}, IDS))


@given(st.data())
def test_batches_join_up_whatever_arrives_and_whichever_limits_there_are(
    data: st.DataObject,
) -> None:
    log: dict[TopicPartition, int] = {A0: data.draw(st.integers(0, 5))}
    start: StreamOffset | None = None
    read: dict[TopicPartition, list[int]] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        for partition in data.draw(st.lists(partitions, max_size=3)):
            log[partition] = log.get(partition, 0) + data.draw(st.integers(0, 5))
        view = LogView(dict(log), IDS)
        known = Known({}, tuple(log), ()) if start is None else go_on_from(start, view)
        first = dict.fromkeys(known.new, 0)
        begins = {**known.positions, **first}
        here = {partition: (begins[partition], end) for partition, end in log.items()}
        offsets_max = data.draw(st.integers(1, 6))
        form = plan_end(start, known, first, limit_offsets(here, offsets_max), view)
        end = _written(form)
        assert end is not None
        planned = batch_ranges(start, end)
        assert batch_ranges(start, end) == planned
        assert offsets_between(planned) <= max(offsets_max, len(planned))
        for partition, (begin, stop) in planned.items():
            read.setdefault(partition, []).extend(range(begin, stop))
        start = end

    assert start is not None
    assert read == {p: list(range(n)) for p, n in start.positions.items() if n}
    assert all(n <= log[p] for p, n in start.positions.items())


@given(ranges, st.integers(1, 200))
def test_a_limit_is_kept_and_leaves_no_partition_behind(
    there: dict[TopicPartition, tuple[int, int]], offsets_max: int
) -> None:
    ends = limit_offsets(there, offsets_max)
    sizes = {p: end - begin for p, (begin, end) in there.items() if end > begin}
    shares = {p: ends[p] - there[p][0] for p in sizes}

    assert ends.keys() == there.keys()
    assert all(ends[p] == end for p, (_, end) in there.items() if p not in sizes)
    assert all(1 <= shares[p] <= sizes[p] for p in sizes)
    if sum(sizes.values()) <= offsets_max:
        assert shares == sizes
    else:
        assert sum(shares.values()) == max(offsets_max, len(sizes))


def test_a_limit_is_shared_in_proportion() -> None:
    assert limit_offsets({A0: (0, 901), A1: (100, 201)}, 102) == {A0: 91, A1: 111}
