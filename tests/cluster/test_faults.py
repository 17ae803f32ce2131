"""Controllers and brokers that are killed, paused and started again, as real processes.

Every round hits some of them at once, always less than a majority of the controllers. What was
acknowledged is there afterwards, at every node, and clients that have been there all the time go on
working through whoever is left.
"""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Iterator
from time import monotonic

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic

from dohle.client import Admin, ClientConfig, run
from dohle.client import Cluster as Client
from dohle.client import NewTopic as OwnTopic
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.testing import Cluster
from tests.cluster.images import digest, image_at
from tests.interop.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

CONFIG = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # So few that rounds go on from snapshots, and their followers fetch them.
    "metadata.log.max.record.bytes.between.snapshots": "5000",
}
#: What may pass until brokers tell of a new active controller, by the timeouts of these nodes, all
#: of which are Kafka's defaults. Facts allow 22 s (L1): twenty rounds of an election. Here it is
#: two, since one vote may be split between the two that are left:
#: - followers miss their leader (controller.quorum.fetch.timeout.ms): 2 s;
#: - each round ends after T + random[0, T), T = controller.quorum.election.timeout.ms: 2 s;
#: - a broker that has just asked one that does not answer asks another
#:   (controller.quorum.request.timeout.ms): 2 s;
#: - the test asks one broker after the other, each for at most 2 s, and this may be the last moment
#:   of one that cannot tell yet: 2 s.
ACTIVE_WITHIN_S = 2.0 + 2 * 2.0 + 2.0 + 2.0
#: A client that waits for a broker that is paused notices after some seconds, one by one.
CLIENTS_WITHIN_S = 40.0


class Clients:
    """Admin clients of three makers."""

    def __init__(self, bootstrap: str) -> None:
        self._confluent = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "socket.timeout.ms": 2000,
                # It sends to one broker, and chooses another when it has asked who is there.
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._bootstrap = bootstrap
        self._python: KafkaAdminClient | None = None
        self.acknowledged: set[str] = set()

    def _of_python(self) -> KafkaAdminClient:
        if self._python is None:
            self._python = KafkaAdminClient(
                bootstrap_servers=self._bootstrap,
                request_timeout_ms=2000,
                # Else it waits long for a broker that is paused.
                bootstrap_timeout_ms=3000,
            )
        return self._python

    def _forget_python(self) -> None:
        """Begin anew: it never asks another broker than the one that it has chosen once."""
        if self._python is not None:
            self._python.close()
            self._python = None

    def create_by_confluent(self, name: str) -> None:
        def attempt() -> bool:
            topic = NewTopic(name, num_partitions=2, replication_factor=1)
            (created,) = self._confluent.create_topics([topic], request_timeout=2).values()
            return _is_done(created.exception())

        self._until(name, attempt)

    def create_by_python(self, name: str) -> None:
        def attempt() -> bool:
            try:
                self._of_python().create_topics([PythonTopic(name, 2, 1)], timeout_ms=2000)
            except Exception as error:
                self._forget_python()
                return _is_done(error)
            return True

        self._until(name, attempt)

    def create_at(self, address: str, name: str) -> None:
        """Create a topic through one broker, which may be any."""

        async def create() -> None:
            config = ClientConfig(request_timeout_ms=5_000, api_timeout_ms=5_000)
            async with Client(address, config) as client:
                (await Admin(client).create_topics([OwnTopic(name, 2)])).ok()

        def attempt() -> bool:
            try:
                run(create())
            except KafkaError as error:
                return error.code is ErrorCode.TOPIC_ALREADY_EXISTS
            return True

        self._until(name, attempt)

    def _until(self, name: str, attempt: Callable[[], bool]) -> None:
        wait_until(attempt, CLIENTS_WITHIN_S)
        self.acknowledged.add(name)

    def see_by_confluent(self) -> set[str]:
        return set(self._confluent.list_topics(timeout=10).topics)

    def see_by_python(self) -> set[str]:
        try:
            return set(self._of_python().list_topics())
        except Exception:
            self._forget_python()
            return set()

    def close(self) -> None:
        self._forget_python()
        del self._confluent
        # kafka-python leaves sockets of connections that failed to the garbage collector.
        gc.collect()


