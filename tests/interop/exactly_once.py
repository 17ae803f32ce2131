"""Copying a topic in transactions: workers in processes of their own, and what readers see."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import confluent_kafka
import confluent_kafka.admin

from tests.interop.waiting import wait_until

KEYS = 200
PARTITIONS = 4
GROUP = "copiers"


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


def write_input(bootstrap: str, records: int) -> None:
    """Write numbers, each key's to one partition."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )
    for number in range(records):
        producer.produce("input", b"%d" % number, key=b"key-%d" % (number % KEYS))
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def commit_beginnings(bootstrap: str) -> None:
    """Let the workers' group have an offset for each partition.

    Librdkafka does not try again by itself where the coordinator is only being made.
    """
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    beginnings = [confluent_kafka.TopicPartition("input", index, 0) for index in range(PARTITIONS)]
    offsets = confluent_kafka.ConsumerGroupTopicPartitions(GROUP, beginnings)

    def are_committed() -> bool:
        (change,) = admin.alter_consumer_group_offsets([offsets]).values()
        return all(place.error is None for place in change.result(30).topic_partitions)

    wait_until(are_committed)


def check_exactly_once(values: list[tuple[bytes, bytes]], records: int) -> None:
    """See that every number is there once, in order by key."""
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for key, value in values:
        by_key[key].append(int(value.removeprefix(b"seen ")))
    assert len(by_key) == KEYS
    for key, numbers in by_key.items():
        first = int(key.removeprefix(b"key-"))
        assert numbers == list(range(first, records, KEYS)), key
