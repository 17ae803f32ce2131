"""Attacks by members of groups, and by those who commit very many offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, islice
from typing import Any

import pytest

from dohle.coordination.partitioning import partition_for
from dohle.core.ids import GroupId, TopicName, TransactionalId
from dohle.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from dohle.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from dohle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from dohle.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from dohle.protocol.schema import Request, Response
from tests.interop.wire import Wire, frame_of
from tests.isolation.harness import assert_harmless

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(600)]

MANY = 100_000
#: About as many as a batch of offsets holds.
COMMITTED = 18_000
GROUP = GroupId("g")
WIDE = TopicName("wide")
#: So many partitions ``__consumer_offsets`` has by default.
OFFSETS_PARTITIONS = 50
#: A classic member needs no id before its first join.
JOIN_VERSION = 3


class Attacker:
    """Sends requests, and counts their bytes."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._wire.socket.settimeout(120)
        self.sent_bytes = 0

    def ask(self, request: Request, response: type[Response], version: int) -> Any:
        self.send(request, version)
        return self.receive(response, version)

    def send(self, request: Request, version: int) -> None:
        frame = frame_of(request, version)
        self.sent_bytes += len(frame)
        self._wire.socket.sendall(frame)

    def receive(self, response: type[Response], version: int) -> Any:
        return self._wire.receive(response, version)


def find_coordinator(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        request = FindCoordinatorRequest(coordinator_keys=(GROUP,))
        wire.ask(request, FindCoordinatorResponse, 4)


def test_offsets_of_very_many_partitions() -> None:
    """They are committed, fetched whole by a short request, deleted, and go with their groups."""
    partition_count = 2_000
    repeated = COMMITTED // partition_count

    def prepare(bootstrap: str) -> None:
        find_coordinator(bootstrap)
        with Wire(bootstrap) as wire:
            wire.create_topic(WIDE, partition_count)

    def commits() -> Iterator[OffsetCommitRequest]:
        for number in range(10):
            yield OffsetCommitRequest(
                group_id=GroupId(f"g{number}"),
                topics=(
                    OffsetCommitRequestTopic(
                        name=WIDE,
                        partitions=tuple(
                            OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                            for index in range(partition_count)
                        )
                        * repeated,
                    ),
                ),
            )

    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            attacker = Attacker(wire)
            groups = []
            for commit in commits():
                groups.append(commit.group_id)
                answer = attacker.ask(commit, OffsetCommitResponse, 8)
                assert {each.error_code for each in answer.topics[0].partitions} == {0}
            everything = OffsetFetchRequest(
                groups=tuple(OffsetFetchRequestGroup(group_id=each, topics=None) for each in groups)
            )
            fetched = attacker.ask(everything, OffsetFetchResponse, 8)
            counts = {len(group.topics[0].partitions) for group in fetched.groups}
            assert counts == {partition_count}
            deletion = OffsetDeleteRequest(
                group_id=groups[0],
                topics=(
                    OffsetDeleteRequestTopic(
                        name=WIDE,
                        partitions=tuple(
                            OffsetDeleteRequestPartition(partition_index=index)
                            for index in range(partition_count)
                        ),
                    ),
                ),
            )
            assert attacker.ask(deletion, OffsetDeleteResponse, 0).error_code == 0
            goodbye = DeleteGroupsRequest(groups_names=tuple(groups))
            attacker.ask(goodbye, DeleteGroupsResponse, 1)
            return attacker.sent_bytes

    assert_harmless(attack, prepare=prepare)


def short_name(number: int) -> str:
    """Return one of 100,000 names, of which a record can hold all."""
    return f"{number:05x}"


def test_a_member_that_subscribes_to_very_many_topics() -> None:
    """It joins, subscribes to others, and leaves: each time all of them count anew."""
    names = tuple(TopicName(short_name(number)) for number in range(MANY))

    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            attacker = Attacker(wire)
            epoch = 0
            for number in range(3):
                beat = ConsumerGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id="m",
                    member_epoch=epoch,
                    rebalance_timeout_ms=10_000,
                    topic_partitions=() if number == 0 else None,
                    subscribed_topic_names=names[number:],
                )
                answer = attacker.ask(beat, ConsumerGroupHeartbeatResponse, 1)
                assert answer.error_code == 0
                assert answer.member_epoch > epoch
                epoch = answer.member_epoch
            leave = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=-1)
            assert attacker.ask(leave, ConsumerGroupHeartbeatResponse, 1).error_code == 0
            return attacker.sent_bytes

    assert_harmless(attack, prepare=find_coordinator)


