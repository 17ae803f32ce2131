"""A compacted topic as a changelog: whoever reads it from the start has the last value of each key.

A producer updates and deletes keys while the cleaner works and the broker is killed again and
again. Librdkafka repeats what was not acknowledged, in order and without duplicates: so what is to
be found at the end is known.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire
from tests.ports import free_port

TOPIC = "changelog"
WAIT_S = 60.0
CONFIG = {"log.cleaner.backoff.ms": "50"}


def _create(broker: BrokerProcess, segment_bytes: int) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(
            TOPIC,
            1,
            cleanup_policy="compact",
            internal_segment_bytes=str(segment_bytes),
            min_cleanable_dirty_ratio="0.1",
            delete_retention_ms="0",
        )


def _read(broker: BrokerProcess) -> tuple[int, dict[bytes, bytes]]:
    """Read all of it; return how many records there were, and the last value of each key."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: dict[bytes, bytes] = {}
    count = 0
    while True:
        for message in consumer.consume(10_000, 0.2):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                consumer.close()
                return count, values
            count += 1
            key, value = message.key(), message.value()
            assert key is not None
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value


def _update(broker: BrokerProcess, updates: int, keys: int, kills: int, segment_bytes: int) -> None:
    """Update keys at random, kill the broker meanwhile, and compare what is read at the end."""
    rng = random.Random(1)
    kill_at = {updates * number // (kills + 1) for number in range(1, kills + 1)}
    model: dict[bytes, bytes] = {}
    with broker:
        _create(broker, segment_bytes)
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 100_000,
                "linger.ms": 5,
            }
        )
        for number in range(updates):
            key = b"%d" % rng.randrange(keys)
            value = None if rng.random() < 0.2 else b"%d" % number
            while True:
                try:
                    producer.produce(TOPIC, value, key, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
            if number in kill_at:
                broker.kill()
                broker.start()
            elif number % 1_000 == 0:
                producer.poll(0.01)
        assert producer.flush(300) == 0

        def is_cleaned() -> bool:
            count, found = _read(broker)
            assert found == model
            return count < updates // 2

        wait_until(is_cleaned, WAIT_S)
        assert broker.stop() == 0
        assert broker.failures == []


@pytest.mark.slow
def test_a_changelog_survives_kills_while_it_is_cleaned(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, CONFIG, port=free_port())
    _update(broker, updates=100_000, keys=1_000, kills=3, segment_bytes=300_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_changelog_of_five_million_updates(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, CONFIG, port=free_port())
    _update(broker, updates=5_000_000, keys=50_000, kills=6, segment_bytes=8 << 20)
