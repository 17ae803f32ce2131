"""Committed offsets: committing, fetching, deleting and expiring them.

- The group decides who may commit. For an unknown group, a commit without a generation creates a
  simple group: one without members, which exists as long as it has offsets. With a generation it is
  refused: 69 from OffsetCommit v9 on, else 22.
- A commit in a transaction is pending until the transaction's marker. Until then, a fetch of stable
  offsets returns 88 for the partition.
- The offset itself is not checked: it need not be in the log. Metadata that is too long: 12.
- Fetching an offset that was never committed returns -1 and no error, in an unknown group too.
- Offsets expire some time after the group lost its last member; in a group that never had any, and
  for a topic that no member subscribes to any more, after the commit. A group without members and
  without offsets is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import partial
from itertools import count, repeat
from typing import TYPE_CHECKING, NamedTuple

from dohle.coordination.effects import Effects, Ticket, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.core.uuid import ZERO_UUID
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.context import GroupContext, TimerKey
from dohle.groups.group import Group
from dohle.groups.offsets.expiry import ExpiryRule
from dohle.groups.offsets.records import CommitRecords, offset_tombstone
from dohle.groups.offsets.repeated_commit import RepeatedCommit
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP, CommittedOffset, OffsetStore
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from dohle.protocol.messages.records.classic_group import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from dohle.protocol.record_framing import CoordinatorRecord

if TYPE_CHECKING:
    from dohle.groups.classic.commands import ClassicGroups

_GROUP_ID_NOT_FOUND_SINCE = 9
_NO_RETENTION_TIME = -1
_TIMESTAMP_MAX = 2**63 - 1
_EXPIRY_TIMER = TimerKey("offsets", "expiry")

_KEYS = (OffsetCommitKey, LegacyOffsetCommitKey)

_NOTHING = CommittedOffset(-1, -1, "", 0, -1)

#: What ``_make`` does, without its frame: there may be hundreds in a commit.
_committed_offset: Callable[[Iterable[object]], CommittedOffset] = partial(
    tuple.__new__, CommittedOffset
)


class TopicAsked(NamedTuple):
    """A topic whose offsets are requested; without an id if the request has none."""

    name: TopicName
    partition_indexes: Sequence[int]
    topic_id: Uuid = ZERO_UUID


class FetchedTopic(NamedTuple):
    """A topic's offsets for the response: partition, offset, error."""

    name: TopicName
    partitions: list[tuple[int, CommittedOffset, ErrorCode]]
    topic_id: Uuid = ZERO_UUID