def test_a_member_that_offers_very_many_protocols() -> None:
    protocols = tuple(
        JoinGroupRequestProtocol(name=short_name(number), metadata=b"") for number in range(MANY)
    )

    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            attacker = Attacker(wire)
            member_id = ""
            for number in range(3):
                join = JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocols=protocols[number:],
                )
                answer = attacker.ask(join, JoinGroupResponse, JOIN_VERSION)
                assert answer.error_code == 0
                member_id = answer.member_id
            return attacker.sent_bytes

    assert_harmless(attack, prepare=find_coordinator)


@pytest.mark.parametrize("size", [800, 3_000])
def test_a_group_of_very_many_members(size: int) -> None:
    """They join, are assigned, join again for another rebalance, are described, and go."""

    def join(member: Attacker, member_id: str) -> None:
        member.send(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(100)),),
            ),
            JOIN_VERSION,
        )

    def joined(members: list[Attacker]) -> list[Any]:
        answers = [member.receive(JoinGroupResponse, JOIN_VERSION) for member in members]
        assert {(each.error_code, each.generation_id) for each in answers} == {
            (0, answers[0].generation_id)
        }
        assert max(len(each.members) for each in answers) == size
        return answers

    def sync(members: list[Attacker], answers: list[Any]) -> None:
        assigned = tuple(
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=bytes(100))
            for each in answers
        )
        for member, answer in zip(members, answers, strict=True):
            is_leader = answer.leader == answer.member_id
            member.send(
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=answer.generation_id,
                    member_id=answer.member_id,
                    assignments=assigned if is_leader else (),
                ),
                3,
            )
        for member in members:
            answer = member.receive(SyncGroupResponse, 3)
            assert (answer.error_code, answer.assignment) == (0, bytes(100))

    def attack(bootstrap: str) -> int:
        with ExitStack() as stack:
            members = [Attacker(stack.enter_context(Wire(bootstrap))) for _ in range(size)]
            for member in members:
                join(member, "")
            answers = joined(members)
            sync(members, answers)
            # The leader's request makes all others join again.
            order = sorted(range(size), key=lambda at: answers[at].leader != answers[at].member_id)
            for at in order:
                join(members[at], answers[at].member_id)
            sync(members, joined(members))
            asked = DescribeGroupsRequest(groups=(GROUP,))
            for _ in range(5):
                (group,) = members[0].ask(asked, DescribeGroupsResponse, 5).groups
                assert len(group.members) == size
            return sum(member.sent_bytes for member in members)

    delay = {"group.initial.rebalance.delay.ms": "3000"}
    assert_harmless(attack, prepare=find_coordinator, config=delay)


def test_a_transaction_with_very_many_pending_offsets() -> None:
    """They take effect all at once, with the marker in the partition of their groups."""
    partition_count, group_count = 2_000, 60
    shard = partition_for(GROUP, OFFSETS_PARTITIONS)
    names = (f"g{number}" for number in count())
    alike = (name for name in names if partition_for(name, OFFSETS_PARTITIONS) == shard)
    groups = [GroupId(name) for name in islice(alike, group_count)]
    transaction = TransactionalId("tx")

    def prepare(bootstrap: str) -> None:
        find_coordinator(bootstrap)
        with Wire(bootstrap) as wire:
            wire.create_topic(WIDE, partition_count)
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=(transaction,))
            wire.ask(request, FindCoordinatorResponse, 4)

    offsets = TxnOffsetCommitRequestTopic(
        name=WIDE,
        partitions=tuple(
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=""
            )
            for index in range(partition_count)
        ),
    )

    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            attacker = Attacker(wire)
            begin = InitProducerIdRequest(
                transactional_id=transaction, transaction_timeout_ms=60_000
            )
            for _ in range(1_000):
                begun = attacker.ask(begin, InitProducerIdResponse, 4)
                if begun.error_code == 0:
                    break
            producer = {
                "transactional_id": transaction,
                "producer_id": begun.producer_id,
                "producer_epoch": begun.producer_epoch,
            }
            for group in groups:
                adding = AddOffsetsToTxnRequest(**producer, group_id=group)
                assert attacker.ask(adding, AddOffsetsToTxnResponse, 3).error_code == 0
                commit = TxnOffsetCommitRequest(**producer, group_id=group, topics=(offsets,))
                answer = attacker.ask(commit, TxnOffsetCommitResponse, 3)
                assert {each.error_code for each in answer.topics[0].partitions} == {0}
            end = EndTxnRequest(**producer, committed=True)
            assert attacker.ask(end, EndTxnResponse, 3).error_code == 0
            fetch = OffsetFetchRequest(
                require_stable=True,
                groups=(OffsetFetchRequestGroup(group_id=groups[-1], topics=None),),
            )
            for _ in range(1_000):
                (found,) = attacker.ask(fetch, OffsetFetchResponse, 8).groups
                if found.topics and not any(each.error_code for each in found.topics[0].partitions):
                    break
            assert len(found.topics[0].partitions) == partition_count
            return attacker.sent_bytes

    assert_harmless(attack, prepare=prepare)
