"""The life of a member, without a group."""

from __future__ import annotations

import pytest

from dohle.client.group.assignors import ASSIGNORS
from dohle.client.group.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from dohle.client.group.membership import (
    CountPartitions,
    GroupMembership,
    Join,
    MemberState,
    Rest,
    Revoke,
    Save,
    Step,
    Sync,
    Take,
)
from dohle.client.group.sticky_user_data import read_user_data
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, TopicPartition
from dohle.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from dohle.protocol.messages.sync_group import SyncGroupResponse

T = TopicName("t")
P0, P1, P2 = (TopicPartition(T, number) for number in range(3))


def member(*assignors: str, instance_id: str | None = None) -> GroupMembership:
    made = GroupMembership(
        GroupId("g"),
        [ASSIGNORS[name] for name in assignors or ("range",)],
        group_instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
    )
    made.subscribe([T])
    return made


def join(membership: GroupMembership, generation: int, *, leader: str = "other") -> Join:
    step = membership.step()
    assert isinstance(step, Join)
    membership.joining()
    membership.joined(
        JoinGroupResponse(
            generation_id=generation,
            protocol_name=step.request.protocols[0].name,
            leader=leader,
            member_id="me",
            members=(
                JoinGroupResponseMember(
                    member_id="me", metadata=step.request.protocols[0].metadata
                ),
                JoinGroupResponseMember(
                    member_id="you", metadata=write_subscription(Subscription((T,)))
                ),
            )
            if leader == "me"
            else (),
        )
    )
    return step


def sync(membership: GroupMembership, *partitions: TopicPartition) -> Sync:
    step = membership.step()
    assert isinstance(step, Sync)
    membership.synced(SyncGroupResponse(assignment=write_assignment(partitions)))
    return step


def stable(membership: GroupMembership, generation: int, *partitions: TopicPartition) -> None:
    join(membership, generation)
    sync(membership, *partitions)
    take = membership.step()
    assert isinstance(take, Take)
    membership.taken()
    assert isinstance(membership.step(), Rest)


def revoke(membership: GroupMembership) -> Revoke:
    step = membership.step()
    assert isinstance(step, Revoke)
    membership.revoked(step)
    return step


def save(membership: GroupMembership) -> None:
    assert membership.step() == Save()
    assert membership.may_commit
    membership.saved()


def test_a_member_id_that_the_coordinator_chose_is_used_for_the_next_join() -> None:
    membership = member()
    first = membership.step()
    assert isinstance(first, Join)
    assert first.request.member_id == ""
    membership.joining()
    membership.joined(
        JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="chosen")
    )
    second = membership.step()
    assert isinstance(second, Join)
    assert second.request.member_id == "chosen"
    assert read_subscription(second.request.protocols[0].metadata).topics == (T,)


def test_a_follower_reads_what_the_leader_gave_it() -> None:
    membership = member()
    join(membership, 3)
    request = sync(membership, P0, P1).request
    assert (request.generation_id, request.member_id, request.assignments) == (3, "me", ())
    assert membership.step() == Take((P0, P1))
    membership.taken()
    assert membership.owned == (P0, P1)
    assert membership.is_stable
    assert membership.watched_topics is None


def test_a_leader_counts_the_partitions_and_shares_them_out() -> None:
    membership = member()
    join(membership, 1, leader="me")
    assert membership.step() == CountPartitions(frozenset({T}))
    membership.counted({T: 3})
    request = sync(membership, P0, P1).request
    assert {each.member_id: read_assignment(each.assignment) for each in request.assignments} == {
        "me": (P0, P1),
        "you": (P2,),
    }
    assert membership.watched_topics == {T: 3}


def test_a_static_leader_that_came_back_watches_but_does_not_share_out_anew() -> None:
    membership = member(instance_id="one")
    step = membership.step()
    assert isinstance(step, Join)
    membership.joining()
    membership.joined(
        JoinGroupResponse(
            generation_id=4,
            protocol_name="range",
            leader="me",
            member_id="me",
            skip_assignment=True,
            members=(
                JoinGroupResponseMember(
                    member_id="me", metadata=step.request.protocols[0].metadata
                ),
            ),
        )
    )
    membership.counted({T: 2})
    assert sync(membership, P0).request.assignments == ()
    assert membership.watched_topics == {T: 2}
    assert not membership.must_leave


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    membership = member()
    stable(membership, 1, P0, P1)
    membership.answered(1, ErrorCode.REBALANCE_IN_PROGRESS, "heartbeat")
    assert membership.may_commit
    assert membership.heartbeat() is not None
    assert revoke(membership) == Revoke((P0, P1), is_lost=False)
    stable(membership, 2, P1)
    assert membership.owned == (P1,)


def test_nothing_is_committed_and_no_heart_beats_while_a_join_is_on_its_way() -> None:
    membership = member()
    assert not membership.may_commit
    membership.joining()
    assert membership.heartbeat() is None
    stable(membership, 1, P0)
    assert membership.may_commit


