"""Membership in a group of the consumer protocol (KIP-848), whose coordinator assigns.

No I/O and no clock. The driver sends :meth:`ConsumerMembership.heartbeat` whenever one is due and
reports its answer; beside that it asks for the next step, carries it out and reports.

- JOINING: the next heartbeat joins, with epoch 0 and everything that the group must know.
- JOINED: an answer may bring a new epoch and a new assignment, in topic ids. The driver finds their
  names. What is no longer assigned is revoked first, then what is new is taken; the next heartbeat,
  sent at once, says what is owned. Only then does the coordinator give to others what was revoked.
- FENCED: the group no longer knows this member or its epoch (UNKNOWN_MEMBER_ID,
  FENCED_MEMBER_EPOCH). Its partitions are lost: it is told so (``is_lost``), must not commit them,
  and joins again under the same member id. Until then it sends nothing.

A heartbeat has only what has changed since the last one that was answered. Behind one without an
answer, or with an error, everything is sent again, for the coordinator may have missed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from dohle.client.errors import answered_error
from dohle.client.group.membership import GroupMetadata, Rest, Revoke, Take
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName, TopicPartition, Uuid
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
#: A static member that comes back: the group keeps its partitions for it meanwhile.
LEAVE_STATIC_EPOCH = -2
#: The first version that has a regular expression.
REGEX_VERSION = 1

#: A partition by the id of its topic: a topic that was created again has another one.
_Key = tuple[Uuid, int]

_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


@dataclass(frozen=True, slots=True)
class NameTopics:
    """Find the names of these topic ids."""

    topic_ids: frozenset[Uuid]


ConsumerStep = NameTopics | Revoke | Take | Rest


class ConsumerState(Enum):
    """What the group thinks of this member."""

    JOINING = auto()
    JOINED = auto()
    FENCED = auto()


@dataclass(frozen=True, slots=True)
class _Subscription:
    topics: tuple[TopicName, ...] = ()
    regex: str = ""


class ConsumerMembership:
    """One member of one group."""

    def __init__(
        self,
        group_id: GroupId,
        member_id: str,
        *,
        group_instance_id: str | None,
        rack: str | None,
        assignor: str | None,
        rebalance_timeout_ms: int,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.member_epoch = JOIN_EPOCH
        self.state = ConsumerState.JOINING
        #: What the coordinator has asked for; None before its first answer.
        self.heartbeat_interval_ms: int | None = None
        #: Whether to send a heartbeat without waiting for the interval.
        self.is_heartbeat_due = True
        #: Whether the group is to be told of the end.
        self.must_leave = False
        self._rack = rack
        self._assignor = assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._subscription = _Subscription()
        self._names: dict[Uuid, TopicName] = {}
        self._unnamed: frozenset[Uuid] = frozenset()
        #: What the coordinator has assigned, what is read, and what is about to be.
        self._assigned: frozenset[_Key] = frozenset()
        self._owned: dict[_Key, TopicPartition] = {}
        self._taking: dict[_Key, TopicPartition] = {}
        #: What the coordinator knows: None, if that is not certain.
        self._sent: _Subscription | None = None
        self._sent_owned: frozenset[_Key] | None = None
        self._has_sent_regex = False
        self._is_confirmed = False

    @property
    def metadata(self) -> GroupMetadata:
        """Its current identity: the member epoch is where classic groups have a generation."""
        return GroupMetadata(
            self.group_id, self.member_epoch, self.member_id, self.group_instance_id
        )

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that are being read."""
        return tuple(sorted(self._owned.values()))

    @property
    def is_stable(self) -> bool:
        """Whether it is reading its assignment, and there is nothing else to do.

        An empty assignment counts once it has lasted for a heartbeat: others may have to give
        partitions back first, and a regular expression is resolved behind the first answer.
        """
        if self.state is not ConsumerState.JOINED or self._assigned != self._owned.keys():
            return False
        return bool(self._owned) or self._is_confirmed

    @property
    def may_commit(self) -> bool:
        """Whether the group accepts its commits."""
        return self.state is ConsumerState.JOINED

    def subscribe(self, topics: Iterable[TopicName] = (), *, regex: str = "") -> None:
        """Subscribe to these topics, or to those that match, from now on."""
        wanted = _Subscription(tuple(sorted(set(topics))), regex)
        if wanted != self._subscription:
            self._subscription = wanted
            self.is_heartbeat_due = True

    def step(self) -> ConsumerStep:
        """Return what to do next, beside sending heartbeats."""
        if self.state is ConsumerState.FENCED:
            return Revoke(self.owned, is_lost=True)
        given_up = [of for key, of in self._owned.items() if key not in self._assigned]
        if given_up:
            return Revoke(tuple(sorted(given_up)), is_lost=False)
        unnamed = frozenset(topic for topic, _ in self._assigned if topic not in self._names)
        if unnamed - self._unnamed:
            return NameTopics(unnamed)
        new = self._new()
        return Take(tuple(sorted(new.values()))) if new else Rest()

    def named(self, step: NameTopics, names: Mapping[Uuid, TopicName]) -> None:
        """Report the names that were found. Those of others are asked for again some time."""
        self._names.update({each: names[each] for each in step.topic_ids if each in names})
        self._unnamed = step.topic_ids - self._names.keys()

    def revoked(self, step: Revoke) -> None:
        """Report that partitions were revoked."""
        self._owned = {key: of for key, of in self._owned.items() if of not in step.partitions}
        if step.is_lost:
            self.state = ConsumerState.JOINING
        self.is_heartbeat_due = True

    def taking(self) -> None:
        """Report that the partitions of the last step are being taken."""
        self._taking = self._new()

    def taken(self) -> None:
        """Report that they are being read. What is not assigned any more is revoked next."""
        self._owned |= self._taking
        self._taking = {}
        if self.state is ConsumerState.JOINING:
            # A commit has found out meanwhile that the group has lost this member.
            self.state = ConsumerState.FENCED
        self.is_heartbeat_due = True

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest | None:
        """Return the heartbeat to send, if one may be sent in this state."""
        if self.state is ConsumerState.FENCED:
            return None
        is_all = self.state is ConsumerState.JOINING or self._sent is None
        wanted, sent = self._subscription, self._sent or _Subscription()
        owned = frozenset(self._owned)
        is_owned_told = not is_all and owned == self._sent_owned
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self.group_instance_id,
            rack_id=self._rack if is_all else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if is_all else -1,
            server_assignor=self._assignor if is_all else None,
            subscribed_topic_names=wanted.topics
            if is_all or wanted.topics != sent.topics
            else None,
            subscribed_topic_regex=self._regex_to_send(wanted.regex, is_all=is_all),
            topic_partitions=None if is_owned_told else _by_topic(owned),
        )

    def sending(self) -> None:
        """Report that a heartbeat is under way: what changes from here on is due again."""
        self.is_heartbeat_due = False
        self.must_leave = True
        self._has_sent_regex = self._has_sent_regex or bool(self._subscription.regex)

    def unanswered(self) -> None:
        """Report that a heartbeat has no answer: what the coordinator knows is not certain."""
        self._sent = self._sent_owned = None

    def heartbeat_answered(
        self, request: ConsumerGroupHeartbeatRequest, answer: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Process the answer; an error that cannot be handled here is raised."""
        if request.member_epoch != self.member_epoch or (request.member_epoch == JOIN_EPOCH) != (
            self.state is ConsumerState.JOINING
        ):
            return  # a commit has found out meanwhile that the group has lost this member
        code = answer.error_code
        if code in _FENCED:
            self._lose()
            # A newcomer that is refused waits before it tries again.
            self.is_heartbeat_due = request.member_epoch != JOIN_EPOCH
            return
        if code:
            self.unanswered()
            about = f"group {self.group_id}, sending heartbeats"
            raise answered_error(code, about, answer.error_message)
        self.member_epoch = answer.member_epoch
        self.heartbeat_interval_ms = answer.heartbeat_interval_ms
        self._note_sent(request)
        self._is_confirmed = self.state is ConsumerState.JOINED and answer.assignment is None
        self.state = ConsumerState.JOINED
        # What could not be named may be known by now.
        self._unnamed = frozenset()
        if answer.assignment is not None:
            self._assigned = frozenset(
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
            kept = {topic for topic, _ in self._assigned}
            self._names = {key: name for key, name in self._names.items() if key in kept}

    def answered(self, member_epoch: int, code: int, doing: str) -> None:
        """Process the error code of what was done with an epoch: a commit."""
        if member_epoch != self.member_epoch or self.state is not ConsumerState.JOINED:
            return
        if code in _FENCED:
            self._lose()
        elif code == ErrorCode.STALE_MEMBER_EPOCH:
            # The answer with the next epoch was lost, or is on its way.
            self.is_heartbeat_due = True

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the request to send at the end."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.group_instance_id,
            member_epoch=LEAVE_EPOCH if self.group_instance_id is None else LEAVE_STATIC_EPOCH,
        )

    def _lose(self) -> None:
        self.member_epoch = JOIN_EPOCH
        self._assigned = frozenset()
        self._unnamed = frozenset()
        self._is_confirmed = False
        self.must_leave = False
        self.unanswered()
        self.state = ConsumerState.FENCED if self._owned else ConsumerState.JOINING
        self.is_heartbeat_due = True

    def _note_sent(self, request: ConsumerGroupHeartbeatRequest) -> None:
        before = self._sent or _Subscription()
        topics, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        self._sent = _Subscription(
            before.topics if topics is None else topics, before.regex if regex is None else regex
        )
        if request.topic_partitions is not None:
            self._sent_owned = frozenset(
                (topic.topic_id, number)
                for topic in request.topic_partitions
                for number in topic.partitions
            )

    def _regex_to_send(self, regex: str, *, is_all: bool) -> str | None:
        """Return it if the coordinator may not know it; "" takes back an earlier one."""
        if is_all:
            return regex if regex or self._has_sent_regex else None
        assert self._sent is not None
        return regex if regex != self._sent.regex else None

    def _new(self) -> dict[_Key, TopicPartition]:
        """Return what is assigned, has a name and is not read yet."""
        return {
            key: TopicPartition(self._names[key[0]], key[1])
            for key in self._assigned
            if key[0] in self._names and key not in self._owned
        }


def _by_topic(partitions: Iterable[_Key]) -> tuple[TopicPartitions, ...]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(some))
        for topic_id, some in found.items()
    )
