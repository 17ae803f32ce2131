"""Fixtures for tests that need Kafka.

- ``kafka``: a broker, ``kafka.bootstrap`` its address. One for the whole test session.
- ``kafka_topic``: the name of a new topic on it, with one partition.
- ``kafka_cluster``: three nodes in processes of their own, to be killed and paused.

Kafka's configs come from the ini file, for all tests, or from a marker, for one::

    [pytest]
    kafka_config =
        num.partitions=3

    @pytest.mark.kafka({"message.max.bytes": 2_000_000})
    def test_large_orders(kafka): ...

A test with a marker gets a broker with that configuration, which takes some milliseconds to start.
No fixture needs a loop or disturbs one, so they serve async tests of any plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dohle.testing.broker import Broker
    from dohle.testing.cluster import Cluster

_INI = "kafka_config"
_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let an ini file say how brokers are configured."""
    parser.addini(_INI, "Kafka configs of the brokers that fixtures start", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "kafka(config): the Kafka configs of this test's broker")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests with a marker a broker of their own: one for each configuration."""
    marker = metafunc.definition.get_closest_marker("kafka")
    if marker is not None and "kafka" in metafunc.fixturenames:
        config: dict[str, object] = dict(*marker.args, **marker.kwargs)
        name = ",".join(f"{key}={value}" for key, value in config.items())
        metafunc.parametrize("kafka", [config], indirect=True, ids=[name], scope="session")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker: ``kafka.bootstrap`` is its address."""
    from dohle.testing.broker import Broker

    config: dict[str, Any] = _from_ini(request.config) | getattr(request, "param", {})
    with Broker(config) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes: ``kafka_cluster.bootstrap``, ``kafka_cluster.kill(1)``, ``restart(1)`` ..."""
    from dohle.testing.cluster import Cluster

    with Cluster(nodes=3, config=_from_ini(request.config)) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition."""
    from dohle.client import NewTopic
    from dohle.client.sync import Admin

    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in request.node.name)
    name = f"{safe[:200]}-{next(_numbers)}"
    with Admin(kafka.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)]).ok()
    return name


def _from_ini(config: pytest.Config) -> dict[str, str]:
    found = {}
    for line in config.getini(_INI):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_INI}: {line!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found
