"""The life of a member whose coordinator assigns (KIP-848), without a group."""

from __future__ import annotations

import re

import pytest

from dohle.client.group.consumer_member import server_regex
from dohle.client.group.consumer_membership import (
    ConsumerMembership,
    ConsumerState,
    NameTopics,
)
from dohle.client.group.membership import Rest, Revoke, Take
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, TopicPartition, Uuid
from dohle.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T, U = TopicName("t"), TopicName("u")
T_ID, U_ID, NEW_T_ID = (Uuid(bytes([number]) * 16) for number in (1, 2, 3))
P0, P1, P2 = (TopicPartition(T, number) for number in range(3))


def member(*, instance_id: str | None = None, assignor: str | None = None) -> ConsumerMembership:
    made = ConsumerMembership(
        GroupId("g"),
        "me",
        group_instance_id=instance_id,
        rack="r1",
        assignor=assignor,
        rebalance_timeout_ms=20_000,
    )
    made.subscribe([T])
    return made


def owned_in(request: ConsumerGroupHeartbeatRequest) -> dict[Uuid, tuple[int, ...]] | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def is_due(membership: ConsumerMembership) -> bool:
    return membership.is_heartbeat_due


def beat(
    membership: ConsumerMembership,
    epoch: int,
    assigned: dict[Uuid, tuple[int, ...]] | None = None,
    *,
    error: ErrorCode = ErrorCode.NONE,
) -> ConsumerGroupHeartbeatRequest:
    """Send a heartbeat and answer it; return what was sent."""
    request = membership.heartbeat()
    assert request is not None
    membership.sending()
    membership.heartbeat_answered(request, answer_of(epoch, assigned, error))
    return request


def answer_of(
    epoch: int, assigned: dict[Uuid, tuple[int, ...]] | None, error: ErrorCode = ErrorCode.NONE
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=None
        if assigned is None
        else Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=some)
                for topic_id, some in assigned.items()
            )
        ),
    )


def move(membership: ConsumerMembership) -> list[NameTopics | Revoke | Take]:
    """Carry out all steps until there is nothing to do."""
    steps: list[NameTopics | Revoke | Take] = []
    while not isinstance(step := membership.step(), Rest):
        steps.append(step)
        match step:
            case NameTopics():
                membership.named(step, {T_ID: T, U_ID: U, NEW_T_ID: T})
            case Revoke():
                membership.revoked(step)
            case Take():
                membership.taking()
                membership.taken()
    return steps


def reading(membership: ConsumerMembership, epoch: int, *numbers: int) -> None:
    """Join, take these partitions of the topic and tell the coordinator."""
    beat(membership, epoch, {T_ID: numbers})
    move(membership)
    beat(membership, epoch)


def test_the_first_heartbeat_joins_with_all_that_the_group_must_know() -> None:
    membership = member(instance_id="i", assignor="range")
    assert is_due(membership)
    request = beat(membership, 1, {})
    assert (request.member_id, request.member_epoch, request.instance_id) == ("me", 0, "i")
    assert (request.rebalance_timeout_ms, request.rack_id) == (20_000, "r1")
    assert (request.subscribed_topic_names, request.server_assignor) == ((T,), "range")
    # Semantics 10: who joins must own nothing, and say so.
    assert request.topic_partitions == ()
    assert request.subscribed_topic_regex is None
    assert membership.metadata.generation_id == membership.member_epoch == 1


def test_a_heartbeat_without_news_has_nothing_but_who_it_is() -> None:
    membership = member()
    reading(membership, 1, 0)
    request = beat(membership, 1)
    assert request == ConsumerGroupHeartbeatRequest(
        group_id=GroupId("g"), member_id="me", member_epoch=1
    )
    assert not is_due(membership)
    assert membership.heartbeat_interval_ms == 5000


