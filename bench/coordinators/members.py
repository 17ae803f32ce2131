"""Members of groups of both protocols, which send what a client sends and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from bench.coordinators.client import Conversation, answer_of, converse, expect
from bench.raw_client import frame
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.core.uuid import uuid_from_text, uuid_to_text
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dohle.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from dohle.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
CONSUMER_VERSION = 1
#: Nobody's session is to end while others are measured.
SESSION_MS = 600_000
_ASSIGNMENT = bytes(40)
_ROUNDS_MAX = 50
_LEAVES = -1
_NEXT = 1 << 32


class ClassicGroup:
    """A group as its members see it."""

    def __init__(self, group_id: str, topic: TopicName, size: int) -> None:
        self.group_id = GroupId(group_id)
        #: How many members the generation has that all wait for.
        self.size = size
        self.sizes: dict[int, int] = {}
        subscription = ConsumerProtocolSubscription(topics=(topic,), user_data=None)
        metadata = b"\0\0" + subscription.encode(0)
        self.protocols = (JoinGroupRequestProtocol(name="range", metadata=metadata),)


class ClassicMember:
    """A member whose heartbeats follow each other at once while a rebalance is awaited."""

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1

    def join(self) -> Conversation:
        """Join, and join again, until there is a generation of the size that is wanted."""
        group = self.group
        while True:
            join = answer_of(JoinGroupResponse, JOIN_VERSION, (yield self._join_frame()))
            if join.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = join.member_id
                continue
            expect("JoinGroup", (join.error_code,))
            self.member_id, self.generation = join.member_id, join.generation_id
            members: Sequence[str] = ()
            if join.leader == join.member_id:
                members = [member.member_id for member in join.members]
                group.sizes[join.generation_id] = len(members)
            sync = answer_of(SyncGroupResponse, SYNC_VERSION, (yield self._sync_frame(members)))
            if sync.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            expect("SyncGroup", (sync.error_code,))
            if group.sizes[self.generation] == group.size:
                return
            yield from self._notice_rebalance()

    def stay(self) -> Conversation:
        """Notice that others come or go, and rejoin."""
        yield from self._notice_rebalance()
        yield from self.join()

    def leave(self) -> Conversation:
        """Leave."""
        member = MemberIdentity(member_id=self.member_id)
        request = LeaveGroupRequest(group_id=self.group.group_id, members=(member,))
        answer = yield frame(request, LEAVE_VERSION)
        response = answer_of(LeaveGroupResponse, LEAVE_VERSION, answer)
        expect("LeaveGroup", (response.error_code, *(each.error_code for each in response.members)))

    def _notice_rebalance(self) -> Conversation:
        code = ErrorCode.NONE
        while code != ErrorCode.REBALANCE_IN_PROGRESS:
            expect("Heartbeat", (code,))
            answer = yield self.heartbeat_frame()
            code = ErrorCode(answer_of(HeartbeatResponse, HEARTBEAT_VERSION, answer).error_code)

    def heartbeat_frame(self) -> bytes:
        """Return its heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
        )
        return frame(request, HEARTBEAT_VERSION)

    def _join_frame(self) -> bytes:
        request = JoinGroupRequest(
            group_id=self.group.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=self.group.protocols,
        )
        return frame(request, JOIN_VERSION)

    def _sync_frame(self, members: Sequence[str]) -> bytes:
        request = SyncGroupRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=_ASSIGNMENT)
                for member_id in members
            ),
        )
        return frame(request, SYNC_VERSION)


def check_heartbeat(answer: bytes) -> None:
    """Raise if a heartbeat was refused."""
    expect("Heartbeat", (answer_of(HeartbeatResponse, HEARTBEAT_VERSION, answer).error_code,))


class ConsumerMember:
    """A member of a group of the consumer protocol (KIP-848)."""

    def __init__(self, group_id: str, topic: TopicName, number: int) -> None:
        self._group_id = GroupId(group_id)
        self._topic = topic
        self._member_id = uuid_to_text(Uuid(number.to_bytes(16, "big")))
        self._is_told = False
        self.epoch = 0
        self.assigned: tuple[TopicPartitions, ...] = ()

    def anew(self) -> ConsumerMember:
        """Return the member that joins in its place after it has left."""
        number = int.from_bytes(uuid_from_text(self._member_id), "big") + _NEXT
        return ConsumerMember(self._group_id, self._topic, number)

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.assigned)

    def beat(self) -> Conversation:
        """Send one heartbeat: to join, to report a change of what it owns, or to stay a member."""
        response = _heard((yield self.frame()))
        self._is_told = True
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = response.assignment.topic_partitions
            self._is_told = False

    def leave(self) -> Conversation:
        """Leave."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=_LEAVES
        )
        _heard((yield frame(request, CONSUMER_VERSION)))

    def frame(self) -> bytes:
        """Return its next heartbeat."""
        is_new = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=SESSION_MS if is_new else -1,
            subscribed_topic_names=(self._topic,) if is_new else None,
            topic_partitions=None if self._is_told else self.assigned,
        )
        return frame(request, CONSUMER_VERSION)


def _heard(answer: bytes) -> ConsumerGroupHeartbeatResponse:
    response = answer_of(ConsumerGroupHeartbeatResponse, CONSUMER_VERSION, answer)
    expect("ConsumerGroupHeartbeat", (response.error_code,))
    return response


def check_consumer_heartbeat(answer: bytes) -> None:
    """Raise if a heartbeat was refused."""
    _heard(answer)


def converge(
    members: Sequence[tuple[socket.socket, ConsumerMember]],
    partitions: int,
    *,
    leaves: tuple[socket.socket, ConsumerMember] | None = None,
) -> int:
    """Send heartbeats of all until nobody has to move; return how many that were.

    That is so when all are in one epoch and every partition is somebody's.
    """
    count = 0 if leaves is None else converse([(leaves[0], leaves[1].leave())])
    for _ in range(_ROUNDS_MAX):
        count += converse([(sock, member.beat()) for sock, member in members])
        epochs = {member.epoch for _, member in members}
        if len(epochs) == 1 and sum(each.partition_count for _, each in members) == partitions:
            return count
    raise RuntimeError(f"a group has not converged after {_ROUNDS_MAX} rounds of heartbeats")
