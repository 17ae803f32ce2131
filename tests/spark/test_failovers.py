"""A stream from topic to topic goes on, exactly once, while leaders are killed.

Three nodes, a replica of everything on each, min.insync.replicas 2. Each round a query begins again
from its checkpoint, and a node is killed with -9 at one step of the sink's protocol: who leads what
is read, what is written, the ledger of the sink or a coordinator's partition. The query must not
fail: others lead, and it goes on with them. The node comes back when the query is through.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from dohle.spark.sink.options import COMMITS_TOPIC
from dohle.testing import Cluster
from tests.interop.waiting import wait_until
from tests.spark.sink.exactly_once_driver import stream
from tests.spark.sink.faulty_sink import BROKER, DRIVER_STEPS, KILL_BROKER, TASK_STEPS, register

SOURCE, SINK, PARTITIONS = "rows-in", "rows-out", 2
TRANSACTIONS = "__transaction_state"
CONFIG = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "log.retention.ms": "-1",
}
#: Of a round: several micro-batches of the query.
ROWS = 100
#: Of the round in which leaders move in the middle of ranges, which take several fetches.
MANY_ROWS, VALUE_BYTES = 40, 500_000
DEADLINE_S = 90.0


class Rows:
    """The cluster, what was sent so far, and who is to be killed."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._checkpoint = str(folder / "checkpoint")
        self._faults = folder / "faults"
        self._faults.mkdir()
        self._sent: Counter[bytes] = Counter()
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        made = self._admin.create_topics([NewTopic(each, PARTITIONS, 3) for each in (SOURCE, SINK)])
        for future in made.values():
            future.result()
        self._rounds = 0

    def send(self, count: int, size: int = 0) -> None:
        """Have rows to be streamed."""
        self._rounds += 1
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        for row in range(count):
            value = f"{self._rounds}:{row}".encode().ljust(size, b".")
            producer.produce(SOURCE, value, partition=row % PARTITIONS)
            self._sent[value] += 1
        assert producer.flush(DEADLINE_S) == 0

    def leader(self, topic: str, partition: int) -> int | None:
        """Return who leads a partition; None if there is none, or no such topic yet."""
        found = self._admin.list_topics(timeout=30).topics.get(topic)
        if found is None or partition not in found.partitions:
            return None
        leader: int = found.partitions[partition].leader
        return leader if leader in self.cluster.serving else None

    def await_in_sync(self) -> None:
        """Wait until every replica of every topic is in the ISR, so that any node may go."""

        def is_so() -> bool:
            topics = self._admin.list_topics(timeout=30).topics.values()
            parts = [each for topic in topics for each in topic.partitions.values()]
            return all(len(each.isrs) == 3 for each in parts)

        wait_until(is_so, DEADLINE_S)

    def stream_and_kill(self, spark: SparkSession, step: str, topic: str, partition: int) -> None:
        """Run the query until it is through; at a step the leader of a partition is killed."""
        for old in self._faults.iterdir():
            old.unlink()
        (self._faults / step).write_text(BROKER)
        over = threading.Event()
        killed: list[int] = []

        def watch() -> None:
            wanted = self._faults / KILL_BROKER
            while not over.wait(0.01):
                if wanted.exists():
                    # A topic that is not there yet: then any node will do.
                    victim = self.leader(topic, partition) or self.cluster.serving[0]
                    self.cluster.kill(victim)
                    killed.append(victim)
                    wanted.unlink()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            query = stream(
                spark,
                self.cluster.bootstrap,
                SOURCE,
                SINK,
                self._checkpoint,
                str(self._faults),
            )
            # It raises if the query fails.
            assert query.awaitTermination(3 * int(DEADLINE_S))
        finally:
            over.set()
            watching.join()
        assert len(killed) == 1, f"{step} was reached"
        self.cluster.restart(*killed)
        self.cluster.wait_until_ready()
        self.await_in_sync()

    def check(self, about: object) -> None:
        """Look whether a reader of committed records sees every row once."""
        found: Counter[bytes] = Counter(self._received())
        missing, more = self._sent - found, found - self._sent
        assert (sorted(missing)[:9], sorted(more)[:9]) == ([], []), about

    def check_nodes(self) -> None:
        """Look whether nodes have met what they did not expect."""
        for node in self.cluster.nodes:
            assert "Traceback" not in self.cluster.log(node), self.cluster.log(node)

    def _received(self) -> Iterator[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(SINK, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
        )
        ends = 0
        while ends < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "a transaction that is open hides what is behind it"
            if message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                yield value
            else:
                ends += 1
        consumer.close()


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    with Cluster(nodes=3, config=CONFIG) as cluster:
        yield Rows(cluster, tmp_path)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [TASK_STEPS, DRIVER_STEPS], ids=["writing", "committing"])
def test_a_stream_goes_on_exactly_once_whoever_leads_is_killed(
    spark: SparkSession, rows: Rows, steps: tuple[str, ...]
) -> None:
    register(spark)
    rng = random.Random(len(steps))
    topics = [SINK, TRANSACTIONS, COMMITS_TOPIC, SOURCE]
    for number, step in enumerate(steps):
        rows.send(ROWS)
        topic = topics[number % len(topics)]
        rows.stream_and_kill(spark, step, topic, rng.randrange(PARTITIONS))
        rows.check((step, topic))
    rows.check_nodes()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_leader_may_move_in_the_middle_of_a_range(spark: SparkSession, rows: Rows) -> None:
    """A range has more rows than a fetch brings; its leader is killed when the first are there."""
    register(spark)
    rows.send(MANY_ROWS, VALUE_BYTES)
    rows.stream_and_kill(spark, "task-begins", SOURCE, 0)
    rows.check("in the middle of a range")
    rows.check_nodes()
