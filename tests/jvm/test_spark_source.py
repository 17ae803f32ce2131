"""The Spark source on logs that a real cleaner has gone through: gaps, markers, aborted records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from dohle.client import Admin, NewTopic
from tests.interop.waiting import wait_until
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.spark.source.reading import (
    Engine,
    Seen,
    ask,
    consume,
    planned,
    produce,
    read_batch,
    transactional,
)

TOPIC, KEYS, ROUNDS = "cleaned", 5, 6
LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module")
def kafka(
    classpath: str, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    """A broker with a topic of which little is left."""
    folder: Path = tmp_path_factory.mktemp("cleaned")
    broker = ApacheKafka(classpath, folder, {"log.cleaner.backoff.ms": "100"})
    broker.format(jvm)
    with broker:
        _create(broker)
        written = _fill(broker)
        wait_until(lambda: len(consume(broker, [TOPIC], LEVELS[0])) < written // 3, 60.0)
        yield broker


def _create(broker: ApacheKafka) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "300",
    }

    async def question(admin: Admin) -> None:
        (await admin.create_topics([NewTopic(TOPIC, partitions=1, configs=configs)])).ok()

    ask(broker, question)


def _fill(broker: ApacheKafka) -> int:
    """Write few keys again and again, with transactions in between; return how many records."""
    rng = random.Random(1)
    writer = transactional(broker, "cleaned-writer")
    written = 0
    for number in range(ROUNDS):
        for step in range(30):
            if step % 10 == 5:
                writer.begin_transaction()
                for _ in range(4):
                    key = b"%d" % rng.randrange(KEYS)
                    writer.produce(TOPIC, b"in transaction %d" % number, key=key, partition=0)
                (writer.abort_transaction if step == 15 else writer.commit_transaction)(30)
                written += 4
            key = b"%d" % rng.randrange(KEYS)
            value = b"%d-%d" % (number, step)
            produce(broker, TOPIC, [value], key=key, config={"batch.size": "200"})
            written += 1
    return written


def assert_read_alike(kafka: ApacheKafka, level: str, read: Callable[[], list[Seen]]) -> None:
    """Compare with Kafka's own client, at a time when the cleaner rests."""
    for _ in range(20):
        before = consume(kafka, [TOPIC], level)
        rows = read()
        if consume(kafka, [TOPIC], level) == before:
            assert rows == before
            return
    raise AssertionError("the cleaner does not come to rest")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tasks", [1, 3, 9, 30])
def test_a_cleaned_log_is_read_as_kafkas_own_client_reads_it(
    kafka: ApacheKafka, level: str, tasks: int
) -> None:
    options = {
        "subscribe": TOPIC,
        "kafka__isolation__level": level,
        "minPartitions": str(tasks),
    }
    assert len(planned(kafka, **options)) >= tasks
    assert_read_alike(kafka, level, lambda: read_batch(kafka, **options))


@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_goes_on_over_the_gaps(kafka: ApacheKafka, level: str) -> None:
    def read() -> list[Seen]:
        options = {"startingOffsets": "earliest", "kafka__isolation__level": level}
        engine = Engine(kafka, subscribe=TOPIC, **options)
        rows: list[Seen] = []
        while (batch := engine.next_batch(ReadMaxRows(7))) is not None:
            rows += batch
        return rows

    assert_read_alike(kafka, level, read)
