"""Static members (KIP-345): a process may restart and keep its place, but only one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.coordination.effects import Ticket
from dohle.core.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_world import INITIAL_DELAY_MS, SESSION_MS, ClassicWorld

FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
OFFERS = {"range": b"1", "sticky": b"1"}


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def static_join(world: ClassicWorld, instance: str, member_id: str = "", **options: Any) -> Ticket:
    return world.join(member_id, instance=instance, **{"protocols": OFFERS, **options})


def stable(world: ClassicWorld) -> tuple[str, str]:
    """Bring the static members "a", who leads, and "b" to Stable."""
    joins = [static_join(world, instance) for instance in "ab"]
    world.finish_first_rebalance()
    members = [world.joined(t).member_id for t in joins]
    world.sync_all(members)
    return members[0], members[1]


def test_a_static_member_joins_at_once_under_its_own_name(world: ClassicWorld) -> None:
    ticket = static_join(world, "a")
    world.advance(INITIAL_DELAY_MS)
    answer = world.joined(ticket)
    assert answer.member_id.startswith("a-")
    assert answer.members[0].group_instance_id == "a"


def test_a_follower_that_restarts_keeps_its_place(world: ClassicWorld) -> None:
    a, b = stable(world)
    answer = world.joined(static_join(world, "b"))
    assert answer.member_id not in (a, b)
    assert (answer.generation_id, answer.leader, answer.members) == (1, a, ())
    assert not answer.skip_assignment
    assert world.state() == "Stable"
    assert world.assigned(world.sync(answer.member_id, 1, instance="b")) == b.encode()
    record = world.records()[-1]
    assert record is not None
    assert [member.member_id for member in record.members] == [a, answer.member_id]
    assert [member.assignment for member in record.members] == [a.encode(), b.encode()]


def test_a_leader_that_restarts_is_told_to_assign_nothing(world: ClassicWorld) -> None:
    _, b = stable(world)
    answer = world.joined(static_join(world, "a", version=9))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert {member.member_id for member in answer.members} == {b, answer.member_id}
    assert world.group().leader_id == answer.member_id


def test_before_v9_a_leader_that_restarts_is_told_of_its_former_self(world: ClassicWorld) -> None:
    a, _ = stable(world)
    answer = world.joined(static_join(world, "a", version=8))
    assert (answer.leader, answer.members, answer.skip_assignment) == (a, (), False)
    assert world.group().leader_id == answer.member_id
    assert world.state() == "Stable"


def test_a_restart_that_changes_the_protocol_rebalances_the_group(world: ClassicWorld) -> None:
    stable(world)
    assert world.group().protocol_name == "range"
    only_sticky = static_join(world, "a", protocols={"sticky": b"2"})
    assert world.answer(only_sticky) is None
    assert world.state() == "PreparingRebalance"
    static_join(world, "b")
    assert world.joined(only_sticky).protocol_name == "sticky"


def test_a_restart_may_change_metadata_without_a_rebalance(world: ClassicWorld) -> None:
    stable(world)
    answer = world.joined(static_join(world, "b", protocols={"range": b"2"}))
    assert world.state() == "Stable"
    assert world.group().members[answer.member_id].metadata("range") == b"2"


def test_who_has_lost_its_place_is_fenced_everywhere(world: ClassicWorld) -> None:
    _, b = stable(world)
    new = world.joined(static_join(world, "b")).member_id
    assert world.code(static_join(world, "b", b)) is FENCED
    assert world.code(world.sync(b, 1, instance="b")) is FENCED
    assert world.heartbeat(b, 1, instance="b") is FENCED
    assert world.left((b, "b")) == [FENCED]
    assert world.heartbeat(b, 1) is UNKNOWN
    with pytest.raises(KafkaError) as refused:
        world.group().validate_offset_commit(b, "b", 1, is_transactional=False, version=9)
    assert refused.value.code is FENCED
    assert world.heartbeat(new, 1, instance="b") is ErrorCode.NONE


def test_an_instance_that_is_no_member_is_unknown(world: ClassicWorld) -> None:
    a, _ = stable(world)
    assert world.code(static_join(world, "c", a)) is UNKNOWN
    assert world.heartbeat(a, 1, instance="c") is UNKNOWN
    assert world.left((a, "c"), ("", "c")) == [UNKNOWN, UNKNOWN]


def test_a_restart_while_the_group_prepares_fences_the_join_before(world: ClassicWorld) -> None:
    a, b = stable(world)
    first = static_join(world, "a", a)
    assert world.state() == "PreparingRebalance"
    second = static_join(world, "a")
    assert world.code(first) is FENCED
    assert world.answer(first).member_id == a
    assert world.answer(second) is None
    static_join(world, "b", b)
    assert world.joined(second).generation_id == 2
    assert world.joined(second).leader == world.joined(second).member_id


def test_a_restart_while_the_leader_assigns_begins_anew(world: ClassicWorld) -> None:
    joins = [static_join(world, instance) for instance in "ab"]
    world.finish_first_rebalance()
    a, b = (world.joined(t).member_id for t in joins)
    waiting = world.sync(b, 1, instance="b")
    new = static_join(world, "b")
    assert world.code(waiting) is FENCED
    assert world.state() == "PreparingRebalance"
    again = static_join(world, "a", a)
    assert {world.joined(t).generation_id for t in (new, again)} == {2}


def test_a_static_member_that_does_not_rejoin_stays(world: ClassicWorld) -> None:
    a, b = stable(world)
    ticket = static_join(world, "a", a, rebalance_ms=8_000)
    world.group().members[b].rebalance_timeout_ms = 8_000
    world.group().members[b].session_timeout_ms = 100_000
    assert world.heartbeat(b, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(60_000)
    assert {m.member_id for m in world.joined(ticket).members} == {a, b}


def test_a_static_member_is_gone_when_its_session_ends(world: ClassicWorld) -> None:
    stable(world)
    world.advance(SESSION_MS)
    assert world.state() == "Empty"
    assert not world.group().static_members


def test_the_session_of_a_former_self_ends_without_effect(world: ClassicWorld) -> None:
    stable(world)
    world.advance(SESSION_MS // 2)
    a = world.joined(static_join(world, "a")).member_id
    b = world.joined(static_join(world, "b")).member_id
    world.advance(SESSION_MS // 2)
    assert world.state() == "Stable"
    assert set(world.group().members) == {a, b}


def test_an_administrator_removes_a_static_member_by_its_instance_id(world: ClassicWorld) -> None:
    _, b = stable(world)
    assert world.left(("", "a")) == [ErrorCode.NONE]
    assert set(world.group().members) == {b}
    assert world.state() == "PreparingRebalance"


def test_a_place_whose_taking_cannot_be_written_is_given_back(world: ClassicWorld) -> None:
    a, b = stable(world)
    world.driver.append_error = KafkaError(ErrorCode.NOT_COORDINATOR, "no disk")
    ticket = static_join(world, "a", protocols={"range": b"2"}, session_ms=20_000)
    assert world.code(ticket) is ErrorCode.NOT_COORDINATOR
    world.driver.append_error = None
    group = world.group()
    assert set(group.members) == {a, b}
    assert (group.leader_id, group.static_members["a"]) == (a, a)
    assert group.members[a].metadata("range") == b"1"
    assert group.members[a].session_timeout_ms == SESSION_MS
    assert world.heartbeat(a, 1, instance="a") is ErrorCode.NONE
    assert world.state() == "Stable"
    world.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_a_restart_before_the_sync_has_to_sync_as_well(world: ClassicWorld) -> None:
    joins = [static_join(world, instance) for instance in "ab"]
    world.finish_first_rebalance()
    a, b = (world.joined(t).member_id for t in joins)
    world.sync(a, 1, {a: b"A", b: b"B"})
    new = world.joined(static_join(world, "b")).member_id
    assert world.group().pending_syncs == {new}
    assert world.assigned(world.sync(new, 1)) == b"B"
    assert not world.group().pending_syncs


def test_a_member_that_asks_for_no_time_to_rebalance_does_not_keep_the_timers_busy(
    world: ClassicWorld,
) -> None:
    joins = [static_join(world, "a", rebalance_ms=0), static_join(world, "b")]
    world.finish_first_rebalance()
    a, b = (world.joined(t).member_id for t in joins)
    world.sync_all([a, b])
    world.left(("", "b"))
    # Nobody has joined, and the time for that is over at once, again and again.
    world.advance(SESSION_MS - 1)
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(a, 1, instance="a") is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = static_join(world, "a", a, rebalance_ms=0)
    assert world.joined(rejoined).generation_id == 2
