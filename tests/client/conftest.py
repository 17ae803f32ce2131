"""Clusters for the tests: librdkafka's mock brokers, others if named, and a broker of our own.

``DOHLE_TEST_BOOTSTRAP=host:port,...`` lets the same tests run against that cluster too; it must
create topics when they are first asked for.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from dohle.testing.broker import Broker

BOOTSTRAP = os.environ.get("DOHLE_TEST_BOOTSTRAP")
MOCK = "mock"


@pytest.fixture(scope="module", params=[MOCK, *([BOOTSTRAP] if BOOTSTRAP else [])])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The addresses of a cluster of real brokers, or nearly so."""
    if request.param != MOCK:
        yield request.param
        return
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=30).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


@pytest.fixture(scope="package")
def own_bootstrap() -> Iterator[str]:
    """The address of a broker of ours that does not wait for a group to gather."""
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "group.consumer.heartbeat.interval.ms": "50",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.session.timeout.ms": "20000",
        "group.consumer.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
    with Broker(config) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex}"
