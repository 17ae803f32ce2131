"""Being a member of a classic group: what to send next, and what an answer changes.

No I/O and no clock. The driver asks for the next :data:`Step`, carries it out and reports.

- JOINING: with an eager assignor everything is given up first, with a cooperative one what has been
  read is committed; then JoinGroup, which the coordinator answers when all members are there. The
  coordinator may ask for a first join under a member id that it chose.
- LEADING: the leader needs to know the partitions of all topics that anybody wants, to share them
  out. SYNCING: SyncGroup; the answer says what the member gets.
- TAKING: what is not the member's any more is given up, what is new is taken. A cooperative member
  that gave something up joins again at once, so that others can have it.
- STABLE: until a heartbeat, a commit or a change of topics says that there is a rebalance.

A member that the group does not know any more has lost what it had: it is told so (``is_lost``),
must not commit it, and joins as a new one. A fenced static member is out for good.
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
    """Who commits: a member of a generation, or somebody outside the group."""

    group_id: GroupId
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Revoke:
    """Give these partitions up; ``is_lost``: they belong to others already."""

    partitions: tuple[TopicPartition, ...]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Save:
    """Commit what has been read, since that is not possible again before the group is stable."""


@dataclass(frozen=True, slots=True)
class Join:
    """Send this and report by :meth:`GroupMembership.joined`."""

    request: JoinGroupRequest


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """Find out how many partitions these topics have."""

    topics: frozenset[TopicName]


@dataclass(frozen=True, slots=True)
class Sync:
    """Send this and report by :meth:`GroupMembership.synced`."""

    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Take:
    """Begin to read these partitions, beside those that are kept."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do until something happens."""


Step = Revoke | Save | Join | CountPartitions | Sync | Take | Rest


class MemberState(Enum):
    """Where a member is in the life of a generation."""

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
        self._is_assigning = False
        self._is_lost = False
        self._is_saved = False
        self._must_rejoin = False

    @property
    def metadata(self) -> GroupMetadata:
        """Who it is now."""
        return GroupMetadata(
            self.group_id, self.generation_id, self.member_id, self.group_instance_id
        )

    @property
    def is_stable(self) -> bool:
        """Whether it reads what it was given, and nothing else is to be done."""
        return self.state is MemberState.STABLE and not self._must_rejoin

    @property
    def may_commit(self) -> bool:
        """Whether the group takes its commits: while it has a generation, and none is made."""
        is_settled = self.state in (MemberState.STABLE, MemberState.TAKING)
        return is_settled and self.generation_id != NO_GENERATION

    @property
    def watched_topics(self) -> Mapping[TopicName, int] | None:
        """What the partitions were counted to be when they were shared out here, if they were."""
        return self._counts

    def subscribe(self, topics: Iterable[TopicName]) -> None:
        """Want these topics from now on."""
        wanted = tuple(sorted(set(topics)))
        if wanted != self._topics:
            self._topics = wanted
            self.rejoin()

    def rejoin(self) -> None:
        """Join anew as soon as may be."""
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
        """Take note that what has been read was committed, as far as that was possible."""
        self._is_saved = True

    def revoked(self, step: Revoke) -> None:
        """Take note that partitions were given up."""
        self.owned = tuple(each for each in self.owned if each not in step.partitions)
        if step.is_lost:
            self._is_lost = False
            self._must_rejoin = True
            self.state = MemberState.JOINING
        elif self.state is MemberState.TAKING:
            self._must_rejoin = True

    def joining(self) -> None:
        """Take note that the join is on its way: until its answer there is no generation."""
        self.state = MemberState.JOINING
        self._must_rejoin = False

    def joined(self, answer: JoinGroupResponse) -> None:
        """Take the answer; an error that cannot be mended here is raised."""
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
            # When a static leader comes back (KIP-814), all keep what they have.
            self._is_assigning = not answer.skip_assignment
            self.state = MemberState.LEADING

    def counted(self, counts: PartitionCounts) -> None:
        """Share the partitions out, as the leader."""
        assignor = self._assignors.get(self._protocol_name)
        if assignor is None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id} chose the assignor {self._protocol_name!r}, which was "
                "not offered",
            )
        self._counts = dict(counts)
        if self._is_assigning:
            shared_out = assignor.assign(self._members, counts)
            self._assignments = {each: tuple(some) for each, some in shared_out.items()}
        self.state = MemberState.SYNCING

    def synced(self, answer: SyncGroupResponse) -> None:
        """Take the answer; an error that cannot be mended here is raised."""
        if answer.error_code:
            self._refused(answer.error_code, "waiting for what it is to read")
            return
        try:
            self._assigned = read_assignment(bytes(answer.assignment))
        except MalformedMessage as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"what the leader of group {self.group_id} assigned cannot be read: {error}",
            ) from None
        self.state = MemberState.TAKING

    def taken(self) -> None:
        """Take note that the assigned partitions are read."""
        self.owned = self._assigned
        self.state = MemberState.STABLE

    def stopped(self) -> None:
        """Take note that no answer is waited for any more: the generation is the last one known.

        While a group waits for its members to join, it still takes their commits.
        """
        if not self._is_lost:
            self.state = MemberState.STABLE

    def heartbeat(self) -> HeartbeatRequest | None:
        """Return the heartbeat to send, if the group is to hear one now."""
        if not self.may_commit:
            return None
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )

    def answered(self, generation_id: int, code: int, doing: str) -> None:
        """Take what a heartbeat or a commit of a generation was answered with."""
        if code and generation_id == self.generation_id and self.may_commit:
            self._refused(code, doing)

    @property
    def must_leave(self) -> bool:
        """Whether the group is to be told of the end; a static member comes back, as a rule."""
        return self.member_id != NO_MEMBER_ID and self.group_instance_id is None

    def leave_request(self, version: int) -> LeaveGroupRequest:
        """Return what to send at the end, in one of the two forms that there are."""
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
        metadata = write_subscription(Subscription(self._topics, self.owned, self.generation_id))
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self._assignors
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
            f"what another member of the group wants cannot be read: {error}",
        ) from None
