"""Fixtures for tests that need Kafka: ``kafka`` is a broker, ``kafka_topic`` a fresh topic on it.

The broker is one for the whole test session; each test that asks for ``kafka_topic`` gets a topic
of its own, with one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dohle.testing.broker import Broker


_numbers = count(1)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A broker for the test session: ``kafka.bootstrap`` is its address."""
    from dohle.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition."""
    from dohle.client import Admin, Cluster, NewTopic, run

    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in request.node.name)
    name = f"{safe[:200]}-{next(_numbers)}"

    async def create() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            (await Admin(cluster).create_topics([NewTopic(name, partitions=1)])).ok()

    run(create())
    return name
