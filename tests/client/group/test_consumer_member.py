"""A member whose coordinator assigns (KIP-848), and what can come between the two."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ConsumerConfig, GroupProtocol
from dohle.client.consumer.consumer import Consumer
from dohle.client.group.offsets import OffsetAndMetadata
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dohle.protocol.messages.fetch import FetchRequest, FetchResponse
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.client.scripted_broker import HANG_UP, SILENCE, Reply, ScriptedCluster, until, within

CLIENT = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4)
CONFIG = ConsumerConfig(
    group_id="g", group_protocol=GroupProtocol.CONSUMER, enable_auto_commit=False
)
T = TopicName("t")
P0 = TopicPartition(T, 0)


class Coordination:
    """Assigns one partition; answers as it is told to before that."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self._scripted = scripted
        self.epoch = 1
        self.interval_ms = 20
        #: Instead of the next answers; None is the usual one.
        self.next_replies: deque[Reply | None] = deque()
        self.commits: list[int] = []
        scripted.serve(ApiKey.FIND_COORDINATOR, self.find)
        scripted.serve(ApiKey.CONSUMER_GROUP_HEARTBEAT, self.heartbeat)
        scripted.serve(ApiKey.OFFSET_COMMIT, self.commit)
        scripted.serve(ApiKey.OFFSET_FETCH, self.fetch_offsets)
        scripted.serve(ApiKey.FETCH, self.fetch)

    @property
    def heartbeats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return self._scripted.asked(ApiKey.CONSUMER_GROUP_HEARTBEAT)

    def find(self, request: FindCoordinatorRequest, version: int) -> Reply:
        coordinators = (Coordinator(key="g", node_id=BrokerId(1)),)
        return FindCoordinatorResponse(coordinators=coordinators)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, version: int) -> Reply:
        reply = self.next_replies.popleft() if self.next_replies else None
        if reply is not None:
            return reply
        is_full = request.rebalance_timeout_ms != -1
        topic_id = self._scripted.topics[T].topic_id
        assigned = (TopicPartitions(topic_id=topic_id, partitions=(0,)),)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=Assignment(topic_partitions=assigned) if is_full else None,
        )

    def commit(self, request: OffsetCommitRequest, version: int) -> Reply:
        epoch = request.generation_id_or_member_epoch
        self.commits.append(epoch)
        code = ErrorCode.NONE if epoch == self.epoch else ErrorCode.STALE_MEMBER_EPOCH
        done = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name=T, partitions=(done,)),))

    def fetch_offsets(self, request: OffsetFetchRequest, version: int) -> Reply:
        place = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
        topic = OffsetFetchResponseTopics(name=T, partitions=(place,))
        group = OffsetFetchResponseGroup(group_id=request.groups[0].group_id, topics=(topic,))
        return OffsetFetchResponse(groups=(group,))

    async def fetch(self, request: FetchRequest, version: int) -> Reply:
        await asyncio.sleep(0.02)
        return FetchResponse()


async def join(consumer: Consumer) -> None:
    await consumer.subscribe([T])
    async with asyncio.timeout(10):
        while consumer.assignment != (P0,):
            await consumer.poll(timeout_ms=10)


def test_a_commit_with_an_epoch_of_the_past_is_made_again_with_the_next_one() -> None:
    # KIP-848: the epoch comes with the answer to a heartbeat, which a commit can overtake.
    async def body() -> None:
        async with ScriptedCluster(1, topics={T: 1}) as scripted:
            coordination = Coordination(scripted)
            coordination.interval_ms = 60_000
            async with (
                Cluster(scripted.bootstrap, CLIENT) as cluster,
                Consumer(cluster, CONFIG) as consumer,
            ):
                await join(consumer)
                before = len(coordination.heartbeats)
                coordination.epoch = 2
                await consumer.commit({P0: OffsetAndMetadata(9)})
                assert (coordination.commits[0], coordination.commits[-1]) == (1, 2)
                # The interval is a minute: the commit has asked for the heartbeat.
                assert len(coordination.heartbeats) > before

    within(20, body())


@pytest.mark.parametrize(
    "lost",
    [HANG_UP, ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_behind_a_lost_answer_the_coordinator_is_told_everything_again(lost: Reply) -> None:
    async def body() -> None:
        async with ScriptedCluster(1, topics={T: 1}) as scripted:
            coordination = Coordination(scripted)
            async with (
                Cluster(scripted.bootstrap, CLIENT) as cluster,
                Consumer(cluster, CONFIG) as consumer,
            ):
                await join(consumer)
                await until(lambda: coordination.heartbeats[-1].topic_partitions is None)
                coordination.next_replies.append(lost)
                await until(lambda: coordination.heartbeats[-1].rebalance_timeout_ms != -1)
                told = coordination.heartbeats[-1]
                assert told.member_epoch == 1
                assert told.subscribed_topic_names == (T,)
                assert [each.partitions for each in told.topic_partitions or ()] == [(0,)]
                assert consumer.assignment == (P0,)

    within(20, body())


def test_a_broker_without_the_protocol_is_told_with_what_to_do() -> None:
    async def body() -> None:
        async with ScriptedCluster(1, topics={T: 1}) as scripted:
            coordination = Coordination(scripted)
            scripted.serve(ApiKey.CONSUMER_GROUP_HEARTBEAT, coordination.heartbeat, (9, 9))
            async with (
                Cluster(scripted.bootstrap, CLIENT) as cluster,
                Consumer(cluster, CONFIG) as consumer,
            ):
                await consumer.subscribe([T])
                with pytest.raises(KafkaError, match="use group_protocol=classic"):
                    await consumer.poll(timeout_ms=10_000)

    within(20, body())


def test_a_topic_that_must_not_be_read_is_told_once_and_asked_for_until_it_may() -> None:
    async def body() -> None:
        refusal = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with ScriptedCluster(1, topics={T: 1}) as scripted:
            coordination = Coordination(scripted)
            coordination.next_replies.extend([None, refusal, refusal])
            async with (
                Cluster(scripted.bootstrap, CLIENT) as cluster,
                Consumer(cluster, CONFIG) as consumer,
            ):
                await consumer.subscribe([T])
                with pytest.raises(KafkaError) as raised:
                    await consumer.poll(timeout_ms=10_000)
                assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
                await until(lambda: len(coordination.heartbeats) > 5)
                assert await consumer.poll(timeout_ms=20) == []

    within(20, body())


def test_who_stops_before_its_join_is_answered_leaves_all_the_same() -> None:
    async def body() -> None:
        async with ScriptedCluster(1, topics={T: 1}) as scripted:
            coordination = Coordination(scripted)
            coordination.next_replies.append(SILENCE)
            async with Cluster(scripted.bootstrap, CLIENT) as cluster:
                consumer = Consumer(cluster, CONFIG)
                await consumer.subscribe([T])
                await until(lambda: len(coordination.heartbeats) == 1)
                await consumer.close()
                joined, left = coordination.heartbeats
                assert (joined.member_epoch, left.member_epoch) == (0, -1)
                assert left.member_id == joined.member_id

    within(20, body())