def test_a_cooperative_member_keeps_what_it_has_and_joins_again_when_it_gave_something_up() -> None:
    membership = member("cooperative-sticky")
    stable(membership, 1, P0, P1)
    membership.rejoin()
    save(membership)
    step = join(membership, 2)
    told = read_subscription(step.request.protocols[0].metadata)
    assert (told.owned, told.generation) == ((P0, P1), 1)
    sync(membership, P1, P2)
    assert revoke(membership) == Revoke((P0,), is_lost=False)
    assert membership.step() == Take((P2,))
    membership.taken()
    assert membership.owned == (P1, P2)
    assert not membership.is_stable
    save(membership)
    stable(membership, 3, P1, P2)


def test_only_assignors_that_are_all_cooperative_make_a_cooperative_member() -> None:
    membership = member("range", "cooperative-sticky")
    stable(membership, 1, P0)
    membership.rejoin()
    assert revoke(membership) == Revoke((P0,), is_lost=False)


def test_a_sticky_member_gives_everything_up_and_says_what_it_had() -> None:
    membership = member("sticky", "range")
    first = membership.step()
    assert isinstance(first, Join)
    assert read_subscription(first.request.protocols[0].metadata).user_data == b""
    stable(membership, 3, P0, P2)
    membership.rejoin()
    assert revoke(membership) == Revoke((P0, P2), is_lost=False)
    step = membership.step()
    assert isinstance(step, Join)
    sticky, ranges = (read_subscription(each.metadata) for each in step.request.protocols)
    assert (sticky.owned, read_user_data(sticky.user_data)) == ((), ((P0, P2), 3))
    assert ranges.user_data == b""


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_who_the_group_does_not_know_any_more_has_lost_its_partitions(
    assignor: str, code: ErrorCode
) -> None:
    membership = member(assignor)
    stable(membership, 1, P0)
    membership.answered(1, code, "heartbeat")
    assert not membership.may_commit
    assert revoke(membership) == Revoke((P0,), is_lost=True)
    step = membership.step()
    assert isinstance(step, Join)
    assert step.request.member_id == ("" if code == ErrorCode.UNKNOWN_MEMBER_ID else "me")
    assert read_subscription(step.request.protocols[0].metadata).owned == ()


def test_an_answer_to_a_heartbeat_of_an_older_generation_says_nothing() -> None:
    membership = member()
    stable(membership, 1, P0)
    membership.rejoin()
    revoke(membership)
    stable(membership, 2, P0)
    membership.answered(1, ErrorCode.ILLEGAL_GENERATION, "heartbeat")
    assert membership.is_stable


def test_a_rebalance_that_begins_while_waiting_for_the_assignment_means_another_join() -> None:
    membership = member()
    join(membership, 1)
    membership.synced(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert isinstance(membership.step(), Join)
    stable(membership, 2, P0)


def test_a_rebalance_that_begins_while_partitions_are_taken_comes_after_that() -> None:
    membership = member()
    join(membership, 1)
    sync(membership, P0)
    membership.answered(1, ErrorCode.REBALANCE_IN_PROGRESS, "heartbeat")
    assert membership.step() == Take((P0,))
    membership.taken()
    assert revoke(membership) == Revoke((P0,), is_lost=False)


def test_other_topics_mean_a_rebalance_and_the_same_ones_do_not() -> None:
    membership = member()
    stable(membership, 1, P0)
    membership.subscribe([T])
    assert membership.is_stable
    membership.subscribe([T, TopicName("u")])
    revoke(membership)
    step = join(membership, 2)
    assert read_subscription(step.request.protocols[0].metadata).topics == (T, "u")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    ],
)
def test_what_no_other_try_mends_is_raised(code: ErrorCode) -> None:
    membership = member()
    membership.joining()
    with pytest.raises(KafkaError, match="group g") as raised:
        membership.joined(JoinGroupResponse(error_code=code))
    assert raised.value.code is code


def test_an_assignment_that_cannot_be_read_is_raised() -> None:
    membership = member()
    join(membership, 1)
    with pytest.raises(KafkaError, match="cannot be decoded"):
        membership.synced(SyncGroupResponse(assignment=b"\x00"))


def test_a_member_that_stops_during_a_rebalance_may_commit_unless_it_lost_its_partitions() -> None:
    membership = member("cooperative-sticky")
    stable(membership, 1, P0)
    membership.rejoin()
    save(membership)
    membership.joining()
    assert membership.heartbeat() is None
    membership.stopped()
    assert membership.heartbeat() is not None
    membership = member("cooperative-sticky")
    stable(membership, 1, P0)
    membership.answered(1, ErrorCode.UNKNOWN_MEMBER_ID, "heartbeat")
    membership.stopped()
    assert not membership.may_commit


def test_leaving_is_told_in_the_form_that_the_broker_understands() -> None:
    assert not member().must_leave
    membership = member()
    stable(membership, 1, P0)
    assert membership.must_leave
    assert membership.leave_request(2).member_id == "me"
    assert [each.member_id for each in membership.leave_request(5).members] == ["me"]


def test_the_states_of_a_generation_follow_each_other() -> None:
    membership = member()
    seen: list[MemberState] = [membership.state]
    steps: list[type[Step]] = []
    join(membership, 1, leader="me")
    seen.append(membership.state)
    steps.append(type(membership.step()))
    membership.counted({T: 1})
    seen.append(membership.state)
    sync(membership, P0)
    seen.append(membership.state)
    membership.taken()
    seen.append(membership.state)
    assert seen == [*MemberState]
    assert steps == [CountPartitions]
