"""Batch reads against a real broker, without Spark: every option, and what cannot be read."""

from __future__ import annotations

import json
import logging
import time

import pytest
from pyspark.sql.types import StructType

from dohle.core.errors import KafkaError
from dohle.spark.data_source import batch_reader
from dohle.spark.options import OptionError
from dohle.spark.source.data_loss import DataLoss
from dohle.spark.source.fetching import read_range
from dohle.spark.source.options import Query, parse_source_options
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName
from tests.spark.source.reading import (
    Seen,
    consume,
    delete_records,
    options_of,
    planned,
    produce,
    read_batch,
    recreate,
    transactional,
    values,
)

NOW_MS = int(time.time() * 1000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _numbers(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def _offsets(topic: str, offsets: dict[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


@pytest.mark.parametrize("codec", CODECS)
def test_values_of_every_codec_are_those_that_kafka_s_client_reads(
    broker: Broker, topic: str, codec: str
) -> None:
    config = {"compression.type": codec}
    produce(broker, topic, [b"x" * 500, b"", None], key=b"k", config=config)
    produce(broker, topic, [b"y" * 500], headers=[("a", b"1"), ("b", None)], config=config)
    expected = consume(broker, [topic], "read_committed")

    assert read_batch(broker, subscribe=topic, includeHeaders="true") == expected
    assert read_batch(broker, subscribe=topic) == [row._replace(headers=None) for row in expected]


def test_markers_and_aborted_records_are_left_out_under_read_committed(
    broker: Broker, topic: str
) -> None:
    producer = transactional(broker, topic)
    for outcome in ("abort", "commit", "abort", "commit", "abort"):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"%s %d" % (outcome.encode(), number), partition=0)
        if outcome == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    expected = consume(broker, [topic], "read_committed")
    committed = {"isolation__level": "read_committed", "subscribe": topic}

    assert values(expected) == [b"commit 0", b"commit 1", b"commit 2"] * 2
    assert read_batch(broker, **committed) == expected
    assert read_batch(broker, **committed, maxRecordsPerPartition="1") == expected
    assert read_batch(broker, subscribe=topic) == consume(broker, [topic], "read_uncommitted")


def test_an_open_transaction_ends_what_is_committed(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(0, 1))
    producer = transactional(broker, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)

    assert len(read_batch(broker, subscribe=topic, kafka__isolation__level="read_committed")) == 2
    assert len(read_batch(broker, subscribe=topic)) == 3
    producer.abort_transaction(30)


def test_topics_are_named_matched_or_assigned(broker: Broker, new_topic: NewTopicName) -> None:
    first, second = new_topic(partitions=2), new_topic()
    produce(broker, first, _numbers(0), partition=0)
    produce(broker, first, _numbers(1), partition=1)
    produce(broker, second, _numbers(2))
    pattern = first.rpartition(".")[0].replace(".", r"\.")

    def read(**options: str) -> list[bytes]:
        return sorted(row.value or b"" for row in read_batch(broker, **options))

    assert read(subscribe=f"{first},{second}") == _numbers(0, 1, 2)
    assert read(subscribePattern=pattern + r"\.\d+") == _numbers(0, 1, 2)
    assert read(subscribePattern=pattern) == []
    assert read(assign=json.dumps({first: [1], second: [0]})) == _numbers(1, 2)


def test_reading_begins_and_ends_at_the_offsets_that_are_named(
    broker: Broker, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=2)
    produce(broker, topic, _numbers(*range(10)), partition=0)
    produce(broker, topic, _numbers(*range(10, 14)), partition=1)

    def read(start: dict[int, int], end: dict[int, int]) -> list[bytes | None] | None:
        return values(
            read_batch(
                broker,
                subscribe=topic,
                startingOffsets=_offsets(topic, start),
                endingOffsets=_offsets(topic, end),
            )
        )

    assert read({0: 7, 1: -2}, {0: 9, 1: 2}) == _numbers(7, 8, 10, 11)
    assert read({0: -2, 1: 3}, {0: 1, 1: -1}) == _numbers(0, 13)
    assert read({0: 10, 1: 2}, {0: -1, 1: 2}) == []
    with pytest.raises(OptionError, match="lacks"):
        read({0: 1}, {0: -1, 1: -1})
    with pytest.raises(OptionError, match="not read"):
        read({0: 1, 1: 1, 2: 1}, {0: -1, 1: -1})


def test_reading_begins_and_ends_at_times(broker: Broker, new_topic: NewTopicName) -> None:
    topic = new_topic(partitions=2)
    for number in range(5):
        produce(broker, topic, _numbers(number), partition=0, timestamp=NOW_MS + number * 10)
    produce(broker, topic, _numbers(9), partition=1, timestamp=NOW_MS + 30)

    def read(**options: str) -> list[bytes | None] | None:
        return values(read_batch(broker, subscribe=topic, **options))

    def times(first: int, second: int) -> str:
        return _offsets(topic, {0: NOW_MS + first, 1: NOW_MS + second})

    assert read(startingTimestamp=str(NOW_MS + 15)) == _numbers(2, 3, 4, 9)
    assert read(endingTimestamp=str(NOW_MS + 30)) == _numbers(0, 1, 2)
    assert read(endingTimestamp=str(NOW_MS + 35)) == _numbers(0, 1, 2, 3, 9)
    assert read(
        startingOffsetsByTimestamp=times(10, 0), endingOffsetsByTimestamp=times(30, 99)
    ) == _numbers(1, 2, 9)


def test_a_start_later_than_all_records_is_an_error_or_the_end(
    broker: Broker, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=2)
    produce(broker, topic, _numbers(0), partition=0, timestamp=NOW_MS)
    produce(broker, topic, _numbers(1), partition=1, timestamp=NOW_MS + 10)
    late = {"subscribe": topic, "startingTimestamp": str(NOW_MS + 5)}

    with pytest.raises(OptionError, match=f"no record of {topic}-0 "):
        read_batch(broker, **late)
    read = read_batch(broker, **late, startingOffsetsByTimestampStrategy="latest")
    assert values(read) == _numbers(1)


def test_large_ranges_are_split_and_read_the_same(broker: Broker, new_topic: NewTopicName) -> None:
    topic = new_topic(partitions=2)
    produce(broker, topic, _numbers(*range(90)), partition=0)
    produce(broker, topic, _numbers(*range(10)), partition=1)
    whole = read_batch(broker, subscribe=topic)

    assert len(planned(broker, subscribe=topic)) == 2
    assert len(planned(broker, subscribe=topic, minPartitions="10")) == 10
    assert len(planned(broker, subscribe=topic, maxRecordsPerPartition="30")) == 4
    assert read_batch(broker, subscribe=topic, minPartitions="10") == whole
    assert read_batch(broker, subscribe=topic, maxRecordsPerPartition="7") == whole


def test_small_fetches_read_the_same(broker: Broker, topic: str) -> None:
    for number in range(20):
        produce(broker, topic, [b"%d" % number * 5000])

    assert read_batch(
        broker, subscribe=topic, kafka__max__partition__fetch__bytes="20000"
    ) == read_batch(broker, subscribe=topic)


def test_aborted_transactions_are_left_out_across_fetches_and_splits(
    broker: Broker, topic: str
) -> None:
    first, second = transactional(broker, f"{topic}.1"), transactional(broker, f"{topic}.2")
    first.begin_transaction()
    for number in range(20):
        second.begin_transaction()
        for producer in (first, second):
            producer.produce(topic, b"%d" % number * 5000, partition=0)
            producer.flush(30)
        second.commit_transaction(30) if number % 2 else second.abort_transaction(30)
    first.abort_transaction(30)
    expected = consume(broker, [topic], "read_committed")
    small = {"kafka__max__partition__fetch__bytes": "12000", "isolation__level": "read_committed"}

    assert len(expected) == 10
    assert read_batch(broker, subscribe=topic, **small) == expected
    assert read_batch(broker, subscribe=topic, minPartitions="7", **small) == expected


def test_deleted_records_fail_the_read_or_are_told_of(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, topic, _numbers(*range(10)))
    delete_records(broker, topic, before=6)
    start = {"subscribe": topic, "startingOffsets": _offsets(topic, {0: 2})}

    with pytest.raises(DataLoss, match=r"now starts at offset 6, and offsets 2 to 5 .*failOnData"):
        read_batch(broker, **start)
    with caplog.at_level(logging.WARNING, logger="dohle.spark"):
        left = read_batch(broker, **start, failOnDataLoss="false")
    assert values(left) == _numbers(6, 7, 8, 9)
    assert "now starts at offset 6" in caplog.text


def test_a_range_that_is_gone_as_a_whole_gives_nothing(broker: Broker, topic: str) -> None:
    produce(broker, topic, _numbers(*range(10)))
    delete_records(broker, topic, before=6)

    assert (
        read_batch(
            broker,
            subscribe=topic,
            startingOffsets=_offsets(topic, {0: 2}),
            endingOffsets=_offsets(topic, {0: 5}),
            failOnDataLoss="false",
        )
        == []
    )


def test_an_end_behind_the_log_fails_the_read_or_is_told_of(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, topic, _numbers(0, 1))
    end = {"subscribe": topic, "endingOffsets": _offsets(topic, {0: 5})}

    with pytest.raises(DataLoss, match=r"endingOffsets names offset 5 of .*, which ends at 2"):
        read_batch(broker, **end)
    assert len(read_batch(broker, **end, failOnDataLoss="false")) == 2
    assert "which ends at 2" in caplog.text


def test_a_topic_that_does_not_exist_is_named(broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaError, match="no such topic: nowhere, neither"):
        read_batch(broker, subscribe=f"{topic},nowhere,neither")


def test_a_partition_that_does_not_exist_is_named(broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaError, match=f"no such partition: {topic}-7"):
        read_batch(broker, assign=json.dumps({topic: [0, 7]}))


def test_a_topic_made_anew_between_plan_and_read_is_not_read_for_the_old_one(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, _numbers(0, 1))
    (work,) = planned(broker, subscribe=topic)
    recreate(broker, topic)
    produce(broker, topic, _numbers(8, 9))

    def read(**options: str) -> list[object]:
        given = options_of(broker, subscribe=topic, **options)
        return list(read_range(work, parse_source_options(given, Query.BATCH)))

    with pytest.raises(DataLoss, match="deleted and recreated"):
        read()
    assert read(failOnDataLoss="false") == []


def test_a_worker_that_knows_a_topic_of_before_finds_the_one_that_is_meant(
    broker: Broker, topic: str
) -> None:
    worker, planner = {"kafka__client__id": "worker"}, {"kafka__client__id": "planner"}
    produce(broker, topic, _numbers(0, 1))
    read_batch(broker, subscribe=topic, **worker)
    recreate(broker, topic)
    produce(broker, topic, _numbers(8, 9))
    (work,) = planned(broker, subscribe=topic, **planner)
    given = options_of(broker, subscribe=topic, **worker)
    (rows,) = read_range(work, parse_source_options(given, Query.BATCH))

    assert rows["value"].to_pylist() == _numbers(8, 9)


def test_another_schema_than_that_of_a_topic_is_refused(broker: Broker) -> None:
    with pytest.raises(OptionError, match="no other schema can be set"):
        batch_reader(options_of(broker, subscribe="t"), StructType().add("value", "string"))


def test_nothing_is_read_of_an_empty_topic(broker: Broker, topic: str) -> None:
    nothing: list[Seen] = read_batch(broker, subscribe=topic)

    assert nothing == []
