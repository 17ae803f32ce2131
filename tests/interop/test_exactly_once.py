"""Exactly once, with everything dying: input to output in transactions, killed with -9 at random.

Librdkafka's consumers and transactional producers copy records from one topic to another, in
processes of their own. Workers and the broker are killed at random moments and started again. In
the end the output is the input, each record once and in order by key, for a reader of committed
records; one of uncommitted records has seen the aborted ones too.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire
from tests.ports import free_port

RECORDS = 100_000
KEYS = 200
PARTITIONS = 4
GROUP = "copiers"
WORKERS = 2
WORKER_KILLS = 10
BROKER_KILLS = 4
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.initial.task.delay.ms": "500",
}


class WorkerProcess:
    """A worker that is started again, under the same transactional id, whenever it ends."""

    _seeds = count(1)

    def __init__(self, bootstrap: str, number: int, log: Path) -> None:
        self._arguments = [bootstrap, f"worker-{number}", GROUP, "input", "output"]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def ensure_running(self) -> None:
        """Start it if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        command = [sys.executable, "-m", "tests.interop.eos_worker", *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, str(next(self._seeds))], stderr=log)

    def kill(self) -> None:
        """End it with -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


class Reader:
    """Reads the whole output, in a thread, while it is being written."""

    def __init__(self, bootstrap: str, isolation_level: str) -> None:
        self.values: list[tuple[bytes, bytes]] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": isolation_level,
                "enable.auto.commit": False,
                "isolation.level": isolation_level,
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition("output", index, 0) for index in range(PARTITIONS)]
        )
        #: Librdkafka may go back a little after a restart (see ``group_consumers``).
        self._read_to = [0] * PARTITIONS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for record in self._consumer.consume(1_000, timeout=0.1):
                if record.error() is None:
                    key, value = record.key(), record.value()
                    partition, offset = record.partition(), record.offset()
                    assert key is not None
                    assert value is not None
                    assert partition is not None
                    assert offset is not None
                    if offset >= self._read_to[partition]:
                        self._read_to[partition] = offset + 1
                        self.values.append((key, value))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()


def write_input(bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )
    for number in range(RECORDS):
        producer.produce("input", b"%d" % number, key=b"key-%d" % (number % KEYS))
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def commit_beginnings(bootstrap: str) -> None:
    """Let the workers' group have an offset for each partition."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    beginnings = [confluent_kafka.TopicPartition("input", index, 0) for index in range(PARTITIONS)]
    offsets = confluent_kafka.ConsumerGroupTopicPartitions(GROUP, beginnings)
    for change in admin.alter_consumer_group_offsets([offsets]).values():
        change.result(30)


def kill_at_random(broker: BrokerProcess, workers: list[WorkerProcess], reader: Reader) -> None:
    """Kill whoever's turn it is, spread over the whole work."""
    rng = random.Random(7)
    victims = ["worker"] * WORKER_KILLS + ["broker"] * BROKER_KILLS
    rng.shuffle(victims)
    pause = threading.Event()
    for number, victim in enumerate(victims):
        goal = RECORDS * (number + 1) // (len(victims) + 2)

        def has_come_far_enough(goal: int = goal) -> bool:
            for worker in workers:
                worker.ensure_running()
            return len(reader.values) >= goal

        wait_until(has_come_far_enough, 120)
        pause.wait(rng.uniform(0, 0.05))
        if victim == "worker":
            rng.choice(workers).kill()
        else:
            broker.kill()
            broker.start()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_output_is_the_input_exactly_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, CONFIG, port=free_port()) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("input", PARTITIONS)
            wire.create_topic("output", PARTITIONS)
        write_input(broker.bootstrap)
        commit_beginnings(broker.bootstrap)
        workers = [
            WorkerProcess(broker.bootstrap, number, tmp_path / "workers.log")
            for number in range(WORKERS)
        ]
        with (
            Reader(broker.bootstrap, "read_committed") as committed,
            Reader(broker.bootstrap, "read_uncommitted") as uncommitted,
        ):
            try:
                kill_at_random(broker, workers, committed)

                def is_complete() -> bool:
                    for worker in workers:
                        worker.ensure_running()
                    return len(committed.values) >= RECORDS

                wait_until(is_complete, 120)
            finally:
                for worker in workers:
                    worker.stop()
            wait_until(lambda: len(uncommitted.values) >= RECORDS)
        check_exactly_once(committed.values)
        with Reader(broker.bootstrap, "read_committed") as afterwards:
            wait_until(lambda: len(afterwards.values) >= RECORDS)
        check_exactly_once(afterwards.values)
        extra = Counter(uncommitted.values) - Counter(committed.values)
        assert extra, "workers abort and die within transactions: somebody must have seen that"
        assert not Counter(committed.values) - Counter(uncommitted.values)
        assert broker.stop() == 0
        assert broker.failures == []


def check_exactly_once(values: list[tuple[bytes, bytes]]) -> None:
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for key, value in values:
        by_key[key].append(int(value.removeprefix(b"seen ")))
    assert len(by_key) == KEYS
    for key, numbers in by_key.items():
        first = int(key.removeprefix(b"key-"))
        assert numbers == list(range(first, RECORDS, KEYS)), key
