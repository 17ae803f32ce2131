"""The same log, cleaned by dohle and by Apache Kafka: batch by batch the same is left of it."""

from __future__ import annotations

import random
import shutil
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from dohle.records.batch import RecordBatch, batches
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire
from tests.jvm.apache_kafka import ApacheKafka

TOPIC = "changes"
KEYS = 12
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: A round as soon as anything is dirty; markers and tombstones stay, or go as soon as they may.
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1500",
    "min.cleanable.dirty.ratio": "0",
}
IDLE = {**QUICK, "log.cleaner.enable": "false"}
BUSY = {**QUICK, "log.cleaner.backoff.ms": "100"}
CHECKPOINT = "cleaner-offset-checkpoint"
WAIT_S = 30.0


class Seen(NamedTuple):
    """A record that a consumer has read."""

    offset: int
    key: bytes
    value: bytes | None


class Left(NamedTuple):
    """What is to be the same of a batch, however its bytes are compressed."""

    segment: str
    offsets: tuple[int, int]
    producer: tuple[int, int, int]
    attributes: int
    leader_epoch: int
    max_timestamp: int
    records: tuple[Any, ...]


def left(data: Path) -> list[Left]:
    """Return all batches of the topic."""
    found = []
    for path in sorted((data / f"{TOPIC}-0").glob("*.log")):
        for batch in batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch)
            batch.ensure_valid()
            records = tuple(
                (one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch
            )
            found.append(
                Left(
                    path.name,
                    (batch.base_offset, batch.last_offset),
                    (batch.producer_id, batch.producer_epoch, batch.base_sequence),
                    batch.attributes,
                    batch.partition_leader_epoch,
                    batch.max_timestamp,
                    records,
                )
            )
    return found


class Writer:
    """Writes whatever a client may write: by a seed, the same again and again."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._names = count()
        self._number = 0

    def write(self, bootstrap: str, transactions: int) -> None:
        """Let several producers write, one after the other, some in transactions."""
        for _ in range(transactions):
            config = {
                "bootstrap.servers": bootstrap,
                "compression.type": self._rng.choice(CODECS),
                "linger.ms": 20,
                "batch.num.messages": self._rng.choice([1, 3, 20]),
            }
            kind = self._rng.choice(["plain", "idempotent", "commit", "abort", "commit", "abort"])
            if kind == "idempotent":
                config["enable.idempotence"] = True
            if kind not in ("commit", "abort"):
                producer = Producer(config)
                self._send(producer)
                assert producer.flush(WAIT_S) == 0
                continue
            # Some ids come again: the coordinator fences the one before.
            name = f"writer-{self._rng.randrange(3)}"
            producer = Producer({**config, "transactional.id": name})
            producer.init_transactions(WAIT_S)
            for _ in range(self._rng.choice([1, 1, 2])):
                producer.begin_transaction()
                self._send(producer)
                (producer.commit_transaction if kind == "commit" else producer.abort_transaction)(
                    WAIT_S
                )

    def _send(self, producer: Producer) -> None:
        for _ in range(self._rng.choice([1, 2, 7, 25])):
            self._number += 1
            is_tombstone = self._rng.random() < 0.2
            value = b"%d " % self._number * self._rng.choice([1, 5, 40])
            headers: list[tuple[str, str | bytes | None]] = []
            if self._rng.random() < 0.3:
                headers.append(("h", b"%d" % self._number))
            producer.produce(
                TOPIC,
                None if is_tombstone else value,
                b"key-%d" % self._rng.randrange(KEYS),
                partition=0,
                headers=headers,
            )


def cleaned_up_to(data: Path) -> int:
    """Return how far the topic was cleaned."""
    path = data / CHECKPOINT
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line.split() for line in lines if line.startswith(f"{TOPIC} 0 ")]
    return int(found[0][2]) if found else -1


def active_base(data: Path) -> int:
    return int(max((data / f"{TOPIC}-0").glob("*.log")).stem)


def clean(broker: BrokerProcess | ApacheKafka, data: Path) -> list[Seen]:
    """Let a broker clean all that it may, and return what a consumer reads then."""
    with broker:
        wait_until(lambda: cleaned_up_to(data) == active_base(data), 60.0)
        found = read(broker.bootstrap)
        broker.stop()
    return found


def read(bootstrap: str) -> list[Seen]:
    """Read what is committed, from the beginning to the end."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        offset, key = message.offset(), message.key()
        assert offset is not None
        assert key is not None
        found.append(Seen(offset, key, message.value()))
    consumer.close()
    return found


def latest(seen: list[Seen]) -> dict[bytes, bytes]:
    """Return the last value of each key that is not deleted."""
    values = {one.key: one.value for one in seen}
    return {key: value for key, value in values.items() if value is not None}


class Pair:
    """Two copies of a log that grows, for a cleaner of each kind."""

    def __init__(self, tmp_path: Path, classpath: str, seed: int, retention_ms: int) -> None:
        self._source = tmp_path / "source"
        self._source.mkdir()
        self._classpath = classpath
        self._tmp_path = tmp_path
        self._writer = Writer(seed)
        self._configs = {**CONFIGS, "delete.retention.ms": str(retention_ms)}
        self._numbers = count(1)
        self._latest: dict[bytes, bytes] = {}

    def write(self) -> None:
        """Write more to the common log; nobody cleans it meanwhile."""
        with BrokerProcess(self._source, IDLE) as broker:
            if not (self._source / "data" / f"{TOPIC}-0").exists():
                with Wire(broker.bootstrap) as wire:
                    configs = {k.replace(".", "_"): v for k, v in self._configs.items()}
                    wire.create_topic(TOPIC, 1, **configs)
            self._writer.write(broker.bootstrap, 30)
            self._latest = latest(read(broker.bootstrap))
            broker.stop()

    def clean(self, keep: str) -> None:
        """Clean a copy by each, compare them, and go on with that of one of them."""
        number = next(self._numbers)
        folders = {kind: self._tmp_path / f"{kind}-{number}" for kind in ("dohle", "kafka")}
        for folder in folders.values():
            shutil.copytree(self._source, folder)
        before = left(self._source / "data")
        dohle = BrokerProcess(folders["dohle"], BUSY)
        seen = clean(dohle, folders["dohle"] / "data")
        assert dohle.failures == []
        kafka = ApacheKafka(self._classpath, folders["kafka"], BUSY)
        assert clean(kafka, folders["kafka"] / "data") == seen
        assert latest(seen) == self._latest
        ours, theirs = (left(folders[kind] / "data") for kind in ("dohle", "kafka"))
        assert ours == theirs
        assert sum(len(one.records) for one in ours) < sum(len(one.records) for one in before)
        shutil.rmtree(self._source)
        shutil.copytree(folders[keep], self._source)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "retention_ms"), [(1, 0), (2, 86_400_000)])
def test_both_leave_the_same_batches_round_after_round(
    tmp_path: Path, classpath: str, seed: int, retention_ms: int
) -> None:
    pair = Pair(tmp_path, classpath, seed, retention_ms)
    for keep in ("kafka", "dohle", "dohle"):
        pair.write()
        pair.clean(keep)