def _is_done(error: BaseException | None) -> bool:
    """Tell whether a topic is there: an attempt without an answer may have made it."""
    return error is None or "already exists" in str(error) or "TopicAlready" in repr(error)


class Rounds:
    """Faults, drawn from a seed, and what must be true after each."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._clients = Clients(cluster.bootstrap)
        self._number = 0

    def run(self) -> None:
        self._number += 1
        cluster, rng = self._cluster, self._rng
        victims = self._victims()
        paused = [node for node in victims if rng.random() < 0.5]
        cluster.pause(*paused)
        cluster.kill(*(node for node in victims if node not in paused))
        self._see_it_work("without")
        self._bring_back(victims, paused)
        cluster.wait_until_ready()
        self._see_it_work("with all")
        self._see_the_same_everywhere()

    def _victims(self) -> list[int]:
        cluster, rng = self._cluster, self._rng
        controllers = rng.choice([[cluster.leader()], rng.sample(cluster.controllers, 1), []])
        brokers = rng.sample(cluster.brokers, rng.randint(0 if controllers else 1, 2))
        return [*controllers, *brokers]

    def _bring_back(self, victims: list[int], paused: list[int]) -> None:
        self._rng.shuffle(victims)
        for node in victims:
            if node in paused:
                self._cluster.resume(node)
            else:
                self._cluster.restart(node)

    def _see_it_work(self, what: str) -> None:
        cluster, clients = self._cluster, self._clients
        begin = monotonic()
        cluster.leader()
        took_s = monotonic() - begin
        assert took_s < ACTIVE_WITHIN_S, f"round {self._number}, {what}: {took_s:.1f} s"
        name = f"round-{self._number}-{what.replace(' ', '-')}"
        for broker in set(cluster.brokers).intersection(cluster.serving):
            clients.create_at(cluster.address(broker), f"{name}-{broker}")
        clients.create_by_confluent(f"{name}-confluent")
        clients.create_by_python(f"{name}-python")
        for see in (clients.see_by_confluent, clients.see_by_python):
            wait_until(lambda see=see: see() >= clients.acknowledged)  # type: ignore[misc]

    def _see_the_same_everywhere(self) -> None:
        cluster = self._cluster
        committed = run(_committed(cluster.bootstrap))
        digests: dict[int, str] = {}

        def is_read() -> bool:
            for node in cluster.nodes:
                image = None if node in digests else image_at(cluster.data(node), committed)
                if image is not None:
                    names = {image.topics[each].name for each in image.topics}
                    assert names >= set(map(TopicName, self._clients.acknowledged)), node
                    digests[node] = digest(image)
            return digests.keys() == set(cluster.nodes)

        wait_until(is_read)
        assert len(set(digests.values())) == 1, digests

    def close(self) -> None:
        self._clients.close()


async def _committed(bootstrap: str) -> int:
    async with Client(bootstrap) as client:
        return (await Admin(client).describe_quorum()).high_watermark


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Let no log line keep the sockets of kafka-python alive beyond the test."""
    caplog.set_level(logging.CRITICAL + 1, logger="kafka")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, controllers=3, config=CONFIG) as running:
        yield running


def go_through(cluster: Cluster, seed: int, rounds: int) -> None:
    going = Rounds(cluster, seed)
    try:
        for _ in range(rounds):
            going.run()
    finally:
        going.close()
    for node in cluster.nodes:
        assert " ERROR " not in cluster.log(node), cluster.log(node)
        assert "Traceback" not in cluster.log(node), cluster.log(node)


@pytest.mark.slow
def test_nothing_is_lost_while_nodes_come_and_go(cluster: Cluster) -> None:
    go_through(cluster, seed=1, rounds=2)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2])
def test_nothing_is_lost_in_many_rounds(cluster: Cluster, seed: int) -> None:
    go_through(cluster, seed, rounds=30)
