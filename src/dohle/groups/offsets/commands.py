"""Committed offsets: committing and deleting them.

- The group decides who may commit. For an unknown group, a commit without a generation creates a
  simple group: one without members, which exists as long as it has offsets. With a generation it is
  refused: 69 from OffsetCommit v9 on, else 22.
- A commit in a transaction is pending until the transaction's marker. Until then, a fetch of stable
  offsets returns 88 for the partition.
- The offset itself is not checked: it need not be in the log. Metadata that is too long: 12.
- Offsets that nobody needs any more are deleted in the background (``cleaning``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from dohle.coordination.effects import Effects, PreparedBatch, Ticket, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.context import GroupContext
from dohle.groups.group import Group
from dohle.groups.offsets.cleaning import OffsetCleaner
from dohle.groups.offsets.prepared import (
    PreparedCommit,
    PreparedDeletion,
    PreparedRemoval,
    PreparedTxnCommit,
)
from dohle.groups.offsets.reading import OffsetReader
from dohle.groups.offsets.records import DeletionRecords, offset_tombstone
from dohle.groups.offsets.repeated_commit import RepeatedCommit
from dohle.groups.offsets.store import (
    NO_EXPIRE_TIMESTAMP,
    CommittedOffset,
    GroupOffsets,
    OffsetStore,
)
from dohle.protocol.messages.offset_commit import OffsetCommitRequest
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
from dohle.protocol.record_framing import CoordinatorRecord

if TYPE_CHECKING:
    from dohle.groups.classic.commands import ClassicGroups

_GROUP_ID_NOT_FOUND_SINCE = 9

_KEYS = (OffsetCommitKey, LegacyOffsetCommitKey)

#: What ``_make`` does, without its frame: there may be hundreds in a commit.
_committed_offset: Callable[[Iterable[object]], CommittedOffset] = partial(
    tuple.__new__, CommittedOffset
)


class Offsets:
    """The offsets of a shard's groups."""

    RECORD_TYPES = frozenset({LegacyOffsetCommitKey.RECORD_TYPE, OffsetCommitKey.RECORD_TYPE})

    #: Set by the coordinator.
    classic: ClassicGroups

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.store = OffsetStore()
        self.reader = OffsetReader(context, self.store)
        self.cleaner = OffsetCleaner(context, self.store)

    # Committing

    def commit(self, prepared: PreparedCommit, ticket: Ticket, version: int) -> Effects:
        """Commit offsets."""
        request, records = prepared.request, prepared.records
        if not self._accept(request, version) and request.generation_id_or_member_epoch >= 0:
            is_new_error = version >= _GROUP_ID_NOT_FOUND_SINCE
            raise _unknown_group(request.group_id, is_new_error=is_new_error)
        effects = Effects()
        if records.offsets:

            def take_in() -> None:
                self._ensure_group(request.group_id)
                self.store.put_all(request.group_id, records.offsets)

            effects.prepared = [PreparedBatch(records.builder, take_in)]
        return effects.reply(ticket, prepared.response)

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
        if repeated.metadata and repeated.has_metadata_longer_than(self._metadata_length_max):
            return False
        return self._accept(repeated.request, version)

    def commit_in_transaction(
        self, prepared: PreparedTxnCommit, ticket: Ticket, version: int
    ) -> Effects:
        """Commit offsets that take effect when the producer's transaction is committed."""
        request, records = prepared.request, prepared.records
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
        effects = Effects()
        if records.offsets:

            def take_in() -> None:
                self._ensure_group(group_id)
                self.store.put_all_pending(request.producer_id, group_id, records.offsets)

            effects.prepared = [PreparedBatch(records.builder, take_in)]
            effects.producer = TransactionalProducer(request.producer_id, request.producer_epoch)
        return effects.reply(ticket, prepared.response)

    def _ensure_group(self, group_id: str) -> None:
        if group_id not in self._context.groups:
            self.classic.get_or_create(group_id)

    @property
    def _metadata_length_max(self) -> int:
        return self._context.settings().offset_metadata_max_bytes

    # Deleting

    def prepare_deletion(self, request: OffsetDeleteRequest) -> PlainSteps[PreparedDeletion]:
        """Find the offsets to be deleted: those of topics without a subscriber; 86 for others."""
        group_id = request.group_id
        records = DeletionRecords(group_id, self._context.clock.now_ms())
        free_topics, topics = set(), []
        for topic in request.topics:
            yield
            group = self._group_to_delete_from(group_id)
            code = ErrorCode.NONE
            if group.is_subscribed_to(topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                free_topics.add(topic.name)
            known: list[int] = []
            partitions: dict[int, OffsetDeleteResponsePartition] = {}
            for asked in topic.partitions:
                yield
                index = asked.partition_index
                if index in partitions:
                    continue
                partitions[index] = OffsetDeleteResponsePartition(
                    partition_index=index, error_code=code
                )
                if code is ErrorCode.NONE and self.store.has(group_id, topic.name, index):
                    known.append(index)
            yield from records.add(topic.name, known)
            topics.append(
                OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(partitions.values()))
            )
        response = OffsetDeleteResponse(topics=tuple(topics))
        return PreparedDeletion(group_id, records, free_topics, response)

    def delete(self, prepared: PreparedDeletion, ticket: Ticket) -> Effects:
        """Delete offsets; the reply is None if a topic has got a subscriber meanwhile."""
        group_id, records = prepared.group_id, prepared.records
        group = self._group_to_delete_from(group_id)
        if any(map(group.is_subscribed_to, prepared.free_topics)):
            return Effects().reply(ticket, None)
        effects = Effects()
        if records.removed:
            take_in = partial(self.store.remove_all, group_id, records.removed)
            effects.prepared = [PreparedBatch(records.builder, take_in)]
        return effects.reply(ticket, prepared.response)

    def _group_to_delete_from(self, group_id: str) -> Group:
        group = self._context.groups.get(group_id)
        if group is None:
            raise _unknown_group(group_id, is_new_error=True)
        group.validate_offset_delete()
        return group

    def prepare_removal(self, group_id: str) -> PlainSteps[PreparedRemoval]:
        """Find all offsets of a group, including pending ones."""
        committed = self.store.of_group(group_id) or {}
        pending = self.store.pending_of_group(group_id)
        prepared = PreparedRemoval(group_id)
        for topic in tuple(committed.keys() | pending.keys()):
            yield
            indexes = tuple({*committed.get(topic, ()), *pending.get(topic, ())})
            yield from prepared.add(topic, indexes, self._context.clock.now_ms())
        return prepared

    def remove(self, prepared: PreparedRemoval) -> Effects:
        """Delete all offsets of a group: the prepared ones, and those committed since."""
        group_id = prepared.group_id
        batches = [
            PreparedBatch(part.builder, partial(self.store.remove_all, group_id, part.removed))
            for part in prepared.parts
        ]
        since = {
            (topic, index): None
            for by_topic in (self.store.of_group(group_id), self.store.pending_of_group(group_id))
            for topic, partitions in (by_topic or {}).items()
            for index in set(partitions).difference(prepared.found.get(topic, ()))
        }
        records = [offset_tombstone(group_id, topic, index) for topic, index in since]
        return Effects(records, prepared=batches, is_atomic=False)

    # Replaying

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Apply a record of an offset."""
        key, value = record.key, record.value
        assert isinstance(key, _KEYS)
        if value is None:
            self.store.remove(key.group, key.topic, key.partition)
            return
        self._ensure_group(key.group)
        if isinstance(value, OffsetCommitValue):
            offset = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
        else:
            assert isinstance(value, LegacyOffsetCommitValue)
            offset = CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp)
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
        start = 0
        committed: GroupOffsets = {}
        for name, topic_id, indexes, metadata in repeated.topics:
            end = start + len(indexes)
            values = zip(
                offsets[start:end],
                leader_epochs[start:end],
                metadata,
                repeat(now_ms),
                repeat(NO_EXPIRE_TIMESTAMP),
                repeat(topic_id),
                strict=False,
            )
            found = zip(indexes, map(_committed_offset, values), strict=True)
            committed.setdefault(name, {}).update(found)
            start = end
        self.store.put_all(repeated.request.group_id, committed)

    def replay_end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Apply a transaction's marker."""
        self.store.end_transaction(producer.id, is_commit=is_commit)


def _unknown_group(group_id: str, *, is_new_error: bool) -> KafkaError:
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_new_error else ErrorCode.ILLEGAL_GENERATION
    return KafkaError(code, f"there is no group {group_id!r}")
