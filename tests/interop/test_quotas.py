"""Other people's clients are slowed down by quotas, and told so (facts: security.md, section 9)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from time import monotonic
from typing import Any

import confluent_kafka
import kafka
import pytest

from dohle.client.admin.quotas import QuotaEntity
from dohle.client.sync import Admin, Consumer, Producer
from dohle.testing.broker import Broker

_DEADLINE_S = 30.0
#: One window counts besides the current one: a second's worth is free.
_SHORT = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
_BOUND = 200_000
_RECORD = b"x" * 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(_SHORT) as running:
        yield running


def _set(broker: Broker, entity: QuotaEntity, **quotas: float | None) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({entity: quotas}).ok()


def _produce(broker: Broker, client_id: str, topic: str, count: int) -> list[Any]:
    """Produce records; return what librdkafka tells of being throttled."""
    events: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": events.append,
            "batch.size": 40_000,
            "linger.ms": 1,
        }
    )
    for _ in range(count):
        producer.produce(topic, _RECORD)
    assert producer.flush(_DEADLINE_S) == 0
    return events


def test_librdkafka_is_told_how_long_its_producer_is_throttled(broker: Broker) -> None:
    """9, Produce and KIP-219: the time in the answer; everything arrives, only later."""
    entity: QuotaEntity = (("client-id", "fast-producer"),)
    _set(broker, entity, producer_byte_rate=_BOUND)
    begun = monotonic()
    events = _produce(broker, "fast-producer", "produced", 60)
    took_s = monotonic() - begun
    assert events
    assert max(event.throttle_time for event in events) > 0.1
    # 600,000 bytes, of which two windows may be free.
    assert took_s > (60 * len(_RECORD) - 2 * _BOUND) / _BOUND * 0.8
    begun = monotonic()
    assert _produce(broker, "another", "produced", 60) == []
    assert monotonic() - begun < took_s


def test_librdkafka_is_told_how_long_its_consumer_is_throttled(broker: Broker) -> None:
    """9, Fetch: empty answers meanwhile, and no record is lost."""
    _produce(broker, "another", "consumed", 60)
    _set(broker, (("client-id", "fast-consumer"),), consumer_byte_rate=_BOUND)
    events: list[Any] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "fast-consumer",
            "group.id": "g",
            "throttle_cb": events.append,
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("consumed", 0, 0)])
    found, deadline = 0, monotonic() + _DEADLINE_S
    while found < 60:
        assert monotonic() < deadline
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            assert message.value() == _RECORD
            found += 1
    consumer.close()
    assert max(event.throttle_time for event in events) > 0.1


def test_our_own_client_is_slowed_down_and_loses_nothing(broker: Broker) -> None:
    """9, Fetch: the answer to a full fetch is empty, too; the session begins with a later one."""
    mine: dict[str, Any] = {"client_id": "ours"}
    _set(broker, (("client-id", "ours"),), producer_byte_rate=_BOUND, consumer_byte_rate=_BOUND)
    begun = monotonic()
    with Producer(broker.bootstrap, **mine) as producer:
        for number in range(40):
            producer.send_soon("ours", b"%04d" % number + _RECORD)
        producer.flush()
    assert monotonic() - begun > 0.5
    begun = monotonic()
    settings: dict[str, Any] = {"group_id": "ours", "auto_offset_reset": "earliest", **mine}
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe(["ours"], stop_at_end=True)
        found = [record.value[:4] for record in consumer]
    assert found == [b"%04d" % number for number in range(40)]
    assert monotonic() - begun > 0.5


def test_a_consumer_of_kafka_python_loses_nothing(broker: Broker) -> None:
    """9, Fetch: empty answers meanwhile."""
    _produce(broker, "another", "python", 50)
    _set(broker, (("client-id", "python"),), consumer_byte_rate=_BOUND)
    consumer = kafka.KafkaConsumer(
        "python",
        bootstrap_servers=broker.bootstrap,
        client_id="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(_DEADLINE_S * 1000),
    )
    begun = monotonic()
    found = [message.value for message in islice(consumer, 50)]
    assert found == [_RECORD] * 50
    assert monotonic() - begun > 0.5
    consumer.close()