def test_what_is_assigned_is_named_then_taken_then_told_at_once() -> None:
    membership = member()
    beat(membership, 1, {T_ID: (0, 1)})
    assert not is_due(membership)
    assert move(membership) == [NameTopics(frozenset({T_ID})), Take((P0, P1))]
    assert membership.owned == (P0, P1)
    assert is_due(membership)
    assert owned_in(beat(membership, 1)) == {T_ID: (0, 1)}
    assert membership.is_stable


def test_what_moves_is_revoked_before_anything_is_taken_and_told_when_it_is_revoked() -> None:
    membership = member()
    reading(membership, 1, 0, 1)
    beat(membership, 1, {T_ID: (1, 2)})
    # The new epoch comes only when the coordinator has heard of it.
    assert membership.metadata.generation_id == 1
    step = membership.step()
    assert step == Revoke((P0,), is_lost=False)
    assert owned_in(beat(membership, 1)) is None
    assert isinstance(step, Revoke)
    membership.revoked(step)
    assert is_due(membership)
    assert owned_in(beat(membership, 2)) == {T_ID: (1,)}
    assert move(membership) == [Take((P2,))]
    assert owned_in(beat(membership, 2)) == {T_ID: (1, 2)}


def test_it_stays_a_member_that_may_commit_while_partitions_move() -> None:
    assert not member().may_commit
    membership = member()
    reading(membership, 1, 0, 1)
    beat(membership, 1, {T_ID: (1,)})
    assert membership.may_commit
    assert not membership.is_stable


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_who_is_fenced_loses_everything_and_joins_again_under_its_id(code: ErrorCode) -> None:
    membership = member()
    reading(membership, 3, 0, 1)
    beat(membership, 0, error=code)
    assert membership.heartbeat() is None, "nothing is sent before the partitions are given up"
    assert not membership.may_commit
    assert not membership.must_leave
    assert move(membership) == [Revoke((P0, P1), is_lost=True)]
    assert is_due(membership)
    request = beat(membership, 4, {T_ID: (1,)})
    assert (request.member_id, request.member_epoch) == ("me", 0)
    assert request.topic_partitions == ()
    assert request.subscribed_topic_names == (T,)
    assert move(membership)[-1] == Take((P1,))


def test_a_commit_of_a_member_that_the_group_does_not_know_loses_everything() -> None:
    membership = member()
    reading(membership, 3, 0)
    request = membership.heartbeat()
    assert request is not None
    membership.answered(2, ErrorCode.UNKNOWN_MEMBER_ID, "committing")
    assert membership.may_commit, "the answer was to an earlier epoch"
    membership.answered(3, ErrorCode.UNKNOWN_MEMBER_ID, "committing")
    assert membership.state is ConsumerState.FENCED
    # The heartbeat that was under way belongs to the former life.
    membership.heartbeat_answered(request, answer_of(3, {T_ID: (0,)}))
    assert move(membership) == [Revoke((P0,), is_lost=True)]


def test_what_is_taken_while_the_group_forgets_the_member_is_lost_too() -> None:
    membership = member()
    beat(membership, 1, {T_ID: (0,)})
    step = membership.step()
    assert isinstance(step, NameTopics)
    membership.named(step, {T_ID: T})
    membership.taking()
    membership.answered(1, ErrorCode.UNKNOWN_MEMBER_ID, "committing")
    membership.taken()
    assert move(membership) == [Revoke((P0,), is_lost=True)]


def test_what_is_taken_away_while_it_is_taken_is_revoked() -> None:
    membership = member()
    beat(membership, 1, {T_ID: (0, 1)})
    step = membership.step()
    assert isinstance(step, NameTopics)
    membership.named(step, {T_ID: T})
    membership.taking()
    beat(membership, 1, {})
    membership.taken()
    assert move(membership) == [Revoke((P0, P1), is_lost=False)]


