"""Membership in a classic group: what to send next, and what a response changes.

No I/O and no clock. The driver asks for the next :data:`Step`, carries it out and reports.

- JOINING: with an eager assignor everything is revoked first, with a cooperative one what has been
  read is committed; then JoinGroup, which the coordinator answers when all members have joined. The
  coordinator may ask for a first join with a member id that it assigned.
- LEADING: the leader needs the partition counts of all subscribed topics to assign them. SYNCING:
  SyncGroup; the response has the member's assignment.
- TAKING: partitions that are no longer assigned are revoked, new ones are taken. A cooperative
  member that revoked something rejoins at once, so that others can get it.
- STABLE: until a heartbeat, a commit or a change of topics reports a rebalance.

A member that the group no longer knows has lost its partitions: it is told so (``is_lost``), must
not commit them, and joins as a new one. A fenced static member is out for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dohle.client.errors import answered_error
from dohle.client.group.assignors import Assignor, PartitionCounts
from dohle.client.group.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from dohle.client.group.sticky_user_data import write_user_data
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, TopicPartition
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dohle.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

NO_MEMBER_ID = ""
LEAVE_BATCHED = 3


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The identity of a commit: a member of a generation, or someone outside the group."""

    group_id: GroupId
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revoke these partitions; ``is_lost``: they already belong to others."""

    partitions: tuple[TopicPartition, ...]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Save:
    """Commit what has been read: it will not be possible again before the group is stable."""


@dataclass(frozen=True, slots=True)
class Join:
    """Send this and report to :meth:`GroupMembership.joined`."""

    request: JoinGroupRequest


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """Find out the partition counts of these topics."""

    topics: frozenset[TopicName]


@dataclass(frozen=True, slots=True)
class Sync:
    """Send this and report to :meth:`GroupMembership.synced`."""

    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Take:
    """Start reading these partitions, in addition to those kept."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do until something happens."""


Step = Revoke | Save | Join | CountPartitions | Sync | Take | Rest


class MemberState(Enum):
    """The phases of a member's generation."""

    JOINING = auto()
    LEADING = auto()
    SYNCING = auto()
    TAKING = auto()
    STABLE = auto()


