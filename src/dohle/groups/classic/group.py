"""A classic group: its members, the protocol they agree on, and the state of its rebalance.

    Empty --join--> PreparingRebalance --all rejoined, or timeout--> CompletingRebalance
    CompletingRebalance --the leader's assignment is written--> Stable
    CompletingRebalance, Stable --a member joins, leaves or changes--> PreparingRebalance
    PreparingRebalance --no member is left--> Empty        any --deleted--> Dead

What the record holds (the generation with its members and assignments) survives a restart; pending
requests do not. A group that only has committed offsets (a simple group) has no protocol type, is
in the state Empty, and has no record.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from dohle.coordination.effects import Reply, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.protocols import Offer, SharedProtocols
from dohle.groups.group import GroupType
from dohle.protocol.consumer_framing import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from dohle.protocol.messages.records.classic_group import GroupMetadataKey
from dohle.protocol.messages.sync_group import SyncGroupResponse
from dohle.protocol.record_framing import CoordinatorRecord

_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


class ClassicState(StrEnum):
    """As DescribeGroups and ListGroups show it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREDECESSORS = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE},
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.EMPTY,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.STABLE,
    },
    ClassicState.COMPLETING_REBALANCE: {ClassicState.PREPARING_REBALANCE},
    ClassicState.STABLE: {ClassicState.COMPLETING_REBALANCE},
    ClassicState.DEAD: set(ClassicState),
}


