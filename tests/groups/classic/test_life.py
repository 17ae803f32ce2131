"""The life of classic groups: loading, size limits, deletion, and what others ask of a group."""

from __future__ import annotations

import pytest

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import finish
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.protocols import offer_at_once
from dohle.groups.classic.records import group_of
from dohle.groups.coordinator import listed_state, listed_type
from dohle.protocol.messages.describe_groups import DescribedGroup
from dohle.protocol.messages.list_groups import ListedGroup
from dohle.protocol.messages.records.classic_group import GroupMetadataValue, MemberMetadata
from tests.groups.classic.classic_world import GROUP, SESSION_MS, ClassicWorld, subscription
from tests.groups.classic.commands import delete_group

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


# Loading


def test_a_loaded_group_goes_on_where_it_was(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    world.driver.restart()
    group = world.group()
    assert (world.state(), group.generation, group.leader_id) == ("Stable", 1, leader)
    assert world.assigned(world.sync(follower, 1)) == follower.encode()
    assert world.heartbeat(leader, 1) is ErrorCode.NONE


def test_loaded_members_have_a_whole_session_to_come_back(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    world.advance(SESSION_MS - 1)
    world.driver.restart()
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    world.advance(1)
    assert set(world.group().members) == {leader}
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_that_was_not_assigned_is_lost_with_the_coordinator(
    world: ClassicWorld,
) -> None:
    leader, follower = world.stable()
    for member in (leader, follower):
        world.join(member)
    assert world.state() == "CompletingRebalance"
    world.driver.restart()
    assert (world.state(), world.group().generation) == ("Stable", 1)
    assert world.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION


def test_a_new_group_that_was_lost_with_its_members_is_empty(world: ClassicWorld) -> None:
    member = world.member_id()
    world.join(member)
    world.driver.restart()
    assert world.state() == "Empty"
    assert world.code(world.join(member)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_that_cannot_be_written_does_not_exist(world: ClassicWorld) -> None:
    world.driver.append_error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no replicas")
    for version in (3, 9):
        ticket = world.join(version=version)
        assert world.code(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUP not in world.driver.machine.context.groups
    world.driver.append_error = None
    world.advance(SESSION_MS)
    assert world.code(world.join()) is ErrorCode.MEMBER_ID_REQUIRED


def test_a_record_of_old_has_no_rebalance_timeout_and_no_time() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        members=(
            MemberMetadata(
                member_id="m",
                session_timeout=7_000,
                subscription=subscription("t"),
                assignment=b"x",
            ),
        ),
    )
    group = group_of("g", value)
    assert group.members["m"].rebalance_timeout_ms == 7_000
    assert group.state_since_ms is None
    assert group.is_subscribed_to("t")
    assert not group.is_subscribed_to("u")


# Size


def test_a_full_group_takes_nobody_in(world: ClassicWorld) -> None:
    world.set(group_max_size=2)
    members = world.stable(2)
    ticket = world.join()
    assert world.code(ticket) is FULL
    assert world.answer(ticket).member_id == ""
    assert world.code(world.join(instance="i")) is FULL
    assert world.state() == "Stable"
    # Who is in may come again.
    assert world.joined(world.join(members[1])).generation_id == 1


def test_a_group_that_is_being_filled_takes_in_no_more_than_it_may(world: ClassicWorld) -> None:
    world.set(group_max_size=2)
    joins = [world.join(version=3) for _ in range(3)]
    assert [world.code(t) for t in joins] == [None, None, FULL]


def test_a_loaded_group_that_is_too_large_rebalances_and_the_last_must_go(
    world: ClassicWorld,
) -> None:
    members = world.stable(3)
    world.set(group_max_size=2)
    world.driver.restart()
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(members[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joins = [world.join(member) for member in members]
    assert world.code(joins[2]) is FULL
    assert {world.joined(t).generation_id for t in joins[:2]} == {2}
    assert set(world.group().members) == set(members[:2])


def test_who_waits_already_may_send_its_join_to_a_full_group_again(world: ClassicWorld) -> None:
    members = world.stable(3)
    world.set(group_max_size=2)
    world.driver.restart()
    world.join(members[0])
    world.join(members[1])
    assert world.answer(world.join(members[0])) is None


# Looking and deleting


def describe(world: ClassicWorld, version: int = 6, group: str = GROUP) -> DescribedGroup:
    answer = world.driver.ask(lambda machine, t: machine.describe_group(group, t, version))
    assert isinstance(answer, DescribedGroup)
    return answer


def test_a_stable_group_is_described_with_its_protocol(world: ClassicWorld) -> None:
    leader, follower = world.stable(protocols={"range": b"meta"})
    found = describe(world)
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [member.member_id for member in found.members] == [leader, follower]
    first = found.members[0]
    assert (first.member_metadata, first.member_assignment) == (b"meta", leader.encode())
    assert (first.client_id, first.client_host) == ("client", "/127.0.0.1")


def test_a_group_that_rebalances_is_described_without_its_protocol(world: ClassicWorld) -> None:
    leader, _ = world.stable(protocols={"range": b"meta"})
    world.join(leader, protocols={"range": b"meta"})
    found = describe(world)
    assert (found.group_state, found.protocol_data) == ("PreparingRebalance", "")
    assert {member.member_metadata for member in found.members} == {b""}


def test_a_group_that_does_not_exist_is_dead(world: ClassicWorld) -> None:
    assert describe(world, 5) == DescribedGroup(group_id=GROUP, group_state="Dead")
    missing = describe(world, 6)
    assert (missing.error_code, missing.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert missing.error_message


def listed(
    world: ClassicWorld, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> set[str]:
    filters = frozenset(map(listed_state, states)), frozenset(map(listed_type, types))
    return {group.group_id for group in finish(world.driver.machine.list_groups(*filters))}


def test_groups_are_listed_by_state_and_type(world: ClassicWorld) -> None:
    world.stable()
    world.driver.machine.classic.get_or_create("simple")
    assert listed(world) == {GROUP, "simple"}
    assert listed(world, states=("stable", "Dead")) == {GROUP}
    assert listed(world, states=(" EMPTY ",)) == {"simple"}
    assert listed(world, types=("CLASSIC",)) == {GROUP, "simple"}
    assert listed(world, types=("consumer",)) == set()
    assert listed(world, types=("nonsense",)) == set()
    assert listed(world, states=("Empty",), types=("classic",)) == {"simple"}
    assert ListedGroup(
        group_id=GROUP, protocol_type="consumer", group_state="Stable", group_type="classic"
    ) in finish(world.driver.machine.list_groups(set(), set()))


def delete(world: ClassicWorld, group: str = GROUP) -> object:
    ticket = world.submit(lambda machine, t: delete_group(machine, group, t))
    answer = world.answer(ticket)
    return answer.code if isinstance(answer, KafkaError) else answer


def test_only_a_group_without_members_is_deleted(world: ClassicWorld) -> None:
    assert delete(world) is ErrorCode.GROUP_ID_NOT_FOUND
    world.stable()
    assert delete(world) is ErrorCode.NON_EMPTY_GROUP
    world.advance(SESSION_MS)
    pending = world.member_id()
    group = world.group()
    assert delete(world) is None
    assert group.state is ClassicState.DEAD
    assert world.records()[-1] is None
    assert GROUP not in world.driver.machine.context.groups
    assert world.code(world.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.driver.restart()
    assert GROUP not in world.driver.machine.context.groups


def test_a_deleted_group_leaves_no_timers(world: ClassicWorld) -> None:
    before = len(world.driver.machine.context.timers)
    world.stable()
    world.advance(SESSION_MS)
    world.member_id()
    delete(world)
    assert len(world.driver.machine.context.timers) == before


# What committing and deleting offsets ask


def commit_code(
    group: ClassicGroup, member_id: str, generation: int, *, transactional: bool = False
) -> ErrorCode:
    try:
        group.validate_offset_commit(
            member_id, None, generation, is_transactional=transactional, version=9
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_anybody_may_commit_to_a_group_without_members(world: ClassicWorld) -> None:
    group = world.driver.machine.classic.get_or_create("simple")
    assert commit_code(group, "", -1) is ErrorCode.NONE
    assert commit_code(group, "a", -1) is ErrorCode.NONE
    assert commit_code(group, "a", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert not group.uses_group_management
    assert group.empty_since_ms is None


def test_only_members_of_the_generation_may_commit(world: ClassicWorld) -> None:
    (member,) = world.stable(1)
    group = world.group()
    assert commit_code(group, member, 1) is ErrorCode.NONE
    assert commit_code(group, member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit_code(group, "other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(group, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(group, "", -1, transactional=True) is ErrorCode.NONE
    world.join(member, protocols={"range": b"new"})
    assert world.state() == "CompletingRebalance"
    assert commit_code(group, member, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit_code(group, member, 2, transactional=True) is ErrorCode.NONE


def test_anybody_may_fetch(world: ClassicWorld) -> None:
    world.stable()
    world.group().validate_offset_fetch("nobody", 77)


def test_offsets_in_use_are_not_deleted_where_nobody_knows_what_is_used(
    world: ClassicWorld,
) -> None:
    world.stable(1, protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        world.group().validate_offset_delete()
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    world.advance(SESSION_MS)
    world.group().validate_offset_delete()


# What consumer groups need


def downgraded(world: ClassicWorld) -> ClassicGroup:
    group = world.driver.machine.classic.new_group("down")
    group.generation = 7
    offer = offer_at_once((name, subscription("t")) for name in ("range", "sticky"))
    for name in ("m1", "m2"):
        group.add(
            ClassicMember(name, None, "c", "/h", 60_000, SESSION_MS, "consumer", offer, b"own")
        )
    group.stabilize()
    return group


@pytest.mark.parametrize(("reason", "state"), [(None, "Stable"), ("left", "PreparingRebalance")])
def test_an_adopted_group_takes_its_place_when_its_record_is_written(
    world: ClassicWorld, reason: str | None, state: str
) -> None:
    group = downgraded(world)
    record = world.driver.machine.classic.adopt(group, rebalance_reason=reason)
    assert "down" not in world.driver.machine.context.groups
    world.submit(lambda machine, ticket: Effects([record]))
    assert world.group("down") is group
    assert (group.state_name, group.protocol_name) == (state, "range")
    assert group.is_subscribed_to("t")
    world.advance(SESSION_MS)
    assert world.group("down").state_name == "Empty"
    world.driver.restart()
    assert world.group("down").generation == 8


def test_an_adopted_group_is_forgotten_if_it_cannot_be_written(world: ClassicWorld) -> None:
    classic = world.driver.machine.classic
    classic.adopt(downgraded(world), rebalance_reason=None)
    classic.forget_adopted("down")
    assert world.code(world.join(group="down", version=3)) is None
    assert world.group("down").generation == 0


def test_everybody_who_waits_can_be_told_of_an_upgrade(world: ClassicWorld) -> None:
    leader, _ = world.stable()
    ticket = world.join(leader)
    replies = world.group().answer_all(ErrorCode.REBALANCE_IN_PROGRESS)
    assert [(reply.ticket, reply.answer.error_code) for reply in replies] == [
        (ticket, ErrorCode.REBALANCE_IN_PROGRESS)
    ]
    assert world.group().awaiting_join_count == 0