class GroupMembership:
    """One member of one group."""

    def __init__(
        self,
        group_id: GroupId,
        assignors: Sequence[Assignor],
        *,
        group_instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = NO_MEMBER_ID
        self.generation_id = NO_GENERATION
        self.owned: tuple[TopicPartition, ...] = ()
        self.state = MemberState.JOINING
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._topics: tuple[TopicName, ...] = ()
        self._protocol_name = ""
        self._members: dict[str, Subscription] = {}
        self._counts: dict[TopicName, int] | None = None
        self._assignments: dict[str, tuple[TopicPartition, ...]] = {}
        self._assigned: tuple[TopicPartition, ...] = ()
        #: The last assignment as sticky members tell it; None before the first.
        self._user_data: bytes | None = None
        self._is_assigning = False
        self._is_lost = False
        self._is_saved = False
        self._must_rejoin = False

    @property
    def metadata(self) -> GroupMetadata:
        """Its current identity."""
        return GroupMetadata(
            self.group_id, self.generation_id, self.member_id, self.group_instance_id
        )

    @property
    def is_stable(self) -> bool:
        """Whether it is reading its assignment, and there is nothing else to do."""
        return self.state is MemberState.STABLE and not self._must_rejoin

    @property
    def may_commit(self) -> bool:
        """Whether the group accepts its commits: it has a generation, and no join is in flight."""
        is_settled = self.state in (MemberState.STABLE, MemberState.TAKING)
        return is_settled and self.generation_id != NO_GENERATION

    @property
    def watched_topics(self) -> Mapping[TopicName, int] | None:
        """The partition counts that it assigned by as the leader, if it did."""
        return self._counts

    def subscribe(self, topics: Iterable[TopicName]) -> None:
        """Subscribe to these topics from now on."""
        wanted = tuple(sorted(set(topics)))
        if wanted != self._topics:
            self._topics = wanted
            self.rejoin()

    def rejoin(self) -> None:
        """Rejoin as soon as possible."""
        self._must_rejoin = True

    def step(self) -> Step:
        """Return what to do next."""
        match self.state:
            case MemberState.JOINING:
                return self._before_joining()
            case MemberState.LEADING:
                topics = {topic for each in self._members.values() for topic in each.topics}
                return CountPartitions(frozenset(topics))
            case MemberState.SYNCING:
                return Sync(self._sync_request())
            case MemberState.TAKING:
                given_up = tuple(each for each in self.owned if each not in self._assigned)
                if given_up:
                    return Revoke(given_up, is_lost=False)
                return Take(tuple(each for each in self._assigned if each not in self.owned))
            case MemberState.STABLE:
                return self._before_joining() if self._must_rejoin else Rest()

    def _before_joining(self) -> Revoke | Save | Join:
        if self.owned and (self._is_lost or not self._is_cooperative):
            return Revoke(self.owned, self._is_lost)
        if self.owned and not self._is_saved:
            return Save()
        return Join(self._join_request())

    def saved(self) -> None:
        """Report that what has been read was committed, as far as possible."""
        self._is_saved = True

    def revoked(self, step: Revoke) -> None:
        """Report that partitions were revoked."""
        self.owned = tuple(each for each in self.owned if each not in step.partitions)
        if step.is_lost:
            self._is_lost = False
            self._must_rejoin = True
            self.state = MemberState.JOINING
        elif self.state is MemberState.TAKING:
            self._must_rejoin = True

    def joining(self) -> None:
        """Report that the join is in flight: until its response there is no generation."""
        self.state = MemberState.JOINING
        self._must_rejoin = False

    def joined(self, answer: JoinGroupResponse) -> None:
        """Process the response; an error that cannot be handled here is raised."""
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if code:
            self._refused(code, "joining")
            return
        self.member_id = answer.member_id
        self.generation_id = answer.generation_id
        self._protocol_name = answer.protocol_name or ""
        self._assignments = {}
        self._counts = None
        self._is_saved = False
        self.state = MemberState.SYNCING
        if answer.leader == answer.member_id:
            self._members = {
                each.member_id: _subscription(each.metadata, each.group_instance_id)
                for each in answer.members
            }
            # When a static leader comes back (KIP-814), all members keep their assignment.
            self._is_assigning = not answer.skip_assignment
            self.state = MemberState.LEADING

    def counted(self, counts: PartitionCounts) -> None:
        """Compute the assignment, as the leader."""
        assignor = self._assignors.get(self._protocol_name)
        if assignor is None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id} chose the assignor {self._protocol_name!r}, which this "
                "member did not offer",
            )
        self._counts = dict(counts)
        if self._is_assigning:
            shared_out = assignor.assign(self._members, counts)
            self._assignments = {each: tuple(some) for each, some in shared_out.items()}
        self.state = MemberState.SYNCING

    def synced(self, answer: SyncGroupResponse) -> None:
        """Process the response; an error that cannot be handled here is raised."""
        if answer.error_code:
            self._refused(answer.error_code, "waiting for its assignment")
            return
        try:
            self._assigned = read_assignment(bytes(answer.assignment))
        except MalformedMessage as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the assignment of the leader of group {self.group_id} cannot be decoded: {error}",
            ) from None
        self.state = MemberState.TAKING

    def taken(self) -> None:
        """Report that the assigned partitions are being read."""
        self.owned = self._assigned
        self._user_data = write_user_data(self.owned, self.generation_id)
        self.state = MemberState.STABLE

    def stopped(self) -> None:
        """Report that no response is awaited any more: the last known generation counts.

        While a group waits for its members to join, it still accepts their commits.
        """
        if not self._is_lost:
            self.state = MemberState.STABLE

    def heartbeat(self) -> HeartbeatRequest | None:
        """Return the heartbeat to send, if one is due to be sent in this state."""
        if not self.may_commit:
            return None
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )

    def answered(self, generation_id: int, code: int, doing: str) -> None:
        """Process the error code of a heartbeat or a commit of a generation."""
        if code and generation_id == self.generation_id and self.may_commit:
            self._refused(code, doing)

    @property
    def must_leave(self) -> bool:
        """Whether the group is to be told of the end; a static member usually comes back."""
        return self.member_id != NO_MEMBER_ID and self.group_instance_id is None

    def leave_request(self, version: int) -> LeaveGroupRequest:
        """Return the request to send at the end, in the form for either version range."""
        if version < LEAVE_BATCHED:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        leaver = MemberIdentity(member_id=self.member_id, reason="the consumer was closed")
        return LeaveGroupRequest(group_id=self.group_id, members=(leaver,))

    def _refused(self, code: int, doing: str) -> None:
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._must_rejoin = True
                if self.state is not MemberState.TAKING:
                    self.state = MemberState.STABLE
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = NO_MEMBER_ID
                self._lose_generation()
            case ErrorCode.ILLEGAL_GENERATION:
                self._lose_generation()
            case _:
                raise answered_error(code, f"group {self.group_id}, {doing}")

    def _lose_generation(self) -> None:
        self.generation_id = NO_GENERATION
        self._is_lost = bool(self.owned)
        self._must_rejoin = True
        self.state = MemberState.JOINING

    def _join_request(self) -> JoinGroupRequest:
        subscription = Subscription(self._topics, self.owned, self.generation_id)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=write_subscription(
                        subscription, self._user_data if assignor.has_user_data else None
                    ),
                )
                for name, assignor in self._assignors.items()
            ),
        )

    def _sync_request(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each, assignment=write_assignment(some))
                for each, some in self._assignments.items()
            ),
        )


def _subscription(metadata: bytes, instance_id: str | None) -> Subscription:
    try:
        return read_subscription(bytes(metadata), instance_id)
    except MalformedMessage as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the subscription of another member of the group cannot be decoded: {error}",
        ) from None
