"""Records by columns: what ``consume_batches`` hands out is what the loop would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from dohle.client import (
    Admin,
    At,
    Beginning,
    Cluster,
    ColumnBatch,
    Consumer,
    ConsumerConfig,
    ConsumerInterceptor,
    NewTopic,
    OffsetReset,
    Producer,
    TopicPartition,
    sync,
)
from dohle.client.consumer import columns
from dohle.client.consumer.columns import column_batches
from dohle.client.consumer.fetched import FetchedRecords, PartitionReader
from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import PartitionData
from dohle.records.builder import BatchBuilder
from dohle.records.errors import CorruptBatch
from tests.client.scripted_broker import within

COUNT = 3000


async def filled(cluster: Cluster, topic: str, codec: str = "none") -> TopicPartition:
    """Write some records, of which some have no key, no value, or a header."""
    (await Admin(cluster).create_topics([NewTopic(topic, partitions=1)])).ok()
    async with Producer(cluster, codec=codec, batch_size=4096) as producer:
        for number in range(COUNT):
            await producer.send_soon(
                topic,
                None if number % 7 == 0 else b"value %d" % number,
                key=None if number % 5 == 0 else b"key %d" % number,
                timestamp=1000 + number,
                headers=[("n", b"%d" % number)] if number % 3 == 0 else (),
            )
    return TopicPartition(TopicName(topic), 0)


def rows_of(batches: Sequence[ColumnBatch]) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in zip(*batch[2:], strict=True)]


def rows_of_arrow(batches: Sequence[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [
        (
            row["offset"],
            int(row["timestamp"].timestamp() * 1000 + 0.5),
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for batch in batches
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_columns_and_arrow_have_what_the_records_have(
    own_bootstrap: str, topic: str, codec: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster, Consumer(cluster) as consumer:
            partition = await filled(cluster, topic, codec)
            await consumer.assign({partition: At(10)}, stop_at_end=True)
            records = [
                (each.offset, each.timestamp, each.key, each.value, each.headers)
                async for each in consumer
            ]
            await consumer.assign({partition: At(10)}, stop_at_end=True)
            batches = [batch async for batch in consumer.consume_batches()]
            assert {(batch.topic, batch.partition) for batch in batches} == {partition}
            assert consumer.position(partition) == COUNT
            await consumer.assign({partition: At(10)}, stop_at_end=True)
            arrow = [each async for each in consumer.consume_batches(arrow=True, headers=True)]
            assert consumer.position(partition) == COUNT
        assert len(records) == COUNT - 10
        assert rows_of(batches) == records
        assert rows_of_arrow(arrow) == records
        assert len(batches) < 100, "many records at a time"

    within(60, body())


@pytest.mark.parametrize("arrow", [False, True])
def test_a_batch_counts_as_read_when_the_next_one_is_asked_for(
    own_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    monkeypatch.setattr(columns, "ROWS_MAX", 100)

    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            partition = await filled(cluster, topic)
            config = ConsumerConfig(group_id=topic, auto_offset_reset=OffsetReset.EARLIEST)
            seen: list[int] = []
            for _ in range(3):
                async with Consumer(cluster, config) as consumer:
                    await consumer.subscribe([topic], stop_at_end=True)
                    if arrow:
                        async for rows in consumer.consume_batches(arrow=True):
                            seen += rows.column("offset").to_pylist()
                            break
                    else:
                        async for batch in consumer.consume_batches():
                            seen += batch.offsets
                            break
                    # It is committed at the end, so that the next one goes on behind it.
            assert seen == [*range(len(seen))]
            assert seen
            found = await Consumer(cluster, config).committed([partition])
            assert found[partition].offset == len(seen)

    within(60, body())


def test_one_may_change_between_records_and_batches_without_a_gap(
    own_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "ROWS_MAX", 50)

    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster, Consumer(cluster) as consumer:
            partition = await filled(cluster, topic)
            await consumer.assign({partition: Beginning()}, stop_at_end=True)
            seen: list[int] = []
            while not consumer.is_done:
                async for record in consumer:
                    seen.append(record.offset)
                    if len(seen) % 7 == 0:
                        break
                async for batch in consumer.consume_batches():
                    seen += batch.offsets
                    break
                seen += [each.offset for each in await consumer.poll(max_records=3)]
                async for rows in consumer.consume_batches(arrow=True):
                    seen += rows.column("offset").to_pylist()
                    break
            assert seen == [*range(COUNT)]

    within(60, body())


def test_the_other_face_hands_out_batches_and_forgets_no_record_in_hand(
    own_bootstrap: str, topic: str
) -> None:
    async def fill() -> None:
        async with Cluster(own_bootstrap) as cluster:
            await filled(cluster, topic)

    within(30, fill())
    partition = TopicPartition(TopicName(topic), 0)
    with sync.Consumer(own_bootstrap) as consumer:
        consumer.assign({partition: Beginning()}, stop_at_end=True)
        # The loop has taken more than this one.
        seen = [next(consumer).offset]
        for batch in consumer.consume_batches():
            seen += batch.offsets
        assert seen == [*range(COUNT)]
        consumer.seek(partition, At(COUNT - 5))
        (rows,) = consumer.consume_batches(arrow=True)
        assert rows.column("offset").to_pylist() == [*range(COUNT - 5, COUNT)]


def test_aborted_transactions_are_left_out(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (await Admin(cluster).create_topics([NewTopic(topic, partitions=1)])).ok()
            async with Producer(cluster, transactional_id=topic) as producer:
                await producer.init_transactions()
                for word in (b"a", b"b", b"c"):
                    producer.begin_transaction()
                    await producer.send_soon(topic, word)
                    if word == b"b":
                        await producer.flush()
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
            partition = TopicPartition(TopicName(topic), 0)
            async with Consumer(cluster, isolation_level="read_committed") as consumer:
                await consumer.assign({partition: Beginning()}, stop_at_end=True)
                values = [v async for batch in consumer.consume_batches() for v in batch.values]
                assert values == [b"a", b"c"]
                await consumer.assign({partition: Beginning()}, stop_at_end=True)
                values = []
                async for rows in consumer.consume_batches(arrow=True):
                    values += rows.column("value").to_pylist()
                assert values == [b"a", b"c"]

    within(60, body())


def test_what_comes_before_a_damaged_batch_is_handed_out_before_its_error() -> None:
    good, bad = (batch_of(start) for start in (0, 3))
    bad[-1] ^= 1
    reader = PartitionReader(TopicPartition(TopicName("t"), 0), 1)
    fetched = FetchedRecords(reader, PartitionData(records=bytes(good + bad)))
    batches = column_batches(fetched, ConsumerConfig())
    assert next(batches).offsets == (1, 2)
    assert reader.position == 3
    with pytest.raises(CorruptBatch):
        next(batches)
    assert reader.position == 3


def batch_of(start: int) -> bytearray:
    builder = BatchBuilder(base_offset=start)
    for number in range(3):
        builder.append(number, None, b"value")
    return builder.build()


def test_who_wants_values_that_are_not_bytes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        for settings in ({"value_deserializer": "str"}, {"interceptors": ConsumerInterceptor()}):
            async with Consumer("127.0.0.1:1", **settings) as consumer:
                with pytest.raises(ValueError, match="without deserializers and interceptors"):
                    consumer.consume_batches()
        monkeypatch.setattr(columns, "find_spec", lambda name: None)
        async with Consumer("127.0.0.1:1") as consumer:
            with pytest.raises(ModuleNotFoundError, match="need pyarrow: install it"):
                consumer.consume_batches(arrow=True)
            consumer.consume_batches()

    within(20, body())
