"""Stream reads against a real broker, called as Spark calls them: offsets, limits and losses."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from dohle.client import Admin
from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dohle.spark.data_source import read_schema, stream_reader
from dohle.spark.source.data_loss import DataLoss
from dohle.spark.source.offsets import StreamOffset
from dohle.testing import Broker
from tests.client.scripted_broker import ScriptedCluster, within
from tests.spark.conftest import NewTopicName
from tests.spark.source.reading import Engine, Seen, ask, delete_records, produce, recreate, values

RETRIES = "fetchOffset.numRetries"


def _numbers(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def _committed(broker: Broker, group_id: str) -> dict[TopicPartition, int]:
    async def question(admin: Admin) -> dict[TopicPartition, int]:
        found = (await admin.list_group_offsets(group_id)).ok()
        return {partition: place.offset for partition, place in found.items()}

    return ask(broker, question)


def test_a_stream_reads_what_is_there_and_then_what_comes(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")

    assert values(engine.next_batch()) == _numbers(0, 1)
    assert engine.next_batch() is None
    produce(broker, topic, _numbers(2))
    assert values(engine.next_batch()) == _numbers(2)
    assert engine.next_batch() is None


def test_a_replay_of_the_first_batch_reads_the_same_whatever_came_since(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")
    first = engine.next_batch()
    produce(broker, topic, _numbers(2))
    engine.through = 0
    engine.restart(startingOffsets="latest")

    assert engine.next_batch() == first
    assert values(engine.next_batch()) == _numbers(2)


def test_a_stream_that_begins_at_the_end_has_its_beginning_in_the_checkpoint(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic)

    assert engine.next_batch() == []
    engine.restart()
    produce(broker, topic, _numbers(2))
    engine.restart()
    assert values(engine.next_batch()) == _numbers(2)


def test_new_partitions_begin_at_their_first_record_also_in_a_replay(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, _numbers(0))
    engine = Engine(broker, subscribe=topic)
    engine.next_batch()

    async def add_partition(admin: Admin) -> None:
        (await admin.create_partitions({topic: 2})).ok()

    ask(broker, add_partition)
    produce(broker, topic, _numbers(1), partition=1)
    engine.restart()
    found = engine.next_batch()
    produce(broker, topic, _numbers(2), partition=1)
    engine.through -= 1
    engine.restart()

    assert values(found) == _numbers(1)
    assert engine.next_batch() == found
    assert values(engine.next_batch()) == _numbers(2)


def test_a_new_partition_whose_first_records_are_gone_fails_the_stream_or_is_told_of(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(broker, subscribe=topic)
    engine.next_batch()

    async def add_partition(admin: Admin) -> None:
        (await admin.create_partitions({topic: 2})).ok()

    ask(broker, add_partition)
    produce(broker, topic, _numbers(0, 1, 2), partition=1)
    delete_records(broker, topic, before=2, partition=1)
    engine.restart()
    with pytest.raises(DataLoss, match=f"{topic}-1 is new and begins at offset 2"):
        engine.next_batch()
    engine.restart(failOnDataLoss="false")

    assert values(engine.next_batch()) == _numbers(2)
    assert "is new and begins at offset 2" in caplog.text


def test_new_topics_of_a_pattern_are_found_by_a_running_stream(
    broker: Broker, new_topic: NewTopicName
) -> None:
    first = new_topic()
    produce(broker, first, _numbers(0))
    pattern = first.rpartition(".")[0].replace(".", r"\.") + r"\.\d+"
    engine = Engine(broker, subscribePattern=pattern, kafka__metadata__max__age__ms="1")
    engine.next_batch()
    produce(broker, new_topic(), _numbers(1))

    assert values(engine.next_batch()) == _numbers(1)


def test_a_batch_has_no_more_than_the_limit_and_batches_join_up(
    broker: Broker, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=2)
    produce(broker, topic, _numbers(*range(20)), partition=0)
    produce(broker, topic, _numbers(*range(20, 25)), partition=1)
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    limit = engine.reader.getDefaultReadLimit()
    sizes: list[int] = []
    read: list[Seen] = []
    while (batch := engine.next_batch(limit)) is not None:
        sizes.append(len(batch))
        read += batch

    assert limit == ReadMaxRows(10)
    assert sizes == [10, 10, 5]
    assert values(sorted(read)) == _numbers(*range(25))


def test_a_limit_counts_what_can_still_be_read(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(*range(20)))
    engine = Engine(
        broker,
        subscribe=topic,
        startingOffsets=f'{{"{topic}": {{"0": 0}}}}',
        failOnDataLoss="false",
    )
    delete_records(broker, topic, before=15)

    assert values(engine.next_batch(ReadMaxRows(2))) == _numbers(15, 16)


def test_that_nothing_of_a_limited_batch_is_left_is_told(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(*range(10)))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")
    engine.next_batch(ReadMaxRows(4))
    delete_records(broker, topic, before=10)

    with pytest.raises(DataLoss, match="offsets 4 to 9 should still be read"):
        engine.next_batch(ReadMaxRows(4))


def test_a_batch_waits_for_enough_records_but_not_for_ever(broker: Broker, topic: str) -> None:
    engine = Engine(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="3",
        maxTriggerDelay="1h",
    )
    limit = engine.reader.getDefaultReadLimit()
    engine.next_batch(limit)
    produce(broker, topic, _numbers(0, 1))
    too_few = engine.next_batch(limit)
    produce(broker, topic, _numbers(2))
    enough = engine.next_batch(limit)
    produce(broker, topic, _numbers(3))
    again_too_few = engine.next_batch(limit)
    engine.restart(maxTriggerDelay="0s")

    assert limit == ReadMinRows(3)
    assert (too_few, again_too_few) == (None, None)
    assert values(enough) == _numbers(0, 1, 2)
    assert values(engine.next_batch(limit)) == _numbers(3)


def test_all_that_is_available_ignores_the_least_and_the_most(broker: Broker, topic: str) -> None:
    engine = Engine(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="2",
        maxOffsetsPerTrigger="2",
    )
    engine.next_batch(ReadAllAvailable())
    produce(broker, topic, _numbers(0))

    assert values(engine.next_batch(ReadAllAvailable())) == _numbers(0)
    produce(broker, topic, _numbers(1, 2, 3))
    assert values(engine.next_batch(ReadAllAvailable())) == _numbers(1, 2, 3)


def test_available_now_ends_with_what_was_there_at_its_start(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0, 1, 2))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="100")
    assert isinstance(engine.reader, SupportsTriggerAvailableNow)
    engine.reader.prepareForTriggerAvailableNow()
    produce(broker, topic, _numbers(3))

    assert values(engine.next_batch(ReadMaxRows(2))) == _numbers(0, 1)
    assert values(engine.next_batch(ReadMaxRows(2))) == _numbers(2)
    assert engine.next_batch(ReadMaxRows(2)) is None
    engine.restart()
    assert values(engine.next_batch()) == _numbers(3)


def test_a_batch_is_split_over_tasks(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(*range(12)))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest", minPartitions="4")

    assert values(engine.next_batch()) == _numbers(*range(12))
    assert [(task.start, task.end) for task in engine.tasks(0)] == [(0, 3), (3, 6), (6, 9), (9, 12)]


def test_progress_is_committed_when_a_batch_is_through_and_not_before(
    broker: Broker, topic: str
) -> None:
    place = TopicPartition(TopicName(topic), 0)
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest", kafka__group__id=topic)
    engine.next_batch()
    planned = _committed(broker, topic)
    engine.through = 0  # it failed, and is run again after a restart
    engine.restart()
    engine.next_batch()
    run_again = _committed(broker, topic)
    nothing_new = engine.next_batch()

    assert (planned, run_again, nothing_new) == ({}, {}, None)
    assert _committed(broker, topic) == {place: 2}


def test_what_spark_reports_as_done_is_committed_too(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest", kafka__group__id=topic)
    end = engine.reader.latestOffset(engine.initial, ReadAllAvailable())
    engine.reader.commit(end)

    assert _committed(broker, topic) == {TopicPartition(TopicName(topic), 0): 2}


def test_a_group_that_others_are_in_does_not_stop_the_stream(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    member = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "group.protocol": "consumer"}
    )
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.1)
    produce(broker, topic, _numbers(0))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest", kafka__group__id=topic)
    engine.next_batch()
    with caplog.at_level(logging.WARNING, logger="dohle.spark"):
        assert engine.next_batch() is None
        assert engine.next_batch() is None
    member.close()

    assert caplog.text.count("is not visible under kafka.group.id") == 1


def test_deleted_records_fail_the_stream_or_are_told_of(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")
    engine.next_batch()
    produce(broker, topic, _numbers(2, 3, 4))
    delete_records(broker, topic, before=4)

    with pytest.raises(DataLoss, match="offsets 2 to 3 should still be read"):
        engine.next_batch()
    engine.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, logger="dohle.spark"):
        assert values(engine.next_batch()) == _numbers(4)
    assert "offsets 2 to 3 should still be read" in caplog.text
    assert engine.next_batch() is None


def test_a_topic_made_anew_fails_the_stream_or_begins_again(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")
    engine.next_batch()
    recreate(broker, topic)
    produce(broker, topic, _numbers(7, 8, 9))
    engine.restart()

    with pytest.raises(DataLoss, match="deleted and recreated"):
        engine.next_batch()
    engine.restart(failOnDataLoss="false")
    assert values(engine.next_batch()) == _numbers(7, 8, 9)
    assert "deleted and recreated" in caplog.text


def test_a_topic_that_is_gone_fails_the_stream_or_is_told_of_once(
    broker: Broker, new_topic: NewTopicName, caplog: pytest.LogCaptureFixture
) -> None:
    stays, goes = new_topic(), new_topic()
    engine = Engine(broker, subscribe=f"{stays},{goes}", startingOffsets="earliest")
    engine.next_batch()

    async def delete(admin: Admin) -> None:
        (await admin.delete_topics([goes])).ok()

    ask(broker, delete)
    produce(broker, stays, _numbers(0))
    engine.restart()
    with pytest.raises(DataLoss, match=f"{goes}-0 is gone"):
        engine.next_batch()
    engine.restart(failOnDataLoss="false")
    assert values(engine.next_batch()) == _numbers(0)
    assert engine.next_batch() is None
    assert caplog.text.count("is gone") == 1


def test_a_topic_that_is_subscribed_to_again_goes_on_where_it_was(
    broker: Broker, new_topic: NewTopicName
) -> None:
    stays, returns = new_topic(), new_topic()
    produce(broker, returns, _numbers(0, 1))
    both = f"{stays},{returns}"
    engine = Engine(broker, subscribe=both, startingOffsets="earliest", failOnDataLoss="false")
    engine.next_batch()
    engine.restart(subscribe=stays)
    without = engine.next_batch()
    engine.restart(subscribe=both)
    produce(broker, returns, _numbers(2))

    assert without == []
    assert values(engine.next_batch()) == _numbers(2)


def _planned_end(ends: Iterable[int], start: StreamOffset, **options: str) -> tuple[int, int]:
    """Return where a batch ends if a leader names these ends, and how often it is asked."""
    left = iter(ends)

    def list_offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        found = ListOffsetsPartitionResponse(partition_index=0, offset=next(left))
        topic = ListOffsetsTopicResponse(name=TopicName("t"), partitions=(found,))
        return ListOffsetsResponse(topics=(topic,))

    async def plan() -> tuple[int, int]:
        async with ScriptedCluster(topics={"t": 1}) as cluster:
            cluster.serve(ApiKey.LIST_OFFSETS, list_offsets)
            given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", **options}
            reader = stream_reader(given, read_schema(given))
            limit = ReadAllAvailable()
            form = await asyncio.to_thread(reader.latestOffset, start.to_json(), limit)
            return form["offsets"]["t"]["0"], len(cluster.asked(ApiKey.LIST_OFFSETS))

    return within(30, plan())


def test_a_log_that_seems_cut_for_a_moment_is_looked_at_again() -> None:
    start = StreamOffset({TopicPartition(TopicName("t"), 0): 7})

    assert _planned_end([5, 6, 9], start) == (9, 3)
    assert _planned_end([5, 5], start, failOnDataLoss="false", **{RETRIES: "1"}) == (5, 2)
    with pytest.raises(DataLoss, match="its log was truncated"):
        _planned_end([5, 5, 5, 5], start)


def test_a_stream_of_a_topic_that_does_not_exist_fails(broker: Broker) -> None:
    with pytest.raises(KafkaError, match="no such topic: nowhere"):
        Engine(broker, subscribe="nowhere").next_batch()


def test_a_start_behind_the_end_fails_the_stream_or_is_the_end(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0, 1))
    engine = Engine(broker, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 5}}}}')

    with pytest.raises(DataLoss, match=r"startingOffsets names offset 5 of .*, which ends at 2"):
        engine.next_batch()
    engine.restart(failOnDataLoss="false")
    assert engine.next_batch() == []
    produce(broker, topic, _numbers(2))
    assert values(engine.next_batch()) == _numbers(2)


def test_the_end_of_the_log_is_reported(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0, 1, 2))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")
    before = engine.reader.reportLatestOffset()
    engine.next_batch(ReadMaxRows(1))
    report = engine.reader.reportLatestOffset()

    assert before is None
    assert report is not None
    assert report["offsets"] == {topic: {"0": 3}}


def test_a_reader_is_pickled_to_workers_before_it_is_used(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0))
    engine = Engine(broker, subscribe=topic, startingOffsets="earliest")
    engine.reader = pickle.loads(pickle.dumps(engine.reader))

    assert values(engine.next_batch()) == _numbers(0)
