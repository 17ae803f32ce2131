"""Fetch sessions, one rule at a time."""

from __future__ import annotations

import random

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import finish
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.fetch import FetchRequest, PartitionData
from dohle.replication.fetch_session_cache import FetchSessionCache
from dohle.replication.fetch_sessions import (
    FetchContext,
    FetchReply,
    SessionPartition,
    group_by_topic,
    is_from_follower,
    next_epoch,
)
from dohle.replication.partition import Follower
from dohle.replication.settled import LOOK_AT_ALL_MS, PARTITIONS_PER_STEP
from tests.replication.fetches import (
    BY_ID,
    BY_NAME,
    data,
    fetch,
    named,
    names,
    nothing_new,
    topic_id,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


class Node:
    """A cache, a clock, and the topics that exist."""

    def __init__(
        self, slots: int = 10, version: int = BY_NAME, partitions_max: int = 1_000
    ) -> None:
        self.cache = FetchSessionCache(
            slots, rng=random.Random(1), eviction_ms=1000, partitions_max=partitions_max
        )
        self.version = version
        self.topics = {topic_id(topic): TopicName(topic) for topic in ("a", "b")}
        self.now_ms = 0

    def open(self, request: FetchRequest, version: int | None = None) -> FetchContext:
        asked = self.version if version is None else version
        unchanged = self.cache.open_unchanged(request, asked, self.now_ms)
        if unchanged is not None:
            return unchanged
        return finish(self.cache.open(request, asked, self.topics.get, self.now_ms))

    def new_session(self, *partitions: tuple[str, int], follower: int = -1) -> int:
        """Fetch everything once; return the session's id, 0 if there is none."""
        context = self.open(fetch(*partitions, follower=follower))
        reply = finish(context.finish(nothing_new(context), self.now_ms))
        assert reply.error is ErrorCode.NONE
        assert named(reply.results) == list(partitions)
        return reply.session_id

    def answer(self, context: FetchContext, **changed: PartitionData) -> FetchReply:
        """Finish with the named partitions (``a0``) as given and the others as ever."""
        results = [
            (part, changed.get(f"{part.topic}{part.partition}", data(part.partition)))
            for part in context.partitions
        ]
        return finish(context.finish(results, self.now_ms))

    def is_alive(self, session_id: int) -> bool:
        """Ask with an epoch that no session here has reached."""
        error = self.open(fetch(session_id=session_id, epoch=999)).error
        return error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_fetch_gets_everything_and_a_session() -> None:
    node = Node()
    assert node.new_session(A0, A1, B0) > 0
    assert (node.cache.session_count, node.cache.partition_count) == (1, 3)


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_an_incremental_fetch_reads_the_whole_session(version: int) -> None:
    node = Node(version=version)
    session_id = node.new_session(A0, B0)
    context = node.open(fetch(("b", 0, 7), A1, session_id=session_id, epoch=1))
    assert names(context) == [A0, B0, A1]
    assert [part.request.fetch_offset for part in context.partitions] == [0, 7, 0]
    ids = {topic_id("a"), topic_id("b")} if version == BY_ID else {ZERO_UUID}
    assert {part.topic_id for part in context.partitions} == ids
    reply = node.answer(context)
    assert (reply.error, reply.session_id) == (ErrorCode.NONE, session_id)
    assert named(reply.results) == [A1]  # nobody was told of it before


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_forgotten_partitions_leave_the_session(version: int) -> None:
    node = Node(version=version)
    session_id = node.new_session(A0, A1, B0)
    context = node.open(fetch(session_id=session_id, epoch=1, forget=(A0, B0, ("c", 9))))
    assert names(context) == [A1]
    assert node.cache.partition_count == 1


def test_a_session_without_partitions_is_closed() -> None:
    node = Node()
    session_id = node.new_session(A0)
    context = node.open(fetch(session_id=session_id, epoch=1, forget=(A0,)))
    assert names(context) == []
    assert finish(context.finish([], 0)).session_id == 0
    assert not node.is_alive(session_id)
    assert (node.cache.session_count, node.cache.partition_count) == (0, 0)


@pytest.mark.parametrize(
    "news",
    [
        data(0, records=b"some"),
        data(0, high_watermark=11),
        data(0, log_start_offset=1),
        data(0, error=6),
        data(0, preferred_read_replica=3),
        data(0, diverging_epoch=2),
    ],
    ids=["records", "high watermark", "log start", "error", "preferred replica", "diverging"],
)
def test_only_partitions_with_news_are_answered(news: PartitionData) -> None:
    node = Node()
    session_id = node.new_session(A0, A1, B0)
    assert named(node.answer(node.open(fetch(session_id=session_id, epoch=1))).results) == []
    context = node.open(fetch(session_id=session_id, epoch=2))
    assert node.answer(context, b0=news).results == [(list(context.partitions)[2], news)]


def test_the_same_news_is_told_once_and_records_each_time() -> None:
    node = Node()
    session_id = node.new_session(A0)
    moved = data(0, high_watermark=11, log_start_offset=4)
    for epoch, told in ((1, 1), (2, 0)):
        context = node.open(fetch(session_id=session_id, epoch=epoch))
        assert len(node.answer(context, a0=moved).results) == told
    for epoch in (3, 4):
        context = node.open(fetch(session_id=session_id, epoch=epoch))
        with_records = data(0, high_watermark=11, log_start_offset=4, records=b"x")
        assert len(node.answer(context, a0=with_records).results) == 1


def test_the_end_of_an_error_is_told() -> None:
    node = Node()
    session_id = node.new_session(A0)
    for epoch, now, told in ((1, data(0, error=6), 1), (2, data(0), 1), (3, data(0), 0)):
        context = node.open(fetch(session_id=session_id, epoch=epoch))
        assert len(node.answer(context, a0=now).results) == told


def test_the_end_of_an_error_is_told_even_if_the_error_came_with_a_high_watermark() -> None:
    node = Node()
    session_id = node.new_session(A0)
    node.answer(node.open(fetch(session_id=session_id, epoch=1)), a0=data(0).replace(error_code=6))
    context = node.open(fetch(session_id=session_id, epoch=2))
    assert len(node.answer(context).results) == 1


@pytest.mark.parametrize("in_session", [False, True])
def test_whoever_is_told_where_logs_part_is_told_the_high_watermark_again(in_session: bool) -> None:
    """KAFKA-14704: a follower uses nothing else of such an answer."""
    node = Node()
    epoch = 1
    if in_session:
        session_id = node.new_session(A0)
        context = node.open(fetch(session_id=session_id, epoch=epoch))
        epoch += 1
    else:
        context = node.open(fetch(A0))
    session_id = node.answer(context, a0=data(0, diverging_epoch=2)).session_id
    for told in (1, 0):
        context = node.open(fetch(session_id=session_id, epoch=epoch))
        assert len(node.answer(context).results) == told
        epoch += 1


def test_a_follower_that_knows_of_a_new_epoch_is_told_the_high_watermark_again() -> None:
    """It may not have used what it was told in the epoch before (F13)."""
    node = Node()
    session_id = node.new_session(A0)
    asked = fetch(A0, session_id=session_id, epoch=1)
    (topic,) = asked.topics
    newer = topic.partitions[0].replace(current_leader_epoch=4)
    asked = asked.replace(topics=(topic.replace(partitions=(newer,)),))
    assert named(node.answer(node.open(asked)).results) == [A0]


def test_partitions_with_records_go_to_the_end() -> None:
    node = Node()
    session_id = node.new_session(A0, A1, B0)
    node.answer(node.open(fetch(session_id=session_id, epoch=1)), a0=data(0, records=b"x"))
    context = node.open(fetch(session_id=session_id, epoch=2))
    assert names(context) == [A1, B0, A0]
    node.answer(context, a1=data(1, records=b"x"), b0=data(0, high_watermark=99))
    assert names(node.open(fetch(session_id=session_id, epoch=3))) == [B0, A0, A1]


def test_unchanged_partitions_need_no_result() -> None:
    node = Node()
    full = node.open(fetch(A0))
    (part,) = full.partitions
    assert not full.may_omit(part, 10, 0)
    session_id = finish(full.finish(nothing_new(full), 0)).session_id
    context = node.open(fetch(session_id=session_id, epoch=1))
    (part,) = context.partitions
    assert context.may_omit(part, 10, 0)
    assert not context.may_omit(part, 11, 0)
    assert not context.may_omit(part, 10, 1)
    assert finish(context.finish([], 0)).results == []
    assert context.may_omit(part, 10, 0)


def test_an_unknown_session_and_a_wrong_epoch_are_told() -> None:
    node = Node()
    session_id = node.new_session(A0)
    unknown = node.open(fetch(session_id=session_id + 1, epoch=1))
    assert unknown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (2, 5, -7):
        wrong = node.open(fetch(session_id=session_id, epoch=epoch))
        assert wrong.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert names(wrong) == []
        reply = finish(wrong.finish([], 0))
        assert (reply.error, reply.session_id, reply.results) == (wrong.error, 0, [])
    assert node.open(fetch(session_id=session_id, epoch=1)).error is ErrorCode.NONE


@pytest.mark.parametrize(("first", "then"), [(BY_ID, BY_NAME), (BY_NAME, BY_ID)])
def test_a_session_does_not_change_between_ids_and_names(first: int, then: int) -> None:
    node = Node(version=first)
    session_id = node.new_session(A0)
    context = node.open(fetch(session_id=session_id, epoch=1), version=then)
    assert context.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_repeated_request_spoils_the_answer_of_the_first() -> None:
    node = Node()
    session_id = node.new_session(A0)
    first = node.open(fetch(session_id=session_id, epoch=1))
    second = node.open(fetch(session_id=session_id, epoch=2))
    late = node.answer(first, a0=data(0, records=b"x"))
    assert (late.error, late.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)
    assert late.results == []
    assert node.answer(second).error is ErrorCode.NONE


def test_a_full_fetch_closes_the_session_it_names() -> None:
    node = Node()
    session_id = node.new_session(A0)
    context = node.open(fetch(A0, A1, session_id=session_id, epoch=0))
    assert not node.is_alive(session_id)
    assert finish(context.finish(nothing_new(context), 0)).session_id not in (0, session_id)


@pytest.mark.parametrize("version", [4, BY_NAME])
def test_the_final_epoch_reads_without_a_session_and_closes_one(version: int) -> None:
    node = Node()
    session_id = node.new_session(A0)
    context = node.open(fetch(A1, session_id=session_id, epoch=-1), version=version)
    assert names(context) == [A1]
    assert not context.may_omit(next(iter(context.partitions)), -1, -1)
    reply = finish(context.finish(nothing_new(context), 0))
    assert (reply.session_id, named(reply.results)) == (0, [A1])
    assert node.cache.session_count == 0


def test_epochs_start_again_at_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1


def test_a_partition_named_twice_is_read_once_as_last_asked() -> None:
    context = Node().open(fetch(("a", 0, 5), B0, ("a", 0, 9)))
    assert names(context) == [A0, B0]
    assert [part.request.fetch_offset for part in context.partitions] == [9, 0]


def test_an_id_that_is_not_known_stays_and_is_looked_up_again() -> None:
    node = Node(version=BY_ID)
    context = node.open(fetch(("new", 0), A0))
    assert names(context) == [(None, 0), A0]
    results = [(part, data(0, error=0 if part.topic else 100)) for part in context.partitions]
    session_id = finish(context.finish(results, 0)).session_id
    context = node.open(fetch(session_id=session_id, epoch=1))
    assert names(context) == [(None, 0), A0]
    (part, told), *more = finish(
        context.finish(
            [(part, data(0, error=0 if part.topic else 100)) for part in context.partitions], 0
        )
    ).results
    assert (part.topic, told.error_code, more) == (None, 100, [])
    node.topics[topic_id("new")] = TopicName("new")
    assert names(node.open(fetch(session_id=session_id, epoch=2))) == [("new", 0), A0]


def test_an_unknown_id_added_later_is_looked_up_again_and_can_be_forgotten() -> None:
    node = Node(version=BY_ID)
    session_id = node.new_session(A0)
    assert names(node.open(fetch(("new", 3), session_id=session_id, epoch=1))) == [A0, (None, 3)]
    node.topics[topic_id("new")] = TopicName("new")
    assert names(node.open(fetch(session_id=session_id, epoch=2))) == [A0, ("new", 3)]
    context = node.open(fetch(session_id=session_id, epoch=3, forget=(("new", 3),)))
    assert names(context) == [A0]


def test_an_id_is_not_looked_up_again_once_it_is_known_or_forgotten() -> None:
    node = Node(version=BY_ID)
    session_id = node.new_session(A0)
    node.open(fetch(("new", 3), session_id=session_id, epoch=1))
    node.open(fetch(session_id=session_id, epoch=2, forget=(("new", 3),)))
    asked: list[Uuid] = []
    finish(node.cache.open(fetch(session_id=session_id, epoch=3), BY_ID, asked.append, 0))
    assert asked == []


# Room for sessions


def test_without_room_a_fetch_gets_no_session() -> None:
    node = Node(slots=2)
    assert node.new_session(A0)
    assert node.new_session(A0)
    assert node.new_session(A0, A1) == 0
    assert Node(slots=0).new_session(A0) == 0


def test_a_long_unused_session_makes_room() -> None:
    node = Node(slots=2)
    older, newer = node.new_session(A0, A1), node.new_session(A0, A1)
    node.now_ms = 1
    node.answer(node.open(fetch(session_id=older, epoch=1)))
    node.now_ms = 1000
    assert node.new_session(A0) == 0
    node.now_ms = 1001
    assert node.new_session(A0)
    assert (node.is_alive(older), node.is_alive(newer)) == (True, False)
    assert node.cache.evictions == 1


def test_a_follower_takes_the_place_of_a_consumer_but_not_of_a_follower() -> None:
    node = Node(slots=2)
    consumer, follower = node.new_session(A0, A1, B0), node.new_session(A0, follower=1)
    assert node.new_session(A0, follower=2)
    assert (node.is_alive(consumer), node.is_alive(follower)) == (False, True)
    assert node.new_session(A0, A1, B0, follower=3) == 0


def test_a_larger_session_takes_the_place_of_a_smaller_that_is_old() -> None:
    node = Node(slots=2)
    small, large = node.new_session(A0), node.new_session(A0, A1)
    for epoch in (1, 2, 3):
        node.now_ms += 500
        for session_id in (small, large):
            node.answer(node.open(fetch(session_id=session_id, epoch=epoch)))
        assert node.new_session(A0) == 0
        if node.now_ms <= 1000:
            assert node.new_session(A0, A1, B0) == 0
    assert node.new_session(A0, A1)
    assert (node.is_alive(small), node.is_alive(large)) == (False, True)


def test_a_session_is_weighed_by_its_present_size() -> None:
    node = Node(slots=2)
    growing, shrinking = node.new_session(A0), node.new_session(A0, A1, B0)
    node.now_ms = 600
    node.open(fetch(A1, B0, ("b", 1), session_id=growing, epoch=1))
    node.open(fetch(session_id=shrinking, epoch=1, forget=(A0, A1)))
    node.now_ms = 1200
    node.open(fetch(session_id=growing, epoch=2))
    node.open(fetch(("c", 0), ("c", 1), ("c", 2), session_id=shrinking, epoch=2))
    assert node.new_session(A0, A1) == 0
    node.open(fetch(session_id=shrinking, epoch=3, forget=(("c", 0), ("c", 1), ("c", 2))))
    assert node.new_session(A0, A1)
    assert (node.is_alive(growing), node.is_alive(shrinking)) == (True, False)


def test_a_session_that_would_have_too_many_partitions_is_not_made() -> None:
    node = Node(partitions_max=3)
    assert node.new_session(A0, A1, B0, ("b", 1)) == 0
    assert node.new_session(A0, A1)
    assert node.new_session(A0, B0) == 0
    assert node.new_session(A0)
    assert node.cache.partition_count == 3


def test_for_partitions_sessions_make_room_that_are_silent_or_larger() -> None:
    node = Node(partitions_max=6)
    silent = node.new_session(A0)
    node.now_ms += 2_000
    larger = node.new_session(A0, A1, B0)
    equal = node.new_session(A0, A1)
    assert node.new_session(A0, B0)
    assert [node.is_alive(each) for each in (silent, larger, equal)] == [False, False, True]
    assert node.cache.evictions == 2


def test_for_partitions_of_followers_any_session_of_a_consumer_makes_room() -> None:
    node = Node(partitions_max=4)
    consumer = node.new_session(A0)
    follower = node.new_session(A0, A1, follower=2)
    assert node.new_session(A0, A1, follower=3)
    assert node.is_alive(follower)
    assert not node.is_alive(consumer)
    assert node.new_session(A0, follower=4) == 0


def test_nobody_makes_room_for_a_session_that_will_not_fit() -> None:
    node = Node(partitions_max=4)
    consumer = node.new_session(A0)
    follower = node.new_session(A0, A1, B0, follower=2)
    assert node.new_session(A0, A1, B0, follower=3) == 0
    assert node.is_alive(consumer)
    assert node.is_alive(follower)


def test_a_session_that_grows_too_large_is_closed_and_the_next_full_fetch_has_none() -> None:
    node = Node(partitions_max=3)
    other, growing = node.new_session(A0), node.new_session(A0, A1)
    assert node.open(fetch(A0, A1, session_id=growing, epoch=1)).error is ErrorCode.NONE
    context = node.open(fetch(B0, session_id=growing, epoch=2))
    assert context.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert node.new_session(A0, A1, B0) == 0
    assert node.is_alive(other)
    assert node.cache.partition_count == 1


def test_a_session_that_grows_after_a_silence_stays() -> None:
    node = Node(partitions_max=3)
    other, growing = node.new_session(A0), node.new_session(A0, A1)
    node.now_ms += 2_000
    context = node.open(fetch(B0, session_id=growing, epoch=1))
    assert names(context) == [A0, A1, B0]
    assert not node.is_alive(other)
    assert node.cache.partition_count == 3


def test_who_is_a_follower_is_told_by_the_field_of_the_version() -> None:
    consumer, follower = fetch(A0), fetch(A0, follower=0)
    for version in (14, 15):
        assert not is_from_follower(consumer, version)
        assert is_from_follower(follower, version)


def test_results_are_grouped_as_they_follow_each_other() -> None:
    context = Node(version=BY_ID).open(fetch(A0, A1, B0, ("a", 2)))
    grouped = finish(group_by_topic(nothing_new(context)))
    assert [
        (topic.topic, topic.topic_id, [found.partition_index for found in topic.partitions])
        for topic in grouped
    ] == [
        ("a", topic_id("a"), [0, 1]),
        ("b", topic_id("b"), [0]),
        ("a", topic_id("a"), [2]),
    ]


def test_topics_that_are_not_known_are_kept_apart_by_their_ids() -> None:
    context = Node(version=BY_ID).open(fetch(("x", 0), ("y", 0)))
    assert [found.topic_id for found in finish(group_by_topic(nothing_new(context)))] == [
        topic_id("x"),
        topic_id("y"),
    ]


def test_a_partition_shows_itself_in_logs() -> None:
    (part,) = Node().open(fetch(("a", 0, 12))).partitions
    assert isinstance(part, SessionPartition)
    assert repr(part) == "SessionPartition(a-0, fetch_offset=12)"


def settled_session(node: Node, count: int) -> tuple[int, list[tuple[str, int]]]:
    """Make a follower's session of so many partitions, all of which are settled."""
    partitions = [("a", index) for index in range(count)]
    session_id = node.new_session(*partitions, follower=2)
    context = node.open(fetch(session_id=session_id, epoch=1, follower=2))
    assert names(context) == partitions
    assert context.unsettled is not None
    for part in list(context.partitions):
        context.unsettled.settle(part, Follower())
    assert not names(node.open(fetch(session_id=session_id, epoch=2, follower=2)))
    return session_id, partitions


def test_all_partitions_of_a_followers_session_are_looked_at_in_steps_now_and_then() -> None:
    node = Node()
    session_id, partitions = settled_session(node, 10 * PARTITIONS_PER_STEP)
    node.now_ms = LOOK_AT_ALL_MS
    request = fetch(session_id=session_id, epoch=3, follower=2)
    assert node.cache.open_unchanged(request, BY_NAME, node.now_ms) is None
    opening = node.cache.open(request, BY_NAME, node.topics.get, node.now_ms)
    for _ in range(10):
        next(opening)
    assert names(finish(opening)) == partitions


def test_who_asks_for_a_look_at_all_partitions_while_one_goes_on_gets_another() -> None:
    node = Node()
    session_id, partitions = settled_session(node, 2 * PARTITIONS_PER_STEP)
    node.now_ms = LOOK_AT_ALL_MS
    opening = node.cache.open(
        fetch(session_id=session_id, epoch=3, follower=2), BY_NAME, node.topics.get, node.now_ms
    )
    next(opening)
    node.cache.look_at_all()
    context = finish(opening)
    assert context.unsettled is not None
    for part in list(context.partitions):
        context.unsettled.settle(part, Follower())
    assert names(node.open(fetch(session_id=session_id, epoch=4, follower=2))) == partitions
    context = node.open(fetch(session_id=session_id, epoch=5, follower=2))
    assert names(context) == partitions, "nothing was settled"


def test_what_is_forgotten_while_all_partitions_are_looked_at_is_left_out() -> None:
    node = Node()
    session_id, partitions = settled_session(node, 2 * PARTITIONS_PER_STEP)
    node.now_ms = LOOK_AT_ALL_MS
    opening = node.cache.open(
        fetch(session_id=session_id, epoch=3, follower=2), BY_NAME, node.topics.get, node.now_ms
    )
    next(opening)
    last = partitions.pop()
    # The follower has given up waiting, and asks again.
    node.open(fetch(session_id=session_id, epoch=4, follower=2, forget=(last,)))
    finish(opening)
    assert names(node.open(fetch(session_id=session_id, epoch=5, follower=2))) == partitions