def test_a_commit_with_an_old_epoch_asks_for_a_heartbeat() -> None:
    membership = member()
    reading(membership, 3, 0)
    membership.answered(3, ErrorCode.STALE_MEMBER_EPOCH, "committing")
    assert membership.may_commit
    assert is_due(membership)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_an_error_that_no_heartbeat_mends_is_raised(code: ErrorCode) -> None:
    with pytest.raises(KafkaError, match="group g") as raised:
        beat(member(instance_id="i"), 0, error=code)
    assert raised.value.code is code


def test_behind_a_heartbeat_without_an_answer_everything_is_told_again() -> None:
    membership = member()
    reading(membership, 1, 0)
    membership.subscribe([T, U])
    assert is_due(membership)
    first = membership.heartbeat()
    assert first is not None
    assert first.subscribed_topic_names == (T, U)
    membership.sending()
    membership.unanswered()
    again = beat(membership, 1)
    assert again.subscribed_topic_names == (T, U)
    assert again.rebalance_timeout_ms == 20_000
    assert owned_in(again) == {T_ID: (0,)}
    assert beat(membership, 1).subscribed_topic_names is None


def test_a_regular_expression_is_sent_once_and_taken_back_by_an_empty_one() -> None:
    membership = member()
    membership.subscribe(regex="t.*")
    first = beat(membership, 1, {})
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ((), "t.*")
    assert beat(membership, 1).subscribed_topic_regex is None
    membership.subscribe([T])
    membership.sending()
    membership.unanswered()
    third = beat(membership, 1)
    assert (third.subscribed_topic_names, third.subscribed_topic_regex) == ((T,), "")
    assert beat(membership, 1).subscribed_topic_regex is None


def test_an_empty_assignment_counts_when_it_has_lasted_for_a_heartbeat() -> None:
    # The coordinator resolves a regular expression behind its first answer, and others may have to
    # give partitions back first.
    membership = member()
    beat(membership, 1, {})
    assert not membership.is_stable
    beat(membership, 1)
    assert membership.is_stable


def test_a_topic_without_a_name_is_left_and_asked_for_again_behind_the_next_heartbeat() -> None:
    membership = member()
    beat(membership, 1, {T_ID: (0,), U_ID: (0,)})
    step = membership.step()
    assert isinstance(step, NameTopics)
    membership.named(step, {T_ID: T})
    assert membership.step() == Take((P0,))
    membership.taking()
    membership.taken()
    assert membership.step() == Rest()
    assert not membership.is_stable
    assert owned_in(beat(membership, 1)) == {T_ID: (0,)}
    assert membership.step() == NameTopics(frozenset({U_ID}))


def test_a_topic_that_was_created_again_is_revoked_and_taken() -> None:
    membership = member()
    reading(membership, 1, 0)
    beat(membership, 2, {NEW_T_ID: (0,)})
    assert move(membership) == [
        Revoke((P0,), is_lost=False),
        NameTopics(frozenset({NEW_T_ID})),
        Take((P0,)),
    ]
    assert owned_in(beat(membership, 2)) == {NEW_T_ID: (0,)}


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_static_member_leaves_for_a_while_and_others_for_good(
    instance_id: str | None, epoch: int
) -> None:
    membership = member(instance_id=instance_id)
    before = membership.must_leave
    # A join that has no answer may have made it a member.
    membership.sending()
    assert (before, membership.must_leave) == (False, True)
    request = membership.leave_request()
    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)


@pytest.mark.parametrize(
    ("pattern", "sent"),
    [
        (re.compile("a.*"), "a.*"),
        (re.compile("a.*", re.IGNORECASE), "(?i)a.*"),
        (re.compile("a.*", re.DOTALL | re.IGNORECASE), "(?is)a.*"),
    ],
)
def test_flags_of_a_pattern_are_sent_as_brokers_read_them(
    pattern: re.Pattern[str], sent: str
) -> None:
    assert server_regex(pattern) == sent


def test_flags_that_brokers_do_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="flags"):
        server_regex(re.compile("a b", re.VERBOSE))