class ClassicGroup:
    """See the module. Nothing here sets timers: that is up to :class:`Rebalances`."""

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        #: The wall-clock time at which it entered its state; None if its record does not say.
        self.state_since_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        #: In the order in which they joined.
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        #: Members that were given an id and are expected to join with it (KIP-394).
        self.pending_joins: set[str] = set()
        #: Members that were told the generation and have not sent SyncGroup since.
        self.pending_syncs: set[str] = set()
        #: The topics that all members together subscribe to; None if not known.
        self.subscribed_topics: frozenset[str] | None = None
        #: For the first rebalance: whether a member joined since it was last delayed, how long it
        #: was delayed, and how long it still may be.
        self.has_new_member = False
        self.initial_delay_ms: int | None = None
        self.initial_delay_left_ms = 0
        #: The reason for the last rebalance.
        self.rebalance_reason = ""
        self._shared_protocols = SharedProtocols()
        self._awaiting_join_count = 0

    # The protocol of ``Group``.

    @property
    def state_name(self) -> str:
        """Its state as ListGroups shows it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Tell whether it is in the state Empty."""
        return self.state is ClassicState.EMPTY

    @property
    def member_count(self) -> int:
        """How many members it has."""
        return len(self.members)

    @property
    def empty_since_ms(self) -> int | None:
        """When the last member left."""
        return self.state_since_ms if self.is_empty and self.uses_group_management else None

    @property
    def uses_group_management(self) -> bool:
        """Tell whether it has, or had, members."""
        return bool(self.protocol_type)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Tell whether its members are consumers, whose metadata can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member subscribes to the topic; True if that is not known."""
        if self.subscribed_topics is None:
            return not self.is_empty
        return topic in self.subscribed_topics

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> None:
        """Refuse a commit from someone who is not, or no longer, a member."""
        generation = generation_id_or_member_epoch
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            self.validate_generation(generation)
        elif not is_transactional:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id} has members: only they may commit its offsets",
            )
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id} awaits its assignment"
            )

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow every fetch: anyone may see a classic group's offsets."""

    def validate_offset_delete(self) -> None:
        """Refuse to delete offsets that members may be using without our knowledge."""
        if not self.is_empty and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members")

    def validate_delete_group(self) -> None:
        """Refuse to delete a group that has members."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members")

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that delete the group."""
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id))]

    # Members.

    @property
    def awaiting_join_count(self) -> int:
        """How many members have rejoined."""
        return self._awaiting_join_count

    @property
    def has_all_members_joined(self) -> bool:
        """Tell whether all members have rejoined."""
        return self._awaiting_join_count == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: the longest timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Refuse anyone who is not a member, or whose instance id another process has taken."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"another process has taken the place of {group_instance_id}",
                )
            if current is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"{group_instance_id} is not a member of group {self.group_id}",
                )
        if member_id not in self.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member_id} is not a member of group {self.group_id}",
            )

    def validate_generation(self, generation: int) -> None:
        """Refuse a request of another generation."""
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self.group_id} is at generation {self.generation}, not {generation}",
            )

    def supports_protocols(self, protocol_type: str, offer: Offer) -> bool:
        """Tell whether a member that offers these shares a protocol with all other members."""
        if self.is_empty:
            return bool(protocol_type) and bool(offer.names)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(offer.names)
        return not offer.names.isdisjoint(self._shared_protocols.names)

    def add(self, member: ClassicMember) -> None:
        """Add a member, whose tickets are already set."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._shared_protocols.add(member.offer.names)
        self._awaiting_join_count += member.is_awaiting_join
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> list[Reply]:
        """Remove a member or a pending one, and answer its waiting requests."""
        replies: list[Reply] = []
        member = self.members.pop(member_id, None)
        if member is not None:
            replies += self.answer_join(member, JoinGroupResponse(error_code=_UNKNOWN))
            replies += self.answer_sync(member, SyncGroupResponse(error_code=_UNKNOWN))
            self._shared_protocols.remove(member.offer.names)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return replies

    def update(
        self,
        member: ClassicMember,
        offer: Offer,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Apply what a member sends when it joins again."""
        if offer.names != member.offer.names:
            self._shared_protocols.remove(member.offer.names)
            self._shared_protocols.add(offer.names)
        member.offer = offer
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static_member(self, old_id: str, new_id: str) -> list[Reply]:
        """Give a static member's place to a process with a new id; the old one is fenced."""
        member = self.members.pop(old_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        replies = self.answer_join(member, JoinGroupResponse(member_id=old_id, error_code=fenced))
        replies += self.answer_sync(member, SyncGroupResponse(error_code=fenced))
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return replies

    # Waiting requests.

    def await_join(self, member: ClassicMember, ticket: Ticket) -> list[Reply]:
        """Let a member wait for the rebalance; an earlier waiting request of it is answered."""
        replies = self.answer_join(
            member, JoinGroupResponse(member_id=member.member_id, error_code=_REBALANCING)
        )
        member.join_ticket = ticket
        self._awaiting_join_count += 1
        return replies

    def await_sync(self, member: ClassicMember, ticket: Ticket) -> list[Reply]:
        """Let a member wait for its assignment; an earlier waiting request of it is answered."""
        replies = self.answer_sync(member, SyncGroupResponse(error_code=_REBALANCING))
        member.sync_ticket = ticket
        return replies

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> list[Reply]:
        """Answer a member's waiting JoinGroup, if there is one."""
        ticket, member.join_ticket = member.join_ticket, None
        if ticket is None:
            return []
        self._awaiting_join_count -= 1
        return [Reply(ticket, response)]

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> list[Reply]:
        """Answer a member's waiting SyncGroup, if there is one."""
        ticket, member.sync_ticket = member.sync_ticket, None
        return [] if ticket is None else [Reply(ticket, response)]

    def answer_all(self, code: ErrorCode) -> list[Reply]:
        """Answer all waiting requests with an error."""
        replies: list[Reply] = []
        for member in self.members.values():
            replies += self.answer_join(
                member, JoinGroupResponse(member_id=member.member_id, error_code=code)
            )
            replies += self.answer_sync(member, SyncGroupResponse(error_code=code))
        return replies

    # The rebalance.

    @property
    def can_rebalance(self) -> bool:
        """Tell whether a rebalance may start."""
        return self.state in _PREDECESSORS[ClassicState.PREPARING_REBALANCE]

    def move_to(self, state: ClassicState, now_ms: int | None) -> None:
        """Change the state."""
        if self.state not in _PREDECESSORS[state]:
            raise ValueError(f"group {self.group_id} cannot go from {self.state} to {state}")
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def elect_joined_leader(self) -> bool:
        """Make a rejoined member the leader, preferably the current one; False if there is none."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def select_protocol(self) -> str:
        """Return the protocol most members prefer, among those that all of them support."""
        candidates = self._shared_protocols.names
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation with the current members."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.compute_subscribed_topics()
        self.pending_syncs.clear()
        self.move_to(
            ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms
        )

    def stabilize(self) -> None:
        """Become Stable with the added members, who have their assignments."""
        self.protocol_name = self.select_protocol()
        self.compute_subscribed_topics()
        self.state = ClassicState.STABLE

    def compute_subscribed_topics(self) -> None:
        """Compute the topics of all members, if they are consumers with readable subscriptions."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol:
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(subscribed_topics(member.metadata(self.protocol_name)))
        except (MalformedMessage, ValueError):
            return
        self.subscribed_topics = frozenset(topics)

    def member_list(self) -> tuple[JoinGroupResponseMember, ...]:
        """Return what the leader needs to know about the members."""
        return tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        )

    def join_response(
        self, member_id: str, *, leader_id: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """Return the JoinGroup response for a member; only the leader's lists the other members."""
        leader_id = leader_id or self.leader_id or ""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader_id,
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self.member_list() if member_id == leader_id else (),
        )
