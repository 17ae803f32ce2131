"""Members of a group: what they are given, and one that speaks the newer protocol (KIP-848).

dohle's client joins groups by the classic protocol. So this member is made of a consumer that reads
what it is told to, and of heartbeats: the smallest that keeps the protocol's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from dohle.client import (
    At,
    Beginning,
    Cluster,
    ConsumedRecord,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    OffsetReset,
    RebalanceListener,
)
from dohle.client.coordinators import CoordinatorKind
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, TopicPartition, Uuid
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dohle.testing.checking.history import History, Owned, Partition, Reading
from dohle.testing.simulation.machine import SimulatedHost

MEMBERS = "members"
_GROUP = GroupId(MEMBERS)
_JOIN, _LEAVE = 0, -1
_REBALANCE_TIMEOUT_MS = 5_000
_POLL_MS = 200


class Tenure(RebalanceListener):
    """What a member of a group is given, from one rebalance to the next."""

    def __init__(
        self,
        history: History,
        process: str,
        now_ns: Callable[[], int],
        group: str,
        generation: Callable[[], int] | None = None,
    ) -> None:
        """``generation`` tells which one the member is in, if its group has any."""
        self._history = history
        self._process = process
        self._now_ns = now_ns
        self._group = group
        self._generation = generation
        self._readings: dict[TopicPartition, Reading] = {}

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to read."""
        now_ns = self._now_ns()
        for each in partitions:
            where = Partition(*each)
            reading = self._history.read_by(self._process, where, now_ns, self._group)
            self._readings[each] = reading
            if self._generation is not None:
                generation = self._generation()
                owned = Owned(self._group, generation, where, self._process, now_ns)
                self._history.owned.append(owned)

    def given(self, records: Sequence[ConsumedRecord]) -> None:
        """Note what was read."""
        for found in records:
            reading = self._readings[TopicPartition(found.topic, found.partition)]
            reading.given(found.record.offset, found.record.value or b"", self._now_ns())


class SimulatedMember:
    """A member of the group ``MEMBERS``; after an error it is of no more use."""

    def __init__(
        self,
        cluster: Cluster,
        host: SimulatedHost,
        history: History,
        topics: Sequence[str],
        tenure: Tenure,
        now_ns: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._now_ns = now_ns
        self._host = host
        self._history = history
        self._topics = tuple(map(TopicName, topics))
        self._tenure = tenure
        self._id = uuid_to_text(random_uuid(host.rng))
        self._epoch = _JOIN
        #: What it reads, and from where on.
        self._positions: dict[TopicPartition, int] = {}
        #: Whether the coordinator is to be told what it reads.
        self._is_changed = True
        self._consumer = Consumer(
            cluster,
            ConsumerConfig(
                isolation_level=IsolationLevel.READ_COMMITTED,
                auto_offset_reset=OffsetReset.EARLIEST,
                fetch_max_wait_ms=_POLL_MS,
            ),
        )

    async def go_on(self) -> None:
        """Send a heartbeat, read a little, and commit that sometimes."""
        await self._heartbeat()
        if not self._positions:
            return
        rng = self._host.rng
        records = await self._consumer.poll(timeout_ms=_POLL_MS, max_records=rng.randint(1, 100))
        self._tenure.given(records)
        for found in records:
            where = TopicPartition(TopicName(found.topic), found.partition)
            self._positions[where] = found.record.offset + 1
        if records and rng.random() < 0.5:
            await self._commit({Partition(*tp): at for tp, at in self._positions.items() if at > 0})

    async def leave(self) -> None:
        """Say goodbye, if it can be heard."""
        with suppress(KafkaError):
            if self._epoch > _JOIN:
                self._epoch = _LEAVE
                await self._ask_heartbeat(None)
        with suppress(KafkaError):
            await self._consumer.close(commit=False)

    # The protocol

    async def _heartbeat(self) -> None:
        owned = await self._owned() if self._is_changed or self._epoch == _JOIN else None
        answer = await self._ask_heartbeat(owned)
        self._is_changed = False
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            await self._read(answer.assignment.topic_partitions)

    async def _ask_heartbeat(
        self, owned: tuple[TopicPartitions, ...] | None
    ) -> ConsumerGroupHeartbeatResponse:
        joins = self._epoch == _JOIN
        request = ConsumerGroupHeartbeatRequest(
            group_id=_GROUP,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=self._topics if joins else None,
            topic_partitions=owned,
        )

        async def ask(connection: Connection) -> ConsumerGroupHeartbeatResponse:
            answer = await connection.request(request, ConsumerGroupHeartbeatResponse)
            _raise_for(answer.error_code)
            return answer

        return await self._cluster.coordinators.ask(
            CoordinatorKind.GROUP, MEMBERS, "send a heartbeat", ask
        )

    async def _read(self, assigned: Sequence[TopicPartitions]) -> None:
        """Read what is assigned now: what it had goes on, the rest begins where the group is."""
        names = {topic_id: name for name, topic_id in (await self._topic_ids()).items()}
        target = [
            TopicPartition(names[each.topic_id], number)
            for each in assigned
            for number in each.partitions
        ]
        added = [each for each in target if each not in self._positions]
        config = ConsumerConfig(group_id=MEMBERS, enable_auto_commit=False)
        async with Consumer(self._cluster, config) as group:
            committed = await group.committed(added) if added else {}
        starts: dict[TopicPartition, int] = {}
        for each in target:
            known = committed.get(each)
            starts[each] = self._positions.get(each, 0 if known is None else known.offset)
        await self._consumer.assign(
            {each: At(offset) if offset else Beginning() for each, offset in starts.items()}
        )
        await self._tenure.on_partitions_assigned(added)
        self._positions = starts
        self._is_changed = True

    async def _commit(self, ends: dict[Partition, int]) -> None:
        ids = await self._topic_ids()
        commits = self._history.commit(MEMBERS, ends, began_ns=self._now_ns())
        request = OffsetCommitRequest(
            group_id=_GROUP,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._id,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=ids[name],
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=each.number,
                            committed_offset=offset,
                            committed_metadata="",
                        )
                        for each, offset in ends.items()
                        if each.topic == name
                    ),
                )
                for name in self._topics
            ),
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.request(request, OffsetCommitResponse)
            for topic in answer.topics:
                for partition in topic.partitions:
                    _raise_for(partition.error_code)

        router = self._cluster.coordinators
        await router.ask(CoordinatorKind.GROUP, MEMBERS, "commit offsets", ask)
        self._history.committed(commits, self._now_ns())

    async def _owned(self) -> tuple[TopicPartitions, ...]:
        ids = await self._topic_ids()
        found = (
            TopicPartitions(
                topic_id=ids[name],
                partitions=tuple(each.partition for each in self._positions if each.topic == name),
            )
            for name in self._topics
        )
        return tuple(each for each in found if each.partitions)

    async def _topic_ids(self) -> dict[TopicName, Uuid]:
        return {name: (await self._cluster.topic(name)).topic_id for name in self._topics}


def _raise_for(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code), ErrorCode(code).name)
