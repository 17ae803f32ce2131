"""Exactly once, with real processes killed by -9 at each step of the protocol.

A stream from one topic to another goes on for all rounds with one checkpoint. In each round one
process dies at one step: a worker that writes, the one that commits, or the broker; and, with a
driver of its own, its JVM and its Python. Whatever happens, the stream is started again until all
is through, and a reader of committed records sees every row once.

``EXACTLY_ONCE_ROUNDS`` says how many rounds; the seed of a round is its number.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from dohle.client import Admin, Cluster, NewTopic, run
from tests.interop.process import BrokerProcess
from tests.spark.sink.exactly_once_driver import JVM, PYTHON, stream
from tests.spark.sink.faulty_sink import (
    BROKER,
    DRIVER_STEPS,
    KILL_BROKER,
    SELF,
    TASK_STEPS,
    register,
)

_ROUNDS = int(os.environ.get("EXACTLY_ONCE_ROUNDS", "20"))
#: These rounds kill the driver, for which a JVM must be started each time.
_DRIVER_ROUNDS = max(2, _ROUNDS // 10)
_ROWS = 30
_TRIES = 6
_DRIVER_DEADLINE_S = 150


class Field:
    """A broker that can be killed, two topics, a checkpoint, and what was sent so far."""

    def __init__(self, folder: Path, name: str, broker: BrokerProcess) -> None:
        self.broker = broker
        self.source, self.sink = f"{name}-in", f"{name}-out"
        self.checkpoint = str(folder / "checkpoint")
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.sent: list[bytes] = []
        run(self._create_topics())

    async def _create_topics(self) -> None:
        async with Cluster(self.broker.bootstrap) as cluster:
            topics = [NewTopic(name, partitions=2) for name in (self.source, self.sink)]
            (await Admin(cluster).create_topics(topics)).ok()

    @property
    def arguments(self) -> tuple[str, str, str, str, str]:
        """What a driver needs to know."""
        faults = str(self.faults)
        return self.broker.bootstrap, self.source, self.sink, self.checkpoint, faults

    def plan(self, step: str, victim: str) -> None:
        """Have somebody killed at a step."""
        for old in self.faults.iterdir():
            old.unlink()
        (self.faults / step).write_text(victim)

    def has_struck(self, step: str) -> bool:
        """Tell whether somebody was killed."""
        return (self.faults / f"{step}.taken").exists()

    def send(self, number: int) -> None:
        """Have rows to be streamed."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5})
        for row in range(_ROWS):
            value = b"%d:%d" % (number, row)
            producer.produce(self.source, value, partition=row % 2)
            self.sent.append(value)
        assert producer.flush(60) == 0

    def received(self) -> list[bytes]:
        """Return what a reader of committed records sees."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(self.sink, each, OFFSET_BEGINNING) for each in range(2)])
        found: list[bytes] = []
        ends = 0
        while ends < 2:
            message = consumer.poll(30)
            assert message is not None, "a transaction that is open hides what is behind it"
            if message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                found.append(value)
            else:
                ends += 1
        consumer.close()
        return found

    async def open_transactions(self) -> list[str]:
        """Return the transactional ids with an open transaction."""
        async with Cluster(self.broker.bootstrap) as cluster:
            found = await Admin(cluster).list_transactions(states=("Ongoing",))
            return [each.transactional_id for each in found]

    def check(self, about: object) -> None:
        """Look whether all is there once, and nothing is left."""
        assert Counter(self.received()) == Counter(self.sent), about
        assert run(self.open_transactions()) == [], about


@pytest.fixture
def field(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Field]:
    """A world whose broker has the settings that the test names, if any."""
    config = {"log.retention.ms": "-1", **getattr(request, "param", {})}
    first = BrokerProcess(tmp_path, config).start()
    port = int(first.bootstrap.rsplit(":", 1)[1])
    first.stop()
    with BrokerProcess(tmp_path, config, port=port) as broker:
        yield Field(tmp_path, "rows", broker)


class BrokerKiller:
    """Kills the broker when the sink asks for it, and starts it again."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        wanted = self._field.faults / KILL_BROKER
        while not self._is_over.wait(0.02):
            if wanted.exists():
                self._field.broker.kill()
                wanted.unlink()
                self._field.broker.start()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_row_is_there_once_whoever_dies_at_whatever_step(
    spark: SparkSession, field: Field
) -> None:
    register(spark)
    with BrokerKiller(field):
        for seed in range(_ROUNDS - _DRIVER_ROUNDS):
            rng = random.Random(seed)
            step = (*DRIVER_STEPS, *TASK_STEPS)[seed % 10]
            victim = rng.choice((SELF, SELF, SELF, BROKER))
            field.plan(step, victim)
            field.send(seed)
            _stream_until_through(spark, field)
            assert field.has_struck(step)
            field.check((seed, step, victim))


def _stream_until_through(spark: SparkSession, field: Field) -> None:
    for attempt in range(_TRIES):
        query = stream(spark, *field.arguments)
        try:
            query.awaitTermination()
            return
        except StreamingQueryException:
            if attempt == _TRIES - 1:
                raise


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "field", [{"transaction.two.phase.commit.enable": "true"}], indirect=True, ids=["two-phase"]
)
@pytest.mark.xdist_group("spark-processes")
def test_every_row_is_there_once_though_drivers_die(field: Field) -> None:
    for seed in range(_DRIVER_ROUNDS):
        rng = random.Random(1000 + seed)
        step = rng.choice((*DRIVER_STEPS[2:], *TASK_STEPS[1:]))
        field.plan(step, (JVM, PYTHON)[seed % 2])
        field.send(seed)
        assert _drive(field).returncode != 0
    last = _drive(field)
    assert last.returncode == 0, last.stderr
    field.check("in the end")


def _drive(field: Field) -> subprocess.CompletedProcess[str]:
    """Run a driver to its end, whichever that is."""
    root = Path(__file__).parents[3]
    path = os.pathsep.join((str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.sink.exactly_once_driver", *field.arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=_DRIVER_DEADLINE_S,
        check=False,
    )