class Offsets:
    """The offsets of a shard's groups."""

    RECORD_TYPES = frozenset({LegacyOffsetCommitKey.RECORD_TYPE, OffsetCommitKey.RECORD_TYPE})

    #: Set by the coordinator.
    classic: ClassicGroups

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.store = OffsetStore()
        self._position = 0

    # Committing

    def commit(self, request: OffsetCommitRequest, ticket: Ticket, version: int) -> Effects:
        """Commit offsets; all topics have names."""
        group_id = request.group_id
        if not self._accept(request, version) and request.generation_id_or_member_epoch >= 0:
            raise _unknown_group(group_id, is_new_error=version >= _GROUP_ID_NOT_FOUND_SINCE)
        now_ms = self._context.clock.now_ms()
        expire_ms = NO_EXPIRE_TIMESTAMP
        if request.retention_time_ms != _NO_RETENTION_TIME:
            expire_ms = min(now_ms + request.retention_time_ms, _TIMESTAMP_MAX)
        batch = CommitRecords(group_id, now_ms, expire_ms, self._metadata_length_max)
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=batch.add(
                    topic.name, topic.topic_id, topic.partitions, OffsetCommitResponsePartition
                ),
            )
            for topic in request.topics
        )
        return Effects(batch.records, encoded=batch.encoded).reply(
            ticket, OffsetCommitResponse(topics=topics)
        )

    def _accept(self, request: OffsetCommitRequest, version: int) -> bool:
        """Refuse a commit that a group does not allow; return whether the group exists."""
        group = self._context.groups.get(request.group_id)
        if group is None:
            return False
        group.validate_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            is_transactional=False,
            version=version,
        )
        if isinstance(group, ClassicGroup):
            self.classic.keep_session(group, request.member_id)
        return True

    def accept_repeated(self, repeated: RepeatedCommit, version: int) -> bool:
        """Accept a commit as ``commit`` does; False if it needs ``commit``'s full checks.

        Its records are then to be appended, and replayed by ``replay_repeated``.
        """
        if repeated.has_metadata_longer_than(self._metadata_length_max):
            return False
        return self._accept(repeated.request, version)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, ticket: Ticket, version: int
    ) -> Effects:
        """Commit offsets that take effect when the producer's transaction is committed."""
        group_id = request.group_id
        group = self._context.groups.get(group_id)
        if group is not None:
            try:
                group.validate_offset_commit(
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id,
                    is_transactional=True,
                    version=version,
                )
            except KafkaError as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                # An error code that producers know.
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, str(error.args[0])) from None
        elif request.generation_id >= 0:
            raise _unknown_group(group_id, is_new_error=False)
        now_ms = self._context.clock.now_ms()
        batch = CommitRecords(group_id, now_ms, NO_EXPIRE_TIMESTAMP, self._metadata_length_max)
        topics = tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=batch.add(
                    topic.name, ZERO_UUID, topic.partitions, TxnOffsetCommitResponsePartition
                ),
            )
            for topic in request.topics
        )
        effects = Effects(batch.records, encoded=batch.encoded)
        if batch.records:
            effects.producer = TransactionalProducer(request.producer_id, request.producer_epoch)
        return effects.reply(ticket, TxnOffsetCommitResponse(topics=topics))

    @property
    def _metadata_length_max(self) -> int:
        return self._context.settings().offset_metadata_max_bytes

    # Fetching

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        topics: Sequence[TopicAsked] | None,
        *,
        require_stable: bool,
    ) -> list[FetchedTopic]:
        """Return a group's offsets, of all topics if none are named. Changes nothing."""
        committed = {}
        if self._may_fetch(group_id, member_id, member_epoch):
            committed = self.store.of_group(group_id) or {}
        elif topics is None:
            return []
        unstable: Collection[tuple[str, int]] = ()
        if require_stable:
            unstable = self.store.pending_of_group(group_id) or ()
        if topics is None:
            topics = [
                TopicAsked(TopicName(topic), tuple(partitions))
                for topic, partitions in committed.items()
            ]
        found = []
        for topic, partition_indexes, topic_id in topics:
            offsets = committed.get(topic, {})
            partitions = []
            for index in partition_indexes:
                offset = offsets.get(index, _NOTHING)
                if unstable and (topic, index) in unstable:
                    partitions.append((index, _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                elif offset.topic_id != topic_id and _is_other_topic(offset.topic_id, topic_id):
                    partitions.append((index, _NOTHING, ErrorCode.NONE))
                else:
                    partitions.append((index, offset, ErrorCode.NONE))
            found.append(FetchedTopic(topic, partitions, topic_id))
        return found

    def _may_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> bool:
        """Tell whether the group exists; a fetch from someone who is not a member is refused."""
        group = self._context.groups.get(group_id)
        if group is None:
            return False
        try:
            group.validate_offset_fetch(member_id, member_epoch)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return False
        return True

    # Deleting

    def delete(self, request: OffsetDeleteRequest, ticket: Ticket) -> Effects:
        """Delete offsets of topics without a subscriber: 86 for the others."""
        group_id = request.group_id
        group = self._context.groups.get(group_id)
        if group is None:
            raise _unknown_group(group_id, is_new_error=True)
        group.validate_offset_delete()
        effects = Effects()
        topics = []
        for topic in request.topics:
            code = ErrorCode.NONE
            if group.is_subscribed_to(topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            indexes = dict.fromkeys(asked.partition_index for asked in topic.partitions)
            if code is ErrorCode.NONE:
                effects.records += [
                    offset_tombstone(group_id, topic.name, index)
                    for index in indexes
                    if self.store.has(group_id, topic.name, index)
                ]
            partitions = tuple(
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                for index in indexes
            )
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return effects.reply(ticket, OffsetDeleteResponse(topics=tuple(topics)))

    def tombstones_of_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the records that delete all offsets of a group, including pending ones."""
        return [
            offset_tombstone(group_id, topic, partition)
            for topic, partition in self.store.partitions_of_group(group_id)
        ]

    def on_topics_deleted(self, names: Set[str]) -> Effects:
        """Delete the offsets of deleted topics."""
        if not names:
            return Effects()
        records = [offset_tombstone(*key) for key in self.store.of_topics(names)]
        return Effects(records, is_atomic=False)

    # Expiring

    def on_loaded(self) -> Effects:
        """Start looking for expired offsets."""
        self._set_timer()
        return Effects()

    def on_timer(self, key: TimerKey) -> Effects:
        """Delete expired offsets, and groups of which nothing is left."""
        self._set_timer()
        context = self._context
        now_ms = context.clock.now_ms()
        retention_ms = context.settings().offsets_retention_minutes * 60_000
        effects = Effects(is_atomic=False)
        for group in context.groups.values():
            if self._expire(group, now_ms, retention_ms, effects.records):
                effects.records += group.tombstones()
        return effects

    def _set_timer(self) -> None:
        interval_ms = self._context.settings().offsets_retention_check_interval_ms
        deadline_ms = self._context.clock.monotonic_ms() + interval_ms
        self._context.timers.set(_EXPIRY_TIMER, deadline_ms)

    def _expire(
        self, group: Group, now_ms: int, retention_ms: int, records: list[CoordinatorRecord]
    ) -> bool:
        """Delete a group's expired offsets; return whether the group is to be deleted too."""
        group_id = group.group_id
        pending = self.store.pending_of_group(group_id) or ()
        is_all = not pending
        rule = ExpiryRule.of(group, now_ms, retention_ms)
        for topic, partitions in (self.store.of_group(group_id) or {}).items():
            if rule is None or group.is_subscribed_to(topic):
                is_all = False
                continue
            for partition, offset in partitions.items():
                if rule.has_expired(offset) and (topic, partition) not in pending:
                    records.append(offset_tombstone(group_id, topic, partition))
                else:
                    is_all = False
        return is_all and group.is_empty

    # Replaying

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Apply a record of an offset."""
        key, value = record.key, record.value
        assert isinstance(key, _KEYS)
        if value is None:
            self.store.remove(key.group, key.topic, key.partition)
            return
        if key.group not in self._context.groups:
            self.classic.get_or_create(key.group)
        self._position += 1
        if isinstance(value, OffsetCommitValue):
            offset = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                self._position,
                value.expire_timestamp,
                value.topic_id,
            )
        else:
            assert isinstance(value, LegacyOffsetCommitValue)
            offset = CommittedOffset(
                value.offset, -1, value.metadata, value.commit_timestamp, self._position
            )
        if producer is None:
            self.store.put(key.group, key.topic, key.partition, offset)
        else:
            self.store.put_pending(producer.id, key.group, key.topic, key.partition, offset)

    def replay_repeated(
        self,
        repeated: RepeatedCommit,
        now_ms: int,
        offsets: Sequence[int],
        leader_epochs: Sequence[int],
    ) -> None:
        """Apply the records of a commit, as ``replay`` does one by one."""
        start, position = 0, self._position + 1
        for name, topic_id, indexes, metadata in repeated.topics:
            end = start + len(indexes)
            values = zip(
                offsets[start:end],
                leader_epochs[start:end],
                metadata,
                repeat(now_ms),
                count(position + start),
                repeat(NO_EXPIRE_TIMESTAMP),
                repeat(topic_id),
                strict=False,
            )
            found = zip(indexes, map(_committed_offset, values), strict=True)
            self.store.put_all(repeated.request.group_id, name, found)
            start = end
        self._position += start

    def replay_end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Apply a transaction's marker."""
        self.store.end_transaction(producer.id, is_commit=is_commit)


def _is_other_topic(committed: Uuid, asked: Uuid) -> bool:
    """Tell whether an offset belongs to an earlier topic of the same name."""
    return ZERO_UUID not in (committed, asked)


def _unknown_group(group_id: str, *, is_new_error: bool) -> KafkaError:
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_new_error else ErrorCode.ILLEGAL_GENERATION
    return KafkaError(code, f"there is no group {group_id!r}")
