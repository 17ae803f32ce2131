"""A broker that all tests of this folder share, and topics of their own on it."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from dohle.testing import Broker
from tests.interop.wire import Wire

# kafka-python reads its schemas by a function that the standard library deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka")

NewTopic = Callable[..., str]

#: The one topic of a quiet broker, with one partition.
QUIET_TOPIC = "quiet"

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    # Many records here are years old: retention would delete them under their readers.
    with Broker({"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def quiet_broker() -> Iterator[Broker]:
    """A broker of the test's own, where no other test's client still waits for records."""
    with Broker({"log.retention.ms": "-1"}) as running:
        with Wire(running.bootstrap) as wire:
            wire.create_topic(QUIET_TOPIC, 1)
        yield running


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> NewTopic:
    """Create topics: ``new_topic(partitions=3, max_message_bytes="5000000")``."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())[:150]}.{next(_numbers)}"
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(name, partitions, **configs)
        return name

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """A topic with one partition."""
    return new_topic()
