"""JoinGroup: who is let in, when a rebalance is through, and what everybody is told."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from tests.groups.classic.classic_world import (
    INITIAL_DELAY_MS,
    SESSION_MS,
    ClassicWorld,
)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(world: ClassicWorld, session_ms: int) -> None:
    assert world.code(world.join(session_ms=session_ms)) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert not world.records()


def test_a_member_id_that_no_group_knows_is_refused(world: ClassicWorld) -> None:
    assert world.code(world.join("somebody")) is ErrorCode.UNKNOWN_MEMBER_ID
    world.stable()
    assert world.code(world.join("somebody")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_is_given_an_id_first_and_the_group_is_written(world: ClassicWorld) -> None:
    ticket = world.join()
    assert world.code(ticket) is ErrorCode.MEMBER_ID_REQUIRED
    assert world.answer(ticket).member_id.startswith("client-")
    assert world.state() == "Empty"
    (record,) = world.records()
    assert record is not None
    assert (record.generation, record.protocol_type, record.protocol) == (0, "", None)
    assert record.current_state_timestamp == world.driver.clock.now_ms()


@pytest.mark.parametrize("version", [0, 3])
def test_before_v4_a_new_member_joins_at_once(world: ClassicWorld, version: int) -> None:
    ticket = world.join(version=version)
    assert world.answer(ticket) is None
    world.advance(INITIAL_DELAY_MS)
    answer = world.joined(ticket)
    assert answer.leader == answer.member_id
    assert answer.generation_id == 1


def test_a_member_of_v0_has_its_session_timeout_for_a_rebalance(world: ClassicWorld) -> None:
    world.join(version=0, session_ms=7_000, rebalance_ms=-1)
    assert world.group().rebalance_timeout_ms == 7_000


def test_a_pending_member_that_does_not_come_is_forgotten(world: ClassicWorld) -> None:
    member = world.member_id()
    world.advance(SESSION_MS - 1)
    assert world.group().pending_joins == {member}
    world.advance(1)
    assert not world.group().pending_joins
    assert world.code(world.join(member)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_is_no_static_member(world: ClassicWorld) -> None:
    member = world.member_id()
    assert world.code(world.join(member, instance="i")) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_first_rebalance_waits_for_its_delay(world: ClassicWorld) -> None:
    ticket = world.join(world.member_id())
    world.advance(INITIAL_DELAY_MS - 1)
    assert world.answer(ticket) is None
    assert world.state() == "PreparingRebalance"
    world.advance(1)
    answer = world.joined(ticket)
    assert world.state() == "CompletingRebalance"
    assert answer.generation_id == 1
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in answer.members] == [answer.member_id]


def test_a_delay_of_nothing_lets_the_first_member_go_on(world: ClassicWorld) -> None:
    world.set(group_initial_rebalance_delay_ms=0)
    ticket = world.join(version=0)
    world.advance(0)
    assert world.joined(ticket).generation_id == 1


def test_who_comes_later_prolongs_the_first_rebalance(world: ClassicWorld) -> None:
    first = world.join(version=3)
    world.advance(INITIAL_DELAY_MS - 1)
    second = world.join(version=3)
    world.advance(INITIAL_DELAY_MS)
    assert world.answer(first) is None
    world.advance(1)
    assert world.joined(first).leader == world.joined(second).leader
    assert len(world.joined(first).members) == 2
    assert world.joined(second).members == ()


def test_the_first_rebalance_is_prolonged_to_the_rebalance_timeout_at_most(
    world: ClassicWorld,
) -> None:
    first = world.join(version=3, rebalance_ms=10_000)
    for _ in range(4):
        world.advance(2_000)
        world.join(version=3, rebalance_ms=10_000)
    world.advance(1_999)
    world.join(version=3, rebalance_ms=10_000)
    assert world.answer(first) is None
    world.advance(1)
    assert len(world.joined(first).members) == 6


def test_a_rebalance_is_through_when_all_have_rejoined(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    third = world.member_id()
    new = world.join(third)
    assert world.state() == "PreparingRebalance"
    again = world.join(leader)
    assert world.answer(again) is None
    last = world.join(follower)
    assert {world.joined(t).generation_id for t in (new, again, last)} == {2}
    assert {world.joined(t).leader for t in (new, again, last)} == {leader}
    assert {m.member_id for m in world.joined(again).members} == {leader, follower, third}


def test_a_rebalance_waits_for_who_was_given_an_id(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    pending = world.member_id()
    again = [world.join(leader), world.join(follower)]
    # The follower joined unchanged, but after the leader: the rebalance was under way.
    assert [world.answer(t) for t in again] == [None, None]
    last = world.join(pending)
    assert {world.joined(t).generation_id for t in (*again, last)} == {2}


def test_a_pending_member_that_does_not_come_completes_the_rebalance(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    world.member_id()
    again = [world.join(leader), world.join(follower)]
    world.advance(SESSION_MS)
    assert {world.joined(t).generation_id for t in again} == {2}


def test_a_rebalance_lets_go_of_dynamic_members_that_do_not_rejoin(world: ClassicWorld) -> None:
    leader, follower = world.stable(rebalance_ms=8_000)
    again = world.join(follower, protocols={"range": b"new"}, rebalance_ms=8_000)
    world.advance(7_999)
    assert world.answer(again) is None
    world.advance(1)
    assert world.joined(again).leader == follower
    assert set(world.group().members) == {follower}
    assert world.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_as_long_as_its_slowest_member_wants(world: ClassicWorld) -> None:
    first = world.join(version=3, rebalance_ms=20_000, session_ms=100_000)
    second = world.join(version=3, rebalance_ms=40_000, session_ms=100_000)
    world.finish_first_rebalance()
    members = [world.joined(t).member_id for t in (first, second)]
    world.sync_all(members)
    again = world.join(members[0], rebalance_ms=20_000, session_ms=100_000)
    world.advance(39_999)
    assert world.answer(again) is None
    world.advance(1)
    assert world.joined(again).generation_id == 2


def test_if_only_static_members_are_left_the_rebalance_waits_on(world: ClassicWorld) -> None:
    joins = [world.join(instance=i, session_ms=50_000, rebalance_ms=20_000) for i in "ab"]
    world.finish_first_rebalance()
    first, second = (world.joined(t).member_id for t in joins)
    world.sync_all([first, second])
    world.leave(second)
    assert world.state() == "PreparingRebalance"
    world.advance(40_000)
    assert world.state() == "PreparingRebalance"
    again = world.join(first, instance="a", session_ms=50_000, rebalance_ms=20_000)
    assert world.joined(again).generation_id == 2


def test_the_protocol_that_most_members_like_best_is_chosen(world: ClassicWorld) -> None:
    offers = [
        {"a": b"", "b": b"1", "c": b""},
        {"c": b"", "b": b"2"},
        {"b": b"3", "c": b""},
    ]
    joins = [world.join(version=3, protocols=offer) for offer in offers]
    world.finish_first_rebalance()
    answers = [world.joined(t) for t in joins]
    assert {answer.protocol_name for answer in answers} == {"b"}
    assert [m.metadata for m in answers[0].members] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", {}), ("", {"range": b""})],
)
def test_a_first_member_without_protocol_is_refused(
    world: ClassicWorld, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    ticket = world.join(protocol_type=protocol_type, protocols=protocols)
    assert world.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not world.records()


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"other": b""})],
)
def test_who_has_nothing_in_common_with_the_group_is_refused(
    world: ClassicWorld, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    (leader,) = world.stable(1)
    for member in ("", leader):
        ticket = world.join(member, protocol_type=protocol_type, protocols=protocols)
        assert world.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "Stable"


def test_a_leader_that_joins_a_stable_group_again_rebalances_it(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    ticket = world.join(leader, reason="the topics have changed")
    assert world.state() == "PreparingRebalance"
    assert "the topics have changed" in world.group().rebalance_reason
    assert world.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(follower)
    assert world.joined(ticket).generation_id == 2


def test_a_follower_that_joins_again_unchanged_is_told_what_is(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    answer = world.joined(world.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, ())
    assert not answer.skip_assignment
    assert world.state() == "Stable"


def test_a_follower_that_changes_its_metadata_rebalances_the_group(world: ClassicWorld) -> None:
    _, follower = world.stable()
    assert world.answer(world.join(follower, protocols={"range": b"new"})) is None
    assert world.state() == "PreparingRebalance"
    assert "not provided" in world.group().rebalance_reason


def test_who_missed_the_answer_to_its_join_gets_it_again(world: ClassicWorld) -> None:
    members = [world.member_id() for _ in range(2)]
    for member in members:
        world.join(member)
    world.finish_first_rebalance()
    again = [world.joined(world.join(member)) for member in members]
    assert [answer.generation_id for answer in again] == [1, 1]
    assert [len(answer.members) for answer in again] == [2, 0]


def test_a_member_that_changes_while_the_leader_assigns_begins_anew(world: ClassicWorld) -> None:
    members = [world.member_id() for _ in range(2)]
    for member in members:
        world.join(member)
    world.finish_first_rebalance()
    waiting = world.sync(members[1], 1)
    again = world.join(members[0], protocols={"range": b"new"})
    assert world.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.state() == "PreparingRebalance"
    world.join(members[1])
    assert world.joined(again).generation_id == 2


def test_a_join_that_is_sent_again_supersedes_the_one_before(world: ClassicWorld) -> None:
    leader, _ = world.stable()
    first = world.join(leader)
    second = world.join(leader)
    assert world.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answer(second) is None
    assert world.group().awaiting_join_count == 1


def test_a_new_member_that_waits_too_long_for_its_first_join_is_let_go(
    world: ClassicWorld,
) -> None:
    leader, _ = world.stable(rebalance_ms=1_000_000, session_ms=1_000_000)
    ticket = world.join(version=3, rebalance_ms=1_000_000)
    world.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert world.answer(ticket) is None
    world.advance(1)
    assert world.code(ticket) is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.group().members) == 2
    assert leader in world.group().members


def test_who_waits_for_a_rebalance_needs_no_heartbeat(world: ClassicWorld) -> None:
    leader, follower = world.stable(session_ms=SESSION_MS)
    world.join(leader)
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(world.group().members) == {leader, follower}


def test_a_client_id_too_long_for_a_record_is_refused(world: ClassicWorld) -> None:
    ticket = world.join(instance="i" * 32_767)
    assert world.code(ticket) is ErrorCode.INVALID_REQUEST
