"""Reading ranges from leaders: brokers that go and come, answers that are short or empty."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from dohle.client import IsolationLevel, NewTopic
from dohle.client.admin.admin import Admin
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.records.builder import BatchBuilder
from dohle.spark.data_source import batch_reader, read_schema
from dohle.spark.source.fetching import look_at, read_range
from dohle.spark.source.options import Query, parse_source_options
from dohle.spark.source.splits import OffsetRange
from dohle.testing import Broker
from tests.client.scripted_broker import HANG_UP, Reply, ScriptedCluster, within
from tests.ports import free_port
from tests.spark.source.reading import Seen, ask, produce, read_batch

WANTED = OffsetRange(TopicName("t"), 0, "", 10, 20)
UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED


def _answer(**fields: Any) -> PartitionData:
    given = {"partition_index": 0, "error_code": 0, "high_watermark": 30, **fields}
    return PartitionData(last_stable_offset=given.pop("last_stable_offset", 25), **given)


def _batch(first: int, count: int) -> bytes:
    now_ms = int(time.time() * 1000)
    builder = BatchBuilder(base_offset=first)
    for _ in range(count):
        builder.append(now_ms, None, b"v")
    return bytes(builder.build())


def test_whole_batches_say_where_the_next_fetch_begins() -> None:
    records = _batch(8, 4) + _batch(12, 3) + _batch(15, 3)[:-1]
    aborted = (AbortedTransaction(producer_id=ProducerId(7), first_offset=9),)
    fetched = look_at(_answer(records=records, aborted_transactions=aborted), 10, WANTED, COMMITTED)

    assert fetched is not None
    assert (fetched.start, fetched.next_offset, fetched.aborted) == (10, 15, ((7, 9),))


def test_a_compacted_gap_is_stepped_over() -> None:
    fetched = look_at(_answer(records=_batch(17, 2)), 10, WANTED, UNCOMMITTED)

    assert fetched is not None
    assert fetched.next_offset == 19


@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED])
def test_nothing_where_all_of_the_range_can_be_seen_is_its_compacted_end(
    level: IsolationLevel,
) -> None:
    fetched = look_at(_answer(records=None), 15, WANTED, level)

    assert fetched is not None
    assert (bytes(fetched.data), fetched.next_offset) == (b"", 20)


def test_nothing_yet_is_waited_for() -> None:
    behind = _answer(records=b"", high_watermark=19, last_stable_offset=12)
    undecided = _answer(records=b"", high_watermark=30, last_stable_offset=12)

    assert look_at(behind, 15, WANTED, UNCOMMITTED) is None
    assert look_at(undecided, 15, WANTED, COMMITTED) is None
    assert look_at(undecided, 15, WANTED, UNCOMMITTED) is not None


def test_records_before_the_offset_that_was_asked_for_are_refused() -> None:
    with pytest.raises(KafkaError, match="records that end before 9"):
        look_at(_answer(records=_batch(8, 1)), 10, WANTED, UNCOMMITTED)


def test_each_partition_is_read_from_its_own_leader() -> None:
    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
    # Leaders are drawn: one of three may well lead all four partitions of one topic.
    topics = [f"t{number}" for number in range(5)]
    values = {(topic, at): f"{topic}/{at}".encode() for topic in topics for at in range(4)}
    for (topic, partition), value in values.items():
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0
    found = [producer.list_topics(topic, timeout=30) for topic in topics]
    brokers = ",".join(f"{each.host}:{each.port}" for each in found[0].brokers.values())
    options = {"kafka.bootstrap.servers": brokers, "subscribe": ",".join(topics)}
    reader = batch_reader(options, read_schema(options))
    rows: list[Any] = [row for each in reader.partitions() for row in reader.read(each)]

    partitions = [each.topics[topic].partitions for each, topic in zip(found, topics, strict=True)]
    assert len({one.leader for each in partitions for one in each.values()}) > 1
    assert sorted(row["value"].to_pylist() for row in rows) == [[each] for each in values.values()]


def _read_from_leader(answers: Iterable[tuple[bytes, int]]) -> tuple[list[int], list[int]]:
    """Read the range from a leader with these answers (records, high watermark) to its fetches.

    Return the offsets that were read, and those that it was asked for.
    """
    left = iter(answers)

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        records, high_watermark = next(left)
        data = _answer(records=records, high_watermark=high_watermark)
        (topic,) = request.topics
        partitions = FetchableTopicResponse(topic_id=topic.topic_id, partitions=(data,))
        return FetchResponse(responses=(partitions,))

    async def read() -> tuple[list[int], list[int]]:
        async with ScriptedCluster(topics={"t": 1}) as cluster:
            cluster.serve(ApiKey.FETCH, fetch)
            given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
            parsed = parse_source_options(given, Query.BATCH)
            batches = await asyncio.to_thread(lambda: [*read_range(WANTED, parsed)])
            asked = [
                each.topics[0].partitions[0].fetch_offset for each in cluster.asked(ApiKey.FETCH)
            ]
            return [row for batch in batches for row in batch["offset"].to_pylist()], asked

    return within(30, read())


@pytest.mark.parametrize("goodbye", [ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP])
def test_a_range_is_read_on_from_the_next_leader(goodbye: ErrorCode | Reply) -> None:
    """The leader moves to another live broker in the middle of a range, and has a new epoch."""

    async def read() -> tuple[list[int], list[tuple[int, int]]]:
        async with ScriptedCluster(2, topics={"t": 1}) as cluster:

            def fetch_of(broker: int) -> Callable[[FetchRequest, int], Reply]:
                def fetch(request: FetchRequest, version: int) -> Reply:
                    (asked,) = request.topics[0].partitions
                    leader, epoch = cluster.topics["t"].leaders[0]
                    if broker == leader and asked.current_leader_epoch == epoch:
                        if broker == 1:
                            cluster.topics["t"].leaders[0] = 2, epoch + 1
                        return answer(request, records=_batch(asked.fetch_offset, 5))
                    if goodbye is HANG_UP:
                        return HANG_UP
                    return answer(request, error_code=goodbye)

                return fetch

            for number in (1, 2):
                cluster[number].serve(ApiKey.FETCH, fetch_of(number))
            given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
            parsed = parse_source_options(given, Query.BATCH)
            batches = await asyncio.to_thread(lambda: [*read_range(WANTED, parsed)])
            got = [
                (number, each.topics[0].partitions[0].fetch_offset)
                for number in (1, 2)
                for each in cluster[number].asked(ApiKey.FETCH)
            ]
            return [row for batch in batches for row in batch["offset"].to_pylist()], got

    def answer(request: FetchRequest, **fields: Any) -> FetchResponse:
        topic_id = request.topics[0].topic_id
        partitions = FetchableTopicResponse(topic_id=topic_id, partitions=(_answer(**fields),))
        return FetchResponse(responses=(partitions,))

    rows, asked = within(30, read())
    assert rows == [*range(10, 20)]
    assert (1, 10) in asked
    assert asked[-1] == (2, 15)


def test_a_leader_that_has_its_records_elsewhere_is_asked_until_it_has_them() -> None:
    late = [(b"", 30), (_batch(29, 1), 30), (_batch(10, 4), 30), (_batch(14, 6), 30)]

    assert _read_from_leader(late) == ([*range(10, 20)], [10, 29, 10, 14])


def test_a_leader_that_has_nothing_up_to_its_end_is_believed() -> None:
    compacted = [(_batch(10, 4), 30), (b"", 30), (b"", 30)]

    assert _read_from_leader(compacted) == ([*range(10, 14)], [10, 14, 29])


def test_a_broker_that_goes_and_comes_back_is_read_on(tmp_path: Path) -> None:
    config = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}", "log.retention.ms": "-1"}

    async def create(admin: Admin) -> None:
        (await admin.create_topics([NewTopic(TopicName("t"), partitions=1)])).ok()

    with Broker(config, data=str(tmp_path)) as first:
        ask(first, create)
        produce(first, "t", [b"%d" % number for number in range(10)])
        before = read_batch(first, subscribe="t")
    read: list[Seen] = []
    reading = Thread(target=lambda: read.extend(read_batch(first, subscribe="t")))
    reading.start()
    with Broker(config, data=str(tmp_path)):
        reading.join(30)

    assert len(before) == 10
    assert read == before
