"""The consumer against brokers that move, cut and spoil what it reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ConsumerConfig, IsolationLevel, OffsetReset
from dohle.client.consumer.consumer import Consumer
from dohle.client.consumer.starts import At, Beginning, End, Since, Start, Tail
from dohle.client.errors import ClientClosed
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId, ProducerId, TopicName, TopicPartition
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dohle.records.batch import Batch, batches
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.control import build_txn_marker
from dohle.records.record import TimestampType
from tests.client.scripted_broker import HANG_UP, Reply, ScriptedCluster, until, within

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4, api_timeout_ms=10_000)
EARLIEST = ConsumerConfig(auto_offset_reset=OffsetReset.EARLIEST)
T0 = TopicPartition(TopicName("t"), 0)
EPOCH = 5


class Log:
    """A partition whose batches are read by offset and by time."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = self.end = 0
        self.stable: int | None = None
        self.aborted: list[tuple[int, int]] = []

    def write(self, *values: bytes, codec: Codec = Codec.NONE, producer: int = -1) -> None:
        builder = BatchBuilder(base_offset=self.end, codec=codec, partition_leader_epoch=EPOCH)
        if producer >= 0:
            builder.producer_id, builder.producer_epoch = producer, 0
            builder.base_sequence, builder.is_transactional = 0, True
        for value in values:
            builder.append(self.end * 10, None, value)
            self.end += 1
        self.data += builder.build()

    def mark(self, producer: int, *, commit: bool) -> None:
        self.data += build_txn_marker(commit, producer, 0, 0, 0, self.end, EPOCH)
        self.end += 1

    def batches(self) -> list[Batch]:
        return list(batches(bytes(self.data)))

    def fetch(self, request: FetchPartition, isolation_level: int) -> PartitionData:
        stable = self.end if self.stable is None else self.stable
        bound = stable if isolation_level else self.end
        head = PartitionData(
            partition_index=request.partition,
            high_watermark=self.end,
            last_stable_offset=stable,
            log_start_offset=self.start,
            aborted_transactions=tuple(
                AbortedTransaction(producer_id=ProducerId(producer), first_offset=offset)
                for producer, offset in self.aborted
            )
            if isolation_level
            else None,
            records=b"",
        )
        if not self.start <= request.fetch_offset <= self.end:
            return head.replace(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        wanted = b"".join(
            batch.buffer
            for batch in self.batches()
            if request.fetch_offset <= batch.last_offset < bound
        )
        return head.replace(records=wanted[: max(request.partition_max_bytes, 150)])

    def offset_of(self, timestamp: int, isolation_level: int) -> tuple[int, int]:
        if timestamp == -2:
            return self.start, -1
        if timestamp == -1:
            return (self.stable if isolation_level and self.stable else self.end), -1
        for batch in self.batches():
            for record in batch:
                if record.timestamp >= timestamp:
                    return record.offset, record.timestamp
        return -1, -1


class Logs:
    """The partitions of a scripted cluster, as handlers for Fetch and ListOffsets."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.logs: dict[tuple[str, int], Log] = {}
        self._names = {topic.topic_id: name for name, topic in scripted.topics.items()}
        self.twist: Callable[[FetchRequest], Reply | None] = lambda request: None
        scripted.serve(ApiKey.FETCH, self.fetch)
        scripted.serve(ApiKey.LIST_OFFSETS, self.list_offsets)

    def __getitem__(self, partition: TopicPartition) -> Log:
        return self.logs.setdefault(partition, Log())

    async def fetch(self, request: FetchRequest, version: int) -> Reply:
        reply = self.twist(request)
        if reply is not None:
            return reply
        topics = []
        for topic in request.topics:
            name = topic.topic or self._names[topic.topic_id]
            data = tuple(
                self[TopicPartition(TopicName(name), each.partition)].fetch(
                    each, request.isolation_level
                )
                for each in topic.partitions
            )
            topics.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=data)
            )
        if not any(data.records or data.error_code for each in topics for data in each.partitions):
            await asyncio.sleep(0.001)
        return FetchResponse(responses=tuple(topics))

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                log = self[TopicPartition(topic.name, each.partition_index)]
                offset, timestamp = log.offset_of(each.timestamp, request.isolation_level)
                partitions.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=offset, timestamp=timestamp
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
        return ListOffsetsResponse(topics=tuple(topics))


def failing(request: FetchRequest, code: ErrorCode, **fields: object) -> FetchResponse:
    """Answer every partition of a request alike."""
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=each.partition, error_code=code, records=b""
                    ).replace(**fields)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


@asynccontextmanager
async def scene(
    *, brokers: int = 1, partitions: int = 1
) -> AsyncIterator[tuple[ScriptedCluster, Logs, Cluster]]:
    async with ScriptedCluster(brokers, topics={"t": partitions}) as scripted:
        logs = Logs(scripted)
        async with Cluster(
            scripted.bootstrap, CONFIG, host=SystemHost(rng=random.Random(4))
        ) as cluster:
            yield scripted, logs, cluster


async def read_all(
    cluster: Cluster, config: ConsumerConfig = EARLIEST, start: Start | None = None
) -> list[bytes | None]:
    async with Consumer(cluster, config) as consumer:
        await consumer.assign({T0: start or Beginning()}, stop_at_end=True)
        return [item.record.value async for item in consumer]


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_partition_is_read_to_its_end(version: int, codec: Codec) -> None:
    async def body() -> None:
        async with scene() as (scripted, logs, cluster):
            scripted[1].versions[ApiKey.FETCH] = (4, version)
            values = [b"%d" % number for number in range(30)]
            for start in range(0, 30, 3):
                logs[T0].write(*values[start : start + 3], codec=codec)
            assert await read_all(cluster) == values

    within(10, body())


def test_records_tell_where_they_come_from() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"a", b"b")
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()})
                item = await anext(consumer)
                assert (item.topic, item.partition, item.leader_epoch) == ("t", 0, EPOCH)
                assert item.timestamp_type is TimestampType.CREATE_TIME
                assert consumer.position(T0) == 1
                assert consumer.high_watermark(T0) == 2
                assert consumer.assignment == (T0,)

    within(10, body())


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Beginning(), 2),
        (End(), 10),
        (At(4), 4),
        (Since(45), 5),
        (Since(1000), 10),
        (Tail(3), 7),
        (Tail(300), 2),
    ],
)
def test_reading_begins_where_it_is_told_to(start: Start, expected: int) -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            for number in range(10):
                logs[T0].write(b"%d" % number)
            logs[T0].start = 2
            values = await read_all(cluster, start=start)
            assert values == [b"%d" % number for number in range(expected, 10)]

    within(10, body())


def test_records_before_the_offset_are_dropped_from_its_batch() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"0", b"1", b"2", b"3", codec=Codec.GZIP)
            assert await read_all(cluster, start=At(2)) == [b"2", b"3"]

    within(10, body())


def test_reading_stops_where_the_partition_ended_when_it_began() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"0", b"1")
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()}, stop_at_end=True)
                logs[T0].write(b"later")
                assert [item.record.value async for item in consumer] == [b"0", b"1"]
                assert consumer.is_done
                assert consumer.position(T0) == 2
                assert await consumer.poll(timeout_ms=1000) == []

    within(10, body())


def test_an_empty_partition_is_done_at_once() -> None:
    async def body() -> None:
        async with scene() as (scripted, _, cluster):
            assert await read_all(cluster) == []
            assert scripted.asked(ApiKey.FETCH) == []

    within(10, body())


def test_many_partitions_of_many_brokers_are_read_each_in_order() -> None:
    async def body() -> None:
        async with scene(brokers=3, partitions=7) as (_, logs, cluster):
            partitions = [TopicPartition(TopicName("t"), number) for number in range(7)]
            for partition in partitions:
                for number in range(20):
                    logs[partition].write(b"%d" % number, b"x")
            config = ConsumerConfig(max_partition_fetch_bytes=400)
            async with Consumer(cluster, config) as consumer:
                await consumer.assign(dict.fromkeys(partitions, Beginning()), stop_at_end=True)
                seen: dict[int, list[int]] = {}
                async for item in consumer:
                    seen.setdefault(item.partition, []).append(item.record.offset)
            assert seen == {number: list(range(40)) for number in range(7)}

    within(10, body())


def test_polling_waits_only_so_long_and_takes_only_so_many() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster), Consumer(cluster) as consumer:
            await consumer.assign({T0: End()})
            assert await consumer.poll(timeout_ms=20) == []
            logs[T0].write(*(b"%d" % number for number in range(10)))
            first = await consumer.poll(timeout_ms=5000, max_records=4)
            assert [item.record.offset for item in first] == [0, 1, 2, 3]
            rest = await consumer.poll(timeout_ms=5000)
            assert [item.record.offset for item in rest] == [4, 5, 6, 7, 8, 9]

    within(10, body())


def test_committed_reading_leaves_out_aborted_records_and_markers() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            log = logs[T0]
            log.write(b"plain")
            log.aborted.append((7, log.end))
            log.write(b"bad", b"bad", producer=7)
            log.write(b"good", producer=8)
            log.mark(7, commit=False)
            log.mark(8, commit=True)
            log.write(b"good again", producer=7)
            log.mark(7, commit=True)
            log.stable = log.end
            log.write(b"open", producer=9)
            committed = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
            assert await read_all(cluster, committed) == [b"plain", b"good", b"good again"]
            assert await read_all(cluster) == [
                b"plain",
                b"bad",
                b"bad",
                b"good",
                b"good again",
                b"open",
            ]

    within(10, body())


def test_a_partition_that_ends_with_a_marker_is_read_to_its_end() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"v", producer=7)
            logs[T0].mark(7, commit=True)
            assert await read_all(cluster) == [b"v"]

    within(10, body())


@pytest.mark.parametrize(
    ("policy", "expected"), [(OffsetReset.EARLIEST, [b"3", b"4"]), (OffsetReset.LATEST, [b"new"])]
)
def test_an_offset_out_of_range_is_reset_as_told(
    policy: OffsetReset, expected: list[bytes]
) -> None:
    async def body() -> None:
        async with scene() as (scripted, logs, cluster):
            for number in range(5):
                logs[T0].write(b"%d" % number)
            logs[T0].start = 3
            config = ConsumerConfig(auto_offset_reset=policy)
            async with Consumer(cluster, config) as consumer:
                await consumer.assign({T0: At(1)})
                task = asyncio.create_task(consumer.poll(timeout_ms=5000))
                await until(lambda: len(scripted.asked(ApiKey.FETCH)) > 1)
                if policy is OffsetReset.LATEST:
                    logs[T0].write(b"new")
                assert [item.record.value for item in await task] == expected

    within(10, body())


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"v")
            config = ConsumerConfig(auto_offset_reset=OffsetReset.NONE)
            async with Consumer(cluster, config) as consumer:
                await consumer.assign({T0: At(7)})
                with pytest.raises(KafkaError, match="offset 7 of t-0 is not in the log"):
                    await anext(consumer)
                await consumer.seek(T0, Beginning())
                assert (await anext(consumer)).record.value == b"v"

    within(10, body())


def test_a_log_that_was_cut_is_read_from_the_cut_on() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"0")
            logs[T0].write(b"1")
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()})
                assert len(await consumer.poll(timeout_ms=5000)) == 2
                told: list[int] = []

                def diverge(request: FetchRequest) -> Reply | None:
                    (partition,) = request.topics[0].partitions
                    if partition.last_fetched_epoch != EPOCH:
                        return None
                    told.append(partition.fetch_offset)
                    end = EpochEndOffset(epoch=4, end_offset=1)
                    return failing(request, ErrorCode.NONE, diverging_epoch=end)

                logs.twist = diverge
                again = await consumer.poll(timeout_ms=5000)
                assert [item.record.offset for item in again] == [1]
                assert set(told) == {2}

    within(10, body())


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, None]
)
def test_a_partition_that_moved_is_followed(code: ErrorCode | None) -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, logs, cluster):
            logs[T0].write(b"v")

            def moved(request: FetchRequest, version: int) -> Reply:
                scripted.topics["t"].leaders[0] = (2, 6)
                return HANG_UP if code is None else failing(request, code)

            scripted[1].serve(ApiKey.FETCH, moved)
            assert await read_all(cluster) == [b"v"]
            (request,) = scripted[2].asked(ApiKey.FETCH)
            assert request.topics[0].partitions[0].current_leader_epoch == 6

    within(10, body())


def test_an_error_that_stays_is_raised_and_reading_can_go_on() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"v")
            logs.twist = lambda request: failing(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()})
                with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: fetch of t-0"):
                    await anext(consumer)
                logs.twist = lambda request: None
                assert (await anext(consumer)).record.value == b"v"

    within(10, body())


def test_a_retriable_error_that_lasts_is_raised_in_the_end() -> None:
    async def body() -> None:
        async with scene() as (scripted, logs, _):
            logs.twist = lambda request: failing(request, ErrorCode.KAFKA_STORAGE_ERROR)
            config = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=2, api_timeout_ms=200)
            async with Cluster(scripted.bootstrap, config) as cluster, Consumer(cluster) as reader:
                await reader.assign({T0: At(0)})
                with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                    await anext(reader)
            assert len(scripted.asked(ApiKey.FETCH)) > 1

    within(10, body())


def test_a_spoilt_batch_is_told_after_the_good_ones_before_it() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"good")
            logs[T0].write(b"spoilt")
            logs[T0].data[-1] ^= 1
            logs[T0].write(b"good again")
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()})
                assert (await anext(consumer)).record.value == b"good"
                for _ in range(2):
                    with pytest.raises(KafkaError, match=r"CORRUPT_MESSAGE.*offsets 1 to 1"):
                        await anext(consumer)
                    assert consumer.position(T0) == 1
                await consumer.seek(T0, At(2))
                assert (await anext(consumer)).record.value == b"good again"

    within(10, body())


def test_records_that_grow_too_large_are_refused() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"0" * 100_000, codec=Codec.GZIP)
            config = ConsumerConfig(decompressed_bytes_max=1000)
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await read_all(cluster, config)

    within(10, body())


def test_a_batch_that_does_not_fit_into_an_answer_is_told() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            logs[T0].write(b"0" * 1000)
            with pytest.raises(KafkaError, match="raise max_partition_fetch_bytes"):
                await read_all(cluster, ConsumerConfig(max_partition_fetch_bytes=100))

    within(10, body())


def test_a_cut_batch_at_the_end_of_an_answer_is_fetched_again() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            for number in range(20):
                logs[T0].write(b"%d" % number)
            values = await read_all(cluster, ConsumerConfig(max_partition_fetch_bytes=200))
            assert values == [b"%d" % number for number in range(20)]

    within(10, body())


def test_seeking_forgets_what_was_fetched() -> None:
    async def body() -> None:
        async with scene() as (_, logs, cluster):
            for number in range(6):
                logs[T0].write(b"%d" % number)
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()})
                assert (await anext(consumer)).record.offset == 0
                await consumer.seek(T0, At(4))
                assert consumer.position(T0) == 4
                items = await consumer.poll(timeout_ms=5000)
                assert [item.record.offset for item in items] == [4, 5]

    within(10, body())


def test_a_new_assignment_replaces_the_old_one() -> None:
    async def body() -> None:
        async with scene(partitions=2) as (_, logs, cluster):
            second = TopicPartition(TopicName("t"), 1)
            logs[T0].write(b"0", b"0")
            logs[second].write(b"1")
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: Beginning()})
                assert (await anext(consumer)).partition == 0
                await consumer.assign({second: Beginning()}, stop_at_end=True)
                assert [item.partition async for item in consumer] == [1]
                await consumer.assign({T0: At(1)}, stop_at_end=True)
                assert [item.record.offset async for item in consumer] == [1]

    within(10, body())


def test_an_unknown_topic_is_told_soon() -> None:
    async def body() -> None:
        async with scene() as (_, _, cluster), Consumer(cluster) as consumer:
            unknown = TopicPartition(TopicName("nothing"), 0)
            for start in (Beginning(), At(3)):
                with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                    await consumer.assign({unknown: start})

    within(10, body())


def test_no_more_than_two_answers_a_partition_are_held() -> None:
    async def body() -> None:
        async with scene() as (scripted, logs, cluster):
            for number in range(10):
                logs[T0].write(b"%d" % number)
            config = ConsumerConfig(max_partition_fetch_bytes=1)
            async with Consumer(cluster, config) as consumer:
                await consumer.assign({T0: Beginning()})
                for expected in range(10):
                    assert (await anext(consumer)).record.offset == expected
                    asked = len(scripted.asked(ApiKey.FETCH))
                    for _ in range(20):
                        await asyncio.sleep(0)
                    assert len(scripted.asked(ApiKey.FETCH)) <= max(asked, expected + 2)

    within(10, body())


def test_a_closed_consumer_gives_nothing() -> None:
    async def body() -> None:
        async with scene() as (_, _, cluster):
            consumer = Consumer(cluster)
            await consumer.assign({T0: End()})
            task = asyncio.create_task(anext(consumer))
            await asyncio.sleep(0)
            await consumer.close()
            with pytest.raises(ClientClosed):
                await task

    within(10, body())


def test_a_leader_that_is_not_known_is_looked_for() -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, logs, cluster):
            logs[T0].write(b"v")
            scripted.topics["t"].leaders[0] = (-1, 6)
            async with Consumer(cluster) as consumer:
                await consumer.assign({T0: At(0)})
                task = asyncio.create_task(consumer.poll(timeout_ms=5000))
                await until(lambda: len(scripted.asked(ApiKey.METADATA)) > 3)
                scripted.topics["t"].leaders[0] = (2, 7)
                assert [item.record.value for item in await task] == [b"v"]
                assert cluster.metadata.leader(T0) == cluster.metadata.brokers[BrokerId(2)]

    within(10, body())


# Reading from followers (KIP-392)

LEADER, FOLLOWER = 1, 2


def sending_to(node_id: int) -> Callable[[FetchRequest, int], Reply]:
    """Name another replica to whoever asks."""
    return lambda request, version: failing(
        request, ErrorCode.NONE, preferred_read_replica=BrokerId(node_id), high_watermark=9
    )


def test_a_consumer_tells_its_rack_and_reads_from_the_replica_it_is_sent_to() -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, logs, cluster):
            logs[T0].write(b"a")
            logs[T0].write(b"b")
            scripted[LEADER].serve(ApiKey.FETCH, sending_to(FOLLOWER))
            config = ConsumerConfig(client_rack="here", max_partition_fetch_bytes=1)
            assert await read_all(cluster, config) == [b"a", b"b"]
            (asked,) = scripted[LEADER].asked(ApiKey.FETCH)
            assert asked.rack_id == "here"
            there = scripted[FOLLOWER].asked(ApiKey.FETCH)
            assert {each.topics[0].partitions[0].last_fetched_epoch for each in there} == {-1}

    within(10, body())


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        HANG_UP,
    ],
)
def test_whatever_fails_at_a_replica_is_asked_of_the_leader(error: Reply | ErrorCode) -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, logs, cluster):
            logs[T0].write(b"a")
            sent_on = 0

            async def lead(request: FetchRequest, version: int) -> Reply:
                nonlocal sent_on
                sent_on += 1
                if sent_on == 1:
                    return sending_to(FOLLOWER)(request, version)
                return await logs.fetch(request, version)

            scripted[LEADER].serve(ApiKey.FETCH, lead)
            scripted[FOLLOWER].serve(
                ApiKey.FETCH,
                lambda request, version: (
                    failing(request, error) if isinstance(error, ErrorCode) else error
                ),
            )
            # With no policy, an offset that is really gone would be an error.
            config = ConsumerConfig(client_rack="here", auto_offset_reset=OffsetReset.NONE)
            assert await read_all(cluster, config) == [b"a"]
            assert len(scripted[FOLLOWER].asked(ApiKey.FETCH)) == 1

    within(10, body())


def test_the_leader_is_asked_again_when_the_lease_of_a_replica_is_over() -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, logs, _):
            scripted[LEADER].serve(ApiKey.FETCH, sending_to(FOLLOWER))
            config = ClientConfig(metadata_max_age_ms=1)
            async with (
                Cluster(scripted.bootstrap, config) as cluster,
                Consumer(cluster, ConsumerConfig(client_rack="here")) as consumer,
            ):
                await consumer.assign({T0: Beginning()})
                await consumer.poll(timeout_ms=200)
                logs[T0].write(b"a")
                assert [each.record.value for each in await consumer.poll(timeout_ms=5_000)] == [
                    b"a"
                ]
            assert len(scripted[LEADER].asked(ApiKey.FETCH)) > 1

    within(10, body())


def test_a_replica_that_metadata_does_not_know_is_not_asked() -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, logs, cluster):
            logs[T0].write(b"a")
            asked = 0

            async def lead(request: FetchRequest, version: int) -> Reply:
                nonlocal asked
                asked += 1
                return (
                    await logs.fetch(request, version)
                    if asked > 1
                    else sending_to(77)(request, version)
                )

            scripted[LEADER].serve(ApiKey.FETCH, lead)
            assert await read_all(cluster, ConsumerConfig(client_rack="here")) == [b"a"]

    within(10, body())
