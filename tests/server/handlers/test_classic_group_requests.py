"""Classic groups over the wire: every version, two consumers, a restart, and the administrator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest
from dohle.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
)
from dohle.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dohle.protocol.messages.list_groups import ListGroupsRequest
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.sync_group import SyncGroupRequest
from dohle.server.net.callers import client_host
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.handlers.classic_members import (
    GROUP,
    NONE,
    join,
    join_request,
    stable,
    sync_request,
)
from tests.server.wire import Wire, create_topic, on_node, running_node

PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
}
MEMBER_ID_REQUIRED_VERSION = 4
BATCHED_LEAVES = 3


async def find_coordinator(node: Node, wire: Wire, group: str = GROUP) -> None:
    answer = await wire.send(FindCoordinatorRequest(coordinator_keys=(group,)))
    assert answer.coordinators[0].error_code == NONE
    await until(lambda: not node.broker.groups.is_loading)


async def heartbeat(wire: Wire, joined: JoinGroupResponse, version: int = 4) -> int:
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
    )
    code: int = (await wire.send(request, version)).error_code
    return code


async def describe(wire: Wire, version: int = 6, **more: Any) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=(GROUP,), **more)
    (described,) = (await wire.send(request, version)).groups
    assert isinstance(described, DescribedGroup)
    return described


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_in_a_group_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        first = await wire.send(join_request(), version)
        if version >= MEMBER_ID_REQUIRED_VERSION:
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            first = await wire.send(join_request(first.member_id), version)
        assert (first.error_code, first.generation_id) == (NONE, 1)
        assert first.member_id.startswith("test-")
        assert first.leader == first.member_id
        assert first.protocol_name == "range"
        assert [member.metadata for member in first.members] == [b"meta"]

        request = sync_request(first, [(first.member_id, b"all")])
        synced = await wire.send(request, min(version, 5))
        assert (synced.error_code, synced.assignment) == (NONE, b"all")
        assert await heartbeat(wire, first, min(version, 4)) == NONE
        refused = await wire.send(join_request("other"), version)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID

        leave_version = min(version, 5)
        identity = MemberIdentity(member_id=first.member_id)
        batched = leave_version >= BATCHED_LEAVES
        who = {"members": (identity,)} if batched else {"member_id": first.member_id}
        for code in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            left = await wire.send(LeaveGroupRequest(group_id=GROUP, **who), leave_version)
            codes = [m.error_code for m in left.members] if batched else [left.error_code]
            assert codes == [code]
        assert (await describe(wire)).group_state == "Empty"

    on_node(tmp_path, scenario, PROPERTIES)


def test_two_consumers_share_a_group_and_a_restart_keeps_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            running_node(tmp_path, PROPERTIES) as node,
            await Wire.connect(node, "one") as one,
            await Wire.connect(node, "two") as two,
        ):
            await find_coordinator(node, one)
            leader = await stable(one)
            asked = await two.send(join_request())
            await two.post(join_request(asked.member_id), 9)
            while await heartbeat(one, leader) != ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            leader = await join(one, leader.member_id)
            follower = await two.answer(JoinGroupRequest.API_KEY, 9)
            assert leader.generation_id == follower.generation_id == 2
            assert len(leader.members) == 2
            assert follower.members == ()
            await two.post(sync_request(follower), 5)
            given = [(leader.member_id, b"1"), (follower.member_id, b"2")]
            assert (await one.send(sync_request(leader, given))).assignment == b"1"
            assert (await two.answer(SyncGroupRequest.API_KEY, 5)).assignment == b"2"
            before = await describe(one)
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await find_coordinator(node, wire)
            assert await describe(wire) == before
            assert before.group_state == "Stable"
            assert [member.client_id for member in before.members] == ["one", "two"]
            assert {member.client_host for member in before.members} == {"/127.0.0.1"}
            assert await heartbeat(wire, follower) == NONE
            assert (await wire.send(sync_request(follower))).assignment == b"2"

    asyncio.run(run())


def test_a_member_without_heartbeats_is_let_go(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        joined = await stable(wire, session_ms=50)
        machine = next(m for _, m in node.broker.groups.active() if GROUP in m.context.groups)
        await until(lambda: machine.context.groups[GROUP].is_empty)
        assert await heartbeat(wire, joined) == ErrorCode.UNKNOWN_MEMBER_ID

    on_node(tmp_path, scenario, PROPERTIES)


def test_an_assignment_too_large_for_the_log_is_an_error_for_the_members(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        joined = await join(wire)
        huge = bytes(2_000_000)
        answer = await wire.send(sync_request(joined, [(joined.member_id, huge)]))
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await describe(wire)).group_state == "PreparingRebalance"
        again = await join(wire, joined.member_id)
        assert again.generation_id == 2
        fine = await wire.send(sync_request(again, [(joined.member_id, b"small")]))
        assert fine.assignment == b"small"

    on_node(tmp_path, scenario, PROPERTIES)


def test_many_members_that_leave_at_once_are_each_told(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        joined = await stable(wire)
        names = [f"m{number}" for number in range(1_100)]
        names.insert(600, joined.member_id)
        members = tuple(MemberIdentity(member_id=name) for name in names)
        left = await wire.send(LeaveGroupRequest(group_id=GROUP, members=members))
        assert left.error_code == NONE
        assert [(each.member_id, each.error_code) for each in left.members] == [
            (name, NONE if name == joined.member_id else ErrorCode.UNKNOWN_MEMBER_ID)
            for name in names
        ]
        await find_coordinator(node, wire, "none")
        nowhere = LeaveGroupRequest(group_id=GroupId("none"), members=members)
        codes = {each.error_code for each in (await wire.send(nowhere)).members}
        assert codes == {ErrorCode.UNKNOWN_MEMBER_ID}

    on_node(tmp_path, scenario, PROPERTIES)


def test_a_group_needs_an_id(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        sync = SyncGroupRequest(protocol_type="consumer", protocol_name="range")
        for request in (JoinGroupRequest(), sync, HeartbeatRequest(), LeaveGroupRequest()):
            assert (await wire.send(request)).error_code == ErrorCode.INVALID_GROUP_ID

    on_node(tmp_path, scenario, PROPERTIES)


def test_before_anybody_looked_for_it_there_is_no_coordinator(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        refused = await wire.send(join_request("m"))
        assert (refused.error_code, refused.member_id) == (code, "m")
        leaving = LeaveGroupRequest(group_id=GROUP, members=(MemberIdentity(member_id="m"),))
        assert (await wire.send(leaving)).error_code == code
        assert (await describe(wire)).error_code == code
        deleted = await wire.send(DeleteGroupsRequest(groups_names=(GROUP,)))
        assert [result.error_code for result in deleted.results] == [code]
        assert (await wire.send(ListGroupsRequest())).groups == ()

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        missing = await describe(wire, version)
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
        joined = await stable(wire)
        with_operations = {"include_authorized_operations": True} if version >= 3 else {}
        found = await describe(wire, version, **with_operations)
        assert (found.group_state, found.protocol_data) == ("Stable", "range")
        assert [member.member_id for member in found.members] == [joined.member_id]
        expected = 0b1101_0100_1000 if version >= 3 else -(2**31)
        assert found.authorized_operations == expected

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        await stable(wire)
        (listed,) = (await wire.send(ListGroupsRequest(), version)).groups
        assert (listed.group_id, listed.protocol_type) == (GROUP, "consumer")
        assert listed.group_state == ("Stable" if version >= 4 else "")
        assert listed.group_type == ("classic" if version >= 5 else "")
        if version >= 4:
            request = ListGroupsRequest(states_filter=("Empty",))
            assert (await wire.send(request, version)).groups == ()
        if version >= 5:
            request = ListGroupsRequest(types_filter=("consumer",))
            assert (await wire.send(request, version)).groups == ()

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await find_coordinator(node, wire)
        joined = await stable(wire)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequestTopic(name=TopicName("t"), partitions=(partition,))
        commit = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=1,
            member_id=joined.member_id,
            topics=(topic,),
        )
        committed = await wire.send(commit, 8)
        assert committed.topics[0].partitions[0].error_code == NONE

        async def delete() -> list[int]:
            request = DeleteGroupsRequest(groups_names=(GROUP, GroupId("other"), GROUP))
            return [r.error_code for r in (await wire.send(request, version)).results]

        assert await delete() == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
        identity = MemberIdentity(member_id=joined.member_id)
        await wire.send(LeaveGroupRequest(group_id=GROUP, members=(identity,)))
        assert await delete() == [NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert await delete() == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
        assert not any(m.offsets.store.of_group(GROUP) for _, m in node.broker.groups.active())

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::2%eth0", "/fe80:0:0:0:0:0:0:2"),
    ],
)
def test_addresses_are_written_as_kafka_does(host: str, written: str) -> None:
    assert client_host(host) == written
