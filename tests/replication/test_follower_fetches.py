"""The fetches of a follower: rules one by one, and beside the leader's real sessions (KIP-227)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.steps import finish
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.replication.fetch_session_cache import FetchSessionCache
from dohle.replication.follower_fetches import FetchLimits, FollowerFetches, Key, SessionLost

ME = BrokerId(3)
LIMITS = FetchLimits(500, 1, 1 << 20)
VERSION = 17
A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def wish(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset)


def request(fetches: FollowerFetches, version: int = VERSION) -> FetchRequest:
    return fetches.request(ME, 77, LIMITS, version)


def asked(made: FetchRequest) -> dict[Key, int]:
    return {
        (topic.topic_id, each.partition): each.fetch_offset
        for topic in made.topics
        for each in topic.partitions
    }


def response(*keys: Key, session_id: int = 5, error: int = 0) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=tuple(
            FetchableTopicResponse(
                topic_id=topic_id, partitions=(PartitionData(partition_index=index),)
            )
            for topic_id, index in keys
        ),
    )


def test_f12_a_replica_tells_who_it_is_in_the_words_of_the_version() -> None:
    fetches = FollowerFetches()
    fetches.want((A, 0), wish(0))
    made = request(fetches)
    assert (made.replica_state.replica_id, made.replica_state.replica_epoch) == (ME, 77)
    assert made.replica_id == -1
    assert request(fetches, 14).replica_id == ME


def test_in_a_session_only_changes_are_named() -> None:
    fetches = FollowerFetches()
    for index in range(3):
        fetches.want((A, index), wish(index))
    first = request(fetches)
    assert (first.session_id, first.session_epoch, len(asked(first))) == (0, 0, 3)
    assert fetches.answered(response())[:] == []
    fetches.want((A, 1), wish(1, 9))
    fetches.want((B, 0), wish(0))
    fetches.forget((A, 2))
    second = request(fetches)
    assert (second.session_id, second.session_epoch) == (5, 1)
    assert asked(second) == {(A, 1): 9, (B, 0): 0}
    (gone,) = second.forgotten_topics_data
    assert (gone.topic_id, gone.partitions) == (A, (2,))
    fetches.answered(response())
    third = request(fetches)
    assert (third.session_epoch, asked(third), third.forgotten_topics_data) == (2, {}, ())


def test_f13_an_answer_counts_only_for_what_is_still_wanted() -> None:
    fetches = FollowerFetches()
    for index in range(4):
        fetches.want((A, index), wish(index))
    request(fetches)
    fetches.want((A, 1), wish(1))
    fetches.forget((A, 2))
    fetches.delay((A, 3), 100)
    found = fetches.answered(response(*((A, index) for index in range(5))))
    assert [each.key for each in found] == [(A, 0)]


def test_what_is_delayed_is_left_out_until_it_is_due() -> None:
    fetches = FollowerFetches()
    fetches.want((A, 0), wish(0))
    fetches.want((A, 1), wish(1))
    fetches.delay((A, 0), 100)
    assert asked(request(fetches)) == {(A, 1): 0}
    assert (fetches.due(99), fetches.next_due_ms) == ([], 100)
    assert fetches.due(100) == [(A, 0)]
    assert fetches.due(200) == []


def test_what_is_wanted_again_or_forgotten_is_not_due_any_more() -> None:
    fetches = FollowerFetches()
    fetches.delay((A, 0), 100)
    fetches.delay((A, 1), 100)
    fetches.want((A, 0), wish(0))
    fetches.forget((A, 1))
    assert fetches.due(1_000) == []


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        # The old one is closed by the new.
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
    ],
)
def test_f17_a_session_that_is_lost_is_begun_anew(error: ErrorCode, session_id: int) -> None:
    fetches = FollowerFetches()
    fetches.want((A, 0), wish(0))
    request(fetches)
    fetches.answered(response())
    request(fetches)
    assert fetches.answered(response((A, 0), error=error)) == []
    again = request(fetches)
    assert (again.session_id, again.session_epoch, len(asked(again))) == (session_id, 0, 1)


def test_f17_a_mixture_of_names_and_ids_ends_the_connection() -> None:
    fetches = FollowerFetches()
    fetches.want((A, 0), wish(0))
    request(fetches)
    with pytest.raises(SessionLost):
        fetches.answered(response(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR))
    fetches.disconnected()
    assert request(fetches).session_epoch == 0


_KEYS = st.tuples(st.sampled_from([A, B]), st.integers(0, 3))
_ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), _KEYS, st.integers(0, 99)),
        st.tuples(st.sampled_from(["forget", "delay"]), _KEYS, st.just(0)),
        st.tuples(
            st.sampled_from(["ask", "lose answer", "forget session"]),
            st.just((A, 0)),
            st.just(0),
        ),
    ),
    max_size=40,
)


@given(acts=_ACTS)
def test_the_leaders_session_has_what_is_wanted_whatever_happens(
    acts: list[tuple[str, Key, int]],
) -> None:
    cache = FetchSessionCache(rng=Random(1))
    fetches = FollowerFetches()
    wanted: dict[Key, int] = {}

    def ask(*, is_lost: bool = False) -> None:
        if not fetches.has_wishes:
            return
        context = finish(cache.open(request(fetches), VERSION, lambda _: TopicName("t"), 0))
        seen = {(part.topic_id, part.partition): part.request for part in context.partitions}
        results = [
            (part, PartitionData(partition_index=part.partition)) for part in context.partitions
        ]
        reply = finish(context.finish(results, 0))
        if is_lost:
            fetches.disconnected()
            return
        fetches.answered(FetchResponse(error_code=context.error, session_id=reply.session_id))
        if context.error:
            ask()
        else:
            assert {key: each.fetch_offset for key, each in seen.items()} == wanted

    for act, key, offset in acts:
        match act:
            case "want":
                fetches.want(key, wish(key[1], offset))
                wanted[key] = offset
            case "forget" | "delay":
                fetches.forget(key) if act == "forget" else fetches.delay(key, 1)
                wanted.pop(key, None)
            case "forget session":
                cache = FetchSessionCache(rng=Random(2))
            case _:
                ask(is_lost=act == "lose answer")
    ask()
