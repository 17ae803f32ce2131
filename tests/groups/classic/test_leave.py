"""Heartbeats, sessions and leaving: who is in a group, and who is not any more."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.messages.leave_group import LeaveGroupResponse
from tests.groups.classic.classic_world import SESSION_MS, ClassicWorld

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def test_a_heartbeat_of_a_stranger_is_refused(world: ClassicWorld) -> None:
    assert world.heartbeat("a", 0) is UNKNOWN
    pending = world.member_id()
    assert world.heartbeat(pending, 0) is UNKNOWN
    leader, _ = world.stable()
    assert world.heartbeat("a", 1) is UNKNOWN
    assert world.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(leader, 1, instance="i") is UNKNOWN
    assert world.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_heartbeat_is_answered_while_the_leader_assigns(world: ClassicWorld) -> None:
    member = world.member_id()
    world.join(member)
    world.finish_first_rebalance()
    assert world.state() == "CompletingRebalance"
    assert world.heartbeat(member, 1) is ErrorCode.NONE


def test_a_session_without_heartbeats_ends_and_the_others_rebalance(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    world.advance(1)
    assert world.state() == "PreparingRebalance"
    assert set(world.group().members) == {leader}
    assert world.heartbeat(follower, 1) is UNKNOWN
    assert world.joined(world.join(leader)).generation_id == 2


def test_when_the_last_session_ends_the_group_is_empty_and_written(world: ClassicWorld) -> None:
    world.stable()
    world.advance(SESSION_MS)
    group = world.group()
    assert world.state() == "Empty"
    assert (group.generation, group.leader_id, group.protocol_name) == (2, None, None)
    assert group.protocol_type == "consumer"
    assert group.empty_since_ms == world.driver.clock.now_ms()
    record = world.records()[-1]
    assert record is not None
    assert (record.generation, record.members, record.leader, record.protocol) == (
        2,
        (),
        None,
        None,
    )
    assert record.protocol_type == "consumer"
    assert record.current_state_timestamp == group.empty_since_ms


def test_a_session_that_ends_amid_a_rebalance_completes_it(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    ticket = world.join(leader)
    world.advance(SESSION_MS)
    assert world.joined(ticket).generation_id == 2
    assert set(world.group().members) == {leader}
    assert world.heartbeat(follower, 1) is UNKNOWN


def test_the_next_members_of_an_empty_group_go_on_with_its_generation(world: ClassicWorld) -> None:
    world.stable()
    world.advance(SESSION_MS)
    ticket = world.join(version=3, protocol_type="other", protocols={"p": b""})
    world.finish_first_rebalance()
    answer = world.joined(ticket)
    assert (answer.generation_id, answer.protocol_type, answer.protocol_name) == (3, "other", "p")


def test_a_commit_counts_as_a_heartbeat(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    world.advance(SESSION_MS - 1)
    machine = world.driver.machine
    for member in (leader, follower, "nobody"):
        machine.classic.keep_session(world.group(), member)
    world.advance(SESSION_MS - 1)
    assert world.state() == "Stable"


def test_leaving_a_group_that_does_not_exist_is_refused(world: ClassicWorld) -> None:
    answer = world.leave("a")
    assert isinstance(answer, KafkaError)
    assert answer.code is UNKNOWN


def test_a_member_that_leaves_makes_the_others_rebalance(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    assert world.left(leader) == [ErrorCode.NONE]
    assert world.group().leader_id == follower
    assert world.state() == "PreparingRebalance"
    assert "done" in world.group().rebalance_reason
    assert world.joined(world.join(follower)).generation_id == 2


def test_of_long_reasons_little_is_kept(world: ClassicWorld) -> None:
    world.stable()
    world.join(version=3, reason="x" * 30_000)
    assert world.state() == "PreparingRebalance"
    assert len(world.group().rebalance_reason) <= 1_000


def test_every_member_of_a_batch_has_its_own_answer(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    assert world.left(leader, "nobody", "", follower) == [0, UNKNOWN, UNKNOWN, 0]
    assert world.state() == "Empty"
    assert world.group().generation == 2


def test_nobody_leaves_nothing_happens(world: ClassicWorld) -> None:
    world.stable()
    assert world.left("nobody") == [UNKNOWN]
    assert world.state() == "Stable"


@pytest.mark.parametrize(("who", "code"), [("member", ErrorCode.NONE), ("nobody", UNKNOWN)])
def test_before_v3_the_answer_is_the_one_members(
    world: ClassicWorld, who: str, code: ErrorCode
) -> None:
    (member,) = world.stable(1)
    answer = world.leave(member if who == "member" else who, version=2)
    assert answer == LeaveGroupResponse(error_code=code)


def test_a_pending_member_may_leave(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    pending = world.member_id()
    joins = [world.join(leader), world.join(follower)]
    assert world.left(pending) == [ErrorCode.NONE]
    assert {world.joined(t).generation_id for t in joins} == {2}
    assert world.code(world.join(pending)) is UNKNOWN


def test_leaving_the_first_rebalance_leaves_it_its_time(world: ClassicWorld) -> None:
    member = world.member_id()
    ticket = world.join(member)
    assert world.left(member) == [ErrorCode.NONE]
    assert world.code(ticket) is UNKNOWN
    assert world.state() == "PreparingRebalance"
    world.finish_first_rebalance()
    assert world.state() == "Empty"


def test_who_waits_and_is_removed_is_told(world: ClassicWorld) -> None:
    members = [world.member_id() for _ in range(2)]
    for member in members:
        world.join(member)
    world.finish_first_rebalance()
    waiting = world.sync(members[1], 1)
    world.leave(members[1])
    assert world.code(waiting) is UNKNOWN


def test_an_empty_generation_that_cannot_be_written_is_empty_all_the_same(
    world: ClassicWorld,
) -> None:
    (member,) = world.stable(1)
    world.driver.append_error = KafkaError(ErrorCode.NOT_COORDINATOR, "no disk")
    answer = world.leave(member)
    assert isinstance(answer, KafkaError)
    assert world.state() == "Empty"
    world.driver.append_error = None
    world.driver.restart()
    assert world.state() == "Stable"
    assert set(world.group().members) == {member}
    world.advance(SESSION_MS)
    assert world.state() == "Empty"
