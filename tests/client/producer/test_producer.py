"""The producer against brokers that refuse, fall silent, hang up and change leaders."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ProducerConfig
from dohle.client.errors import ClientClosed, TimedOut
from dohle.client.producer.partitioner import partition_of_key
from dohle.client.producer.producer import Producer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId, ProducerId, TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsResponse
from dohle.protocol.messages.init_producer_id import InitProducerIdResponse
from dohle.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.records.compression.codecs import Codec
from tests.client.group.model_log import ModelPartitions, refusing
from tests.client.scripted_broker import (
    HANG_UP,
    SILENCE,
    Reply,
    ScriptedCluster,
    until,
    within,
)

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4)
PLAIN = ProducerConfig(enable_idempotence=False, acks=1, linger_ms=0)

Twist = Callable[[ProduceRequest, int], Reply | None]


@asynccontextmanager
async def scene(
    twist: Twist | None = None, *, brokers: int = 1, partitions: int = 1
) -> AsyncIterator[tuple[ScriptedCluster, ModelPartitions, Cluster]]:
    """A cluster that appends what it gets, unless the twist answers something else."""
    model = ModelPartitions()

    def produce(request: ProduceRequest, version: int) -> Reply:
        reply = twist(request, version) if twist else None
        return model.produce(request, version) if reply is None else reply

    async with ScriptedCluster(brokers, topics={"t": partitions}) as scripted:
        scripted.serve(ApiKey.PRODUCE, produce)
        scripted.serve(ApiKey.INIT_PRODUCER_ID, model.init_producer_id)
        async with Cluster(
            scripted.bootstrap, CONFIG, host=SystemHost(rng=random.Random(4))
        ) as cluster:
            yield scripted, model, cluster


def in_turn(*twists: Callable[[ProduceRequest], Reply | None]) -> Twist:
    """Answer the first requests in these ways, and the rest as usual."""
    left = list(twists)
    return lambda request, version: left.pop(0)(request) if left else None


def usual(request: ProduceRequest) -> None:
    return None


def refuse(code: ErrorCode) -> Callable[[ProduceRequest], Reply]:
    return lambda request: refusing(request, code)


def test_records_get_consecutive_offsets_and_their_timestamps() -> None:
    async def body() -> None:
        async with scene() as (_, model, cluster), Producer(cluster) as producer:
            futures = [await producer.send_soon("t", b"%d" % n, timestamp=n) for n in range(100)]
            await producer.flush()
            results = [future.result() for future in futures]
            assert [result.offset for result in results] == list(range(100))
            assert [result.timestamp for result in results] == list(range(100))
            assert model.log("t").values == [b"%d" % n for n in range(100)]

    within(10, body())


def test_records_with_a_key_go_to_its_partition() -> None:
    async def body() -> None:
        async with scene(partitions=7, brokers=3) as (_, model, cluster):
            async with Producer(cluster) as producer:
                futures = [await producer.send_soon("t", None, key=b"%d" % n) for n in range(50)]
            for number, future in enumerate(futures):
                result = future.result()
                key = b"%d" % number
                assert result.partition == partition_of_key(key, 7)
                assert model.log("t", result.partition).records[result.offset].key == key

    within(10, body())


def test_a_given_partition_is_used_and_one_that_does_not_exist_refused() -> None:
    async def body() -> None:
        async with scene(partitions=2) as (scripted, model, cluster):
            async with Producer(cluster) as producer:
                await producer.send_soon("t", b"v", key=b"k", partition=1)
                with pytest.raises(KafkaError, match="t has 2 partitions and no partition 2"):
                    await producer.send_soon("t", b"v", partition=2)
                scripted.topics["t"].leaders.append((1, 0))
                await producer.send_soon("t", b"new", partition=2)
            assert model.log("t", 1).values == [b"v"]
            assert model.log("t", 2).values == [b"new"]

    within(10, body())


def test_records_without_a_key_fill_one_batch_after_the_other() -> None:
    async def body() -> None:
        async with scene(partitions=4) as (_, model, cluster):
            config = ProducerConfig(batch_size=2000, linger_ms=60_000)
            async with Producer(cluster, config) as producer:
                for number in range(400):
                    await producer.send_soon("t", b"%050d" % number)
            batches = [batch for log in model.logs.values() for batch in log.batches]
            assert len(model.logs) == 4
            assert sum(batch.record_count for batch in batches) == 400
            assert all(batch.size <= 2000 for batch in batches)
            # All but the last are as full as they can be.
            assert sorted(batch.record_count for batch in batches)[1:2] >= [25]

    within(10, body())


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_compressed_as_told(codec: Codec) -> None:
    async def body() -> None:
        async with scene() as (_, model, cluster):
            config = ProducerConfig(codec=codec)
            async with Producer(cluster, config) as producer:
                await producer.send_soon("t", b"a" * 5000, headers=[("h", b"1"), ("n", None)])
            (batch,) = model.log("t").batches
            assert batch.compression is codec
            (record,) = batch
            assert record.value == b"a" * 5000
            assert record.headers == (("h", b"1"), ("n", None))

    within(10, body())


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_older_and_newer_brokers_are_served_alike(version: int) -> None:
    async def body() -> None:
        async with scene() as (scripted, model, cluster):
            scripted[1].versions[ApiKey.PRODUCE] = (3, version)
            async with Producer(cluster) as producer:
                future = await producer.send_soon("t", b"v")
            assert future.result().offset == 0
            assert model.log("t").values == [b"v"]

    within(10, body())


@pytest.mark.parametrize("turns", range(6))
def test_requests_leave_in_order_while_a_connection_opens(turns: int) -> None:
    """Some records come so many turns of the loop after the broker begins to answer."""

    async def body() -> None:
        async with scene(brokers=2, partitions=2) as (scripted, model, cluster):
            gate = asyncio.Event()

            async def hesitate(request: object, version: int) -> Reply:
                await gate.wait()
                return ApiVersionsResponse(api_keys=scripted[2].api_keys())

            scripted[2].serve(ApiKey.API_VERSIONS, hesitate)
            config = ProducerConfig(linger_ms=0, batch_size=100)
            async with Producer(cluster, config) as producer:
                for number in range(5):
                    if number == 2:
                        await until(lambda: bool(scripted[2].asked(ApiKey.API_VERSIONS)))
                        gate.set()
                        for _ in range(turns):
                            await asyncio.sleep(0)
                    await producer.send_soon("t", b"%090d" % number, partition=1)
            assert model.log("t", 1).values == [b"%090d" % number for number in range(5)]
            # None was out of sequence, so none was sent twice.
            assert len(scripted[2].asked(ApiKey.PRODUCE)) == 5

    within(10, body())


def test_a_new_leader_is_found_and_order_kept() -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, model, cluster):
            moved = asyncio.Event()

            def not_leader(request: ProduceRequest, version: int) -> Reply:
                scripted.topics["t"].leaders[0] = (2, 6)
                moved.set()
                return refusing(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

            scripted[1].serve(ApiKey.PRODUCE, not_leader)
            async with Producer(cluster, ProducerConfig(batch_size=200, linger_ms=0)) as producer:
                futures = [await producer.send_soon("t", b"%0100d" % n) for n in range(50)]
                await producer.flush()
            assert moved.is_set()
            assert model.log("t").values == [b"%0100d" % n for n in range(50)]
            assert [future.result().offset for future in futures] == list(range(50))

    within(10, body())


def test_a_new_leader_that_the_error_names_needs_no_metadata() -> None:
    async def body() -> None:
        async with scene(brokers=2) as (scripted, model, cluster):
            address = scripted[2].address

            def not_leader(request: ProduceRequest, version: int) -> Reply:
                reply = refusing(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                (topic,) = reply.responses
                (partition,) = topic.partition_responses
                leader = LeaderIdAndEpoch(leader_id=BrokerId(2), leader_epoch=6)
                partition = partition.replace(current_leader=leader)
                return reply.replace(
                    responses=(topic.replace(partition_responses=(partition,)),),
                    node_endpoints=(
                        NodeEndpoint(node_id=BrokerId(2), host=address.host, port=address.port),
                    ),
                )

            scripted[1].serve(ApiKey.PRODUCE, not_leader)
            async with Producer(cluster) as producer:
                await producer.send_soon("t", b"v")
            assert model.log("t").values == [b"v"]
            assert len(scripted[1].asked(ApiKey.PRODUCE)) == 1

    within(10, body())


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_connection_lost_after_the_write_doubles_records_only_without_idempotence(
    idempotent: bool,
) -> None:
    async def body() -> None:
        model = ModelPartitions()

        def write_and_hang_up(request: ProduceRequest) -> Reply:
            model.produce(request, 9)
            return HANG_UP

        twist = in_turn(usual, write_and_hang_up, write_and_hang_up)

        def produce(request: ProduceRequest, version: int) -> Reply:
            return twist(request, version) or model.produce(request, version)

        async with scene() as (scripted, _, cluster):
            scripted.serve(ApiKey.PRODUCE, produce)
            scripted.serve(ApiKey.INIT_PRODUCER_ID, model.init_producer_id)
            config = ProducerConfig(linger_ms=0) if idempotent else PLAIN
            async with Producer(cluster, config) as producer:
                for number in range(3):
                    future = await producer.send_soon("t", b"%d" % number)
                    await future
            doubled = [b"0", b"1", b"1", b"1", b"2"]
            assert model.log("t").values == ([b"0", b"1", b"2"] if idempotent else doubled)

    within(10, body())


def test_order_is_kept_when_the_first_of_several_requests_fails() -> None:
    async def body() -> None:
        twist = in_turn(usual, refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
        async with scene(twist) as (scripted, model, cluster):
            config = ProducerConfig(linger_ms=0, batch_size=100)
            async with Producer(cluster, config) as producer:
                futures = [await producer.send_soon("t", b"%090d" % n) for n in range(20)]
                await producer.flush()
            assert model.log("t").values == [b"%090d" % n for n in range(20)]
            assert [future.result().offset for future in futures] == list(range(20))
            assert len(scripted.asked(ApiKey.PRODUCE)) > 20

    within(10, body())


def test_a_lost_sequence_fails_one_batch_and_goes_on_in_a_new_epoch() -> None:
    async def body() -> None:
        twist = in_turn(usual, refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        async with scene(twist) as (_, model, cluster):
            async with Producer(cluster) as producer:
                await (await producer.send_soon("t", b"0"))
                lost = await producer.send_soon("t", b"1")
                with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER: t-0"):
                    await lost
                assert (await (await producer.send_soon("t", b"2"))).offset == 1
                assert (await (await producer.send_soon("t", b"3"))).offset == 2
            seen = [(each.producer_epoch, each.base_sequence) for each in model.log("t").batches]
            assert seen == [(0, 0), (1, 0), (1, 1)]
            assert model.producer_ids == 1

    within(10, body())


def test_an_error_that_stays_is_told_with_what_the_broker_says() -> None:
    async def body() -> None:
        def reject(request: ProduceRequest) -> ProduceResponse:
            (topic,) = request.topic_data
            errors = (
                BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="has no key"),
            )
            partition = PartitionProduceResponse(
                index=0,
                error_code=ErrorCode.INVALID_RECORD,
                record_errors=errors,
                error_message="one bad record",
            )
            return ProduceResponse(
                responses=(
                    TopicProduceResponse(
                        name=topic.name, topic_id=topic.topic_id, partition_responses=(partition,)
                    ),
                )
            )

        async with scene(in_turn(reject)) as (scripted, _, cluster):
            async with Producer(cluster) as producer:
                future = await producer.send_soon("t", b"v")
                with pytest.raises(KafkaError) as caught:
                    await future
                text = "INVALID_RECORD: t-0: one bad record; record 0: has no key"
                assert str(caught.value) == text
                await (await producer.send_soon("t", b"next"))
            assert len(scripted.asked(ApiKey.PRODUCE)) == 2

    within(10, body())


def test_with_acks_0_nobody_waits_for_an_answer() -> None:
    async def body() -> None:
        async with scene() as (scripted, model, cluster):

            def swallow(request: ProduceRequest, version: int) -> Reply:
                model.produce(request, version)
                return SILENCE

            scripted.serve(ApiKey.PRODUCE, swallow)
            config = ProducerConfig(acks=0, enable_idempotence=False)
            async with Producer(cluster, config) as producer:
                futures = [await producer.send_soon("t", b"%d" % n) for n in range(10)]
                await producer.flush()
                assert {future.result().offset for future in futures} == {-1}
            await until(lambda: len(model.log("t").records) == 10)
            assert all(request.acks == 0 for request in scripted.asked(ApiKey.PRODUCE))

    within(10, body())


def test_what_cannot_be_delivered_in_time_fails() -> None:
    async def body() -> None:
        async with scene(lambda request, version: SILENCE) as (_, _, cluster):
            config = ProducerConfig(delivery_timeout_ms=50, linger_ms=0)
            producer = Producer(cluster, config)
            sent = await producer.send_soon("t", b"in flight")
            with pytest.raises(TimedOut, match="t-0 could not be delivered within 50 ms"):
                await sent
            await producer.close(flush=False)
        async with scene() as (scripted, _, cluster):
            scripted.topics["t"].leaders[0] = (-1, 6)
            async with Producer(cluster, config) as producer:
                waiting = await producer.send_soon("t", b"without a leader")
                with pytest.raises(TimedOut):
                    await waiting
            assert scripted.asked(ApiKey.PRODUCE) == []

    within(10, body())


def test_a_full_buffer_makes_senders_wait() -> None:
    async def body() -> None:
        gate = asyncio.Event()
        async with scene() as (scripted, model, cluster):

            async def slow(request: ProduceRequest, version: int) -> Reply:
                await gate.wait()
                return model.produce(request, version)

            scripted.serve(ApiKey.PRODUCE, slow)
            config = ProducerConfig(buffer_memory=1000, linger_ms=10_000)
            async with Producer(cluster, config) as producer:
                for _ in range(2):
                    await producer.send_soon("t", b"v" * 350)
                third = asyncio.create_task(producer.send_soon("t", b"third" * 70))
                # That somebody waits makes the rest go out before it has lingered.
                await until(lambda: bool(scripted.asked(ApiKey.PRODUCE)))
                assert not third.done()
                gate.set()
                await third
            assert len(model.log("t").records) == 3

    within(10, body())


def test_waiting_for_room_has_an_end() -> None:
    async def body() -> None:
        async with scene(lambda request, version: SILENCE) as (_, _, cluster):
            await cluster.topic(TopicName("t"))
            producer = Producer(cluster, ProducerConfig(buffer_memory=600, max_block_ms=30))
            first = await producer.send_soon("t", b"v" * 400)
            with pytest.raises(TimedOut, match="not accepted within 30 ms"):
                await producer.send_soon("t", b"v" * 400)
            await producer.close(flush=False)
            with pytest.raises(ClientClosed, match="before the records were delivered"):
                await first

    within(10, body())


def test_a_topic_that_never_appears_is_waited_for_only_so_long() -> None:
    async def body() -> None:
        async with scene() as (scripted, _, cluster):
            async with Producer(cluster, ProducerConfig(max_block_ms=200)) as producer:
                with pytest.raises(
                    TimedOut, match=r"a record for nothing is not accepted.*UNKNOWN_TOPIC"
                ):
                    await producer.send_soon("nothing", b"v")
            asked = [request for request in scripted.asked(ApiKey.METADATA) if request.topics]
            assert all(request.allow_auto_topic_creation for request in asked)
            assert len(asked) > 1

    within(10, body())


def test_a_record_that_is_too_large_is_refused_at_once() -> None:
    async def body() -> None:
        async with scene() as (scripted, _, cluster):
            async with Producer(cluster, ProducerConfig(max_request_size=1000)) as producer:
                with pytest.raises(KafkaError, match=r"MESSAGE_TOO_LARGE.*raise max_request_size"):
                    await producer.send_soon("t", b"v" * 1000)
            assert scripted.asked(ApiKey.PRODUCE) == []

    within(10, body())


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    async def body() -> None:
        async with scene() as (_, model, cluster):
            config = ProducerConfig(batch_size=100, max_request_size=1 << 21)
            async with Producer(cluster, config) as producer:
                for size in (10, 1 << 20, 10):
                    await producer.send_soon("t", b"v" * size)
            assert [batch.record_count for batch in model.log("t").batches] == [1, 1, 1]

    within(10, body())


def test_requests_stay_below_their_largest_size() -> None:
    async def body() -> None:
        async with scene(partitions=10) as (scripted, model, cluster):
            config = ProducerConfig(batch_size=500, max_request_size=1200, linger_ms=20)
            async with Producer(cluster, config) as producer:
                for number in range(100):
                    await producer.send_soon("t", b"v" * 100, partition=number % 10)
            sizes = [
                sum(len(data.records or b"") for data in request.topic_data[0].partition_data)
                for request in scripted.asked(ApiKey.PRODUCE)
            ]
            assert max(sizes) <= 1200
            assert sum(len(log.records) for log in model.logs.values()) == 100

    within(10, body())


def test_lingering_gathers_records_and_flushing_ends_it() -> None:
    async def body() -> None:
        async with scene() as (scripted, model, cluster):
            async with Producer(cluster, ProducerConfig(linger_ms=60_000)) as producer:
                for number in range(10):
                    await producer.send_soon("t", b"%d" % number)
                    await asyncio.sleep(0)
                assert scripted.asked(ApiKey.PRODUCE) == []
                await producer.flush()
            assert [batch.record_count for batch in model.log("t").batches] == [10]

    within(10, body())


def test_no_producer_id_fails_the_records_unless_another_try_may_help() -> None:
    async def body() -> None:
        codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        async with scene() as (scripted, _, cluster):

            def refuse_twice(request: object, version: int) -> Reply:
                if codes:
                    return InitProducerIdResponse(error_code=codes.pop(0))
                return InitProducerIdResponse(producer_id=ProducerId(1), producer_epoch=0)

            scripted.serve(ApiKey.INIT_PRODUCER_ID, refuse_twice)
            async with Producer(cluster, ProducerConfig(linger_ms=0)) as producer:
                with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED: no producer"):
                    await (await producer.send_soon("t", b"v"))

    within(10, body())


def test_a_cancelled_future_does_not_disturb_the_others() -> None:
    async def body() -> None:
        async with scene() as (_, model, cluster):
            async with Producer(cluster, ProducerConfig(linger_ms=60_000)) as producer:
                first = await producer.send_soon("t", b"0")
                second = await producer.send_soon("t", b"1")
                first.cancel()
                await producer.flush()
                assert second.result().offset == 1
            assert model.log("t").values == [b"0", b"1"]

    within(10, body())


def test_a_closed_producer_takes_no_records() -> None:
    async def body() -> None:
        async with scene() as (_, _, cluster):
            async with Producer(cluster) as producer:
                pass
            with pytest.raises(ClientClosed, match="the producer is closed"):
                await producer.send_soon("t", b"v")

    within(10, body())


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="an idempotent producer needs acks=-1"):
        ProducerConfig(acks=1)
    with pytest.raises(ValueError, match="acks is 2"):
        ProducerConfig(acks=2, enable_idempotence=False)
    with pytest.raises(ValueError, match="at most 5 requests in flight"):
        ProducerConfig(max_in_flight_requests=6)
    with pytest.raises(ValueError, match="buffer_memory is 0"):
        ProducerConfig(buffer_memory=0)
