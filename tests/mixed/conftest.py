"""Four clusters of both kinds, each shared by all tests that it is given to.

Whoever controls them: Kafka, dohle, or a quorum of both. Kafka's nodes end themselves when they are
answered what cannot be (raft.md 14): their processes and their logs are judges, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dohle.client import Cluster as Client
from dohle.client import Consumer, ConsumerConfig, Producer, ProducerConfig, run
from tests.jvm.conftest import classpath, jvm
from tests.jvm.jvm import Jvm
from tests.mixed.administration import Operator
from tests.mixed.nodes import Kind, MixedCluster
from tests.mixed.spark_load import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["classpath", "jvm"]

_K, _D = Kind.KAFKA, Kind.DOHLE
#: Brokers and controllers.
_CLUSTERS = {
    "under-kafka": ({1: _K, 2: _D, 3: _D}, {101: _K}),
    "under-dohle": ({1: _K, 2: _K, 3: _D}, {101: _D}),
    "under-two-and-one": ({1: _K, 2: _K, 3: _D}, {1: _K, 2: _K, 3: _D}),
    "under-one-and-two": ({1: _K, 2: _D, 3: _D}, {1: _K, 2: _D, 3: _D}),
}


@pytest.fixture(scope="session", params=list(_CLUSTERS))
def cluster(
    request: pytest.FixtureRequest,
    classpath: str,
    jvm: Jvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MixedCluster]:
    brokers, controllers = _CLUSTERS[request.param]
    folder = tmp_path_factory.mktemp("mixed")
    made = MixedCluster(jvm, classpath, folder, brokers=brokers, controllers=controllers)
    with made as running:
        run(make_internal_topics(running.bootstrap))
        yield running


async def make_internal_topics(bootstrap: str) -> None:
    """Use a transaction and a group, so that tests find the topics of their coordinators."""
    async with Client(bootstrap) as client:
        async with Producer(client, ProducerConfig(transactional_id="first")) as producer:
            await producer.init_transactions()
        async with Consumer(client, ConsumerConfig(group_id="first")) as consumer:
            await consumer.committed([])


@pytest.fixture
def operator(cluster: MixedCluster) -> Operator:
    return Operator(cluster)


@pytest.fixture
def one_controller(cluster: MixedCluster) -> None:
    """Leave out quorums of several, for what a controller decides whoever else votes."""
    if len(cluster.controllers) > 1:
        pytest.skip("one controller of each kind will do")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
