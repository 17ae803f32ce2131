"""A group coordinator whose offsets are tested: short ways to commit, fetch and join."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from dohle.coordination.effects import TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, ProducerId, TopicName, TransactionalId, Uuid
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.core.uuid import ZERO_UUID
from dohle.groups.context import GroupContext
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.group import Caller
from dohle.groups.offsets.prepared import prepare_commit, prepare_txn_commit
from dohle.groups.offsets.reading import FetchedTopic, TopicAsked
from dohle.groups.offsets.store import CommittedOffset
from dohle.groups.settings import GroupSettings
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dohle.protocol.messages.leave_group import LeaveGroupRequest
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dohle.protocol.messages.sync_group import SyncGroupRequest
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordination.driver import Driver
from tests.groups.classic.commands import join, sync

DAY_MS = 24 * 3600 * 1000
LATEST = 10
#: Joins without being asked to come back with a member id.
_JOIN_VERSION = 3
_SESSION_MS = 10_000


class NoTopics:
    """A cluster without topics: offsets are not checked against it here."""

    def id_of(self, name: str) -> Uuid | None:
        """None."""
        return None

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        """None."""
        return None

    def partition_count(self, name: str) -> int:
        """No partitions."""
        return 0

    def racks(self, name: str, partition: int) -> Sequence[str]:
        """No racks."""
        return ()

    def names(self) -> Collection[TopicName]:
        """No topics."""
        return ()

    def version(self) -> int:
        """Of the first image."""
        return 0


class Member(NamedTuple):
    """Somebody who has joined."""

    group_id: str
    member_id: str
    generation: int


def producer(producer_id: int, epoch: int = 0) -> TransactionalProducer:
    """Return a producer in a transaction."""
    return TransactionalProducer(ProducerId(producer_id), epoch)


class OffsetDriver(Driver[GroupCoordinator]):
    """Runs a whole group coordinator, by its offsets."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        clock = ManualClock()

        def make() -> GroupCoordinator:
            context = GroupContext(clock, random.Random(7), lambda: self.settings, NoTopics())
            return GroupCoordinator(context)

        super().__init__(Coordinator.GROUP, make, clock)

    @property
    def _metadata_bytes_max(self) -> int:
        return self.settings.offset_metadata_max_bytes

    # Committing

    def commit(
        self,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        *,
        member: Member | None = None,
        generation: int | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        topic_id: Uuid = ZERO_UUID,
        version: int = 9,
    ) -> dict[tuple[str, int], ErrorCode]:
        """Commit, and return what was answered for each partition."""
        if generation is None:
            generation = member.generation if member else -1
        request = OffsetCommitRequest(
            group_id=GroupId(group_id),
            member_id=member.member_id if member else "",
            generation_id_or_member_epoch=generation,
            retention_time_ms=retention_ms,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=TopicName(topic),
                    topic_id=topic_id,
                    partitions=(
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        ),
                    ),
                )
                for (topic, partition), offset in offsets.items()
            ),
        )
        prepared = finish(prepare_commit(request, self.clock.now_ms(), self._metadata_bytes_max))
        answer = self.ask(lambda machine, ticket: machine.offsets.commit(prepared, ticket, version))
        if isinstance(answer, KafkaError):
            raise answer
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    def commit_in_transaction(
        self,
        by: TransactionalProducer,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        *,
        member: Member | None = None,
        generation: int | None = None,
        metadata: str | None = "",
        version: int = 5,
    ) -> dict[tuple[str, int], ErrorCode]:
        """Commit in a transaction, and return what was answered for each partition."""
        if generation is None:
            generation = member.generation if member else -1
        request = TxnOffsetCommitRequest(
            transactional_id=TransactionalId("tx"),
            group_id=GroupId(group_id),
            producer_id=by.id,
            producer_epoch=by.epoch,
            member_id=member.member_id if member else "",
            generation_id=generation,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=(
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        ),
                    ),
                )
                for (topic, partition), offset in offsets.items()
            ),
        )
        prepared = finish(
            prepare_txn_commit(request, self.clock.now_ms(), self._metadata_bytes_max)
        )
        answer = self.ask(
            lambda machine, ticket: machine.offsets.commit_in_transaction(prepared, ticket, version)
        )
        if isinstance(answer, KafkaError):
            raise answer
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    # Fetching and deleting

    def fetch(
        self,
        group_id: str,
        topics: dict[str, list[int]] | None = None,
        *,
        require_stable: bool = False,
        topic_id: Uuid = ZERO_UUID,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedTopic]:
        """Return what is fetched."""
        if topics is None:
            return finish(
                self.machine.offsets.reader.fetch_all(
                    group_id, member_id, member_epoch, require_stable=require_stable
                )
            )
        asked = [
            TopicAsked(TopicName(name), partitions, topic_id) for name, partitions in topics.items()
        ]
        return self.machine.offsets.reader.fetch(
            group_id, member_id, member_epoch, asked, require_stable=require_stable
        )

    def offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets."""
        return {
            (topic.name, partition): offset.offset
            for topic in self.fetch(group_id)
            for partition, offset, _ in topic.partitions
        }

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset:
        """Return all that is known of an offset."""
        [found] = self.fetch(group_id, {topic: [partition]})
        [(_, offset, code)] = found.partitions
        assert code == ErrorCode.NONE
        return offset

    def delete(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], ErrorCode]:
        """Delete offsets, and return what was answered for each partition."""
        request = OffsetDeleteRequest(
            group_id=GroupId(group_id),
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=TopicName(topic),
                    partitions=(OffsetDeleteRequestPartition(partition_index=partition),),
                )
                for topic, partition in partitions
            ),
        )
        prepared = finish(self.machine.offsets.prepare_deletion(request))
        answer = self.ask(lambda machine, ticket: machine.offsets.delete(prepared, ticket))
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    def delete_topics(self, names: set[str]) -> None:
        """Tell that topics were deleted; the rest happens when time passes, even none."""
        self.carry_out(self.machine.on_topics_changed(set(), names, set()))

    # Groups

    @property
    def group_ids(self) -> set[str]:
        """The groups that there are."""
        return set(self.machine.context.groups)

    def join(
        self,
        group_id: str,
        topics: Sequence[str] = (),
        *,
        protocol_type: str = "consumer",
        member_id: str = "",
        sync: bool = True,
    ) -> Member:
        """Let somebody join, wait for the rebalance, and get its assignment."""
        subscription = ConsumerProtocolSubscription(topics=tuple(topics))
        request = JoinGroupRequest(
            group_id=GroupId(group_id),
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=(
                JoinGroupRequestProtocol(
                    name="range", metadata=b"\0\0" + bytes(subscription.encode(0))
                ),
            ),
        )
        ticket = self.submit(
            lambda machine, ticket: join(
                machine, request, ticket, Caller("client", "/127.0.0.1", _JOIN_VERSION)
            )
        )
        self.advance(self.settings.group_initial_rebalance_delay_ms)
        joined = self.replies.pop(ticket)
        assert joined.error_code == ErrorCode.NONE, joined
        member = Member(group_id, joined.member_id, joined.generation_id)
        if sync:
            self.sync(member)
        return member

    def sync(self, member: Member) -> None:
        """Let the leader, and only member, send its assignment."""
        request = SyncGroupRequest(
            group_id=GroupId(member.group_id),
            generation_id=member.generation,
            member_id=member.member_id,
        )
        answer = self.ask(lambda machine, ticket: sync(machine, request, ticket))
        assert answer.error_code == ErrorCode.NONE, answer

    def leave(self, member: Member) -> None:
        """Let somebody leave."""
        request = LeaveGroupRequest(group_id=GroupId(member.group_id), member_id=member.member_id)
        answer = self.ask(
            lambda machine, ticket: machine.classic.leave_group(
                request, ticket, Caller("client", "/127.0.0.1", 0)
            )
        )
        assert answer.error_code == ErrorCode.NONE, answer

    def assert_restart_changes_nothing(self) -> None:
        """Check that the offsets are the same after replaying the log."""
        before = self.machine.offsets.store
        self.restart()
        assert self.machine.offsets.store == before
