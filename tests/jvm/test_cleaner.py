"""The same log, cleaned by dohle and by Apache Kafka: batch by batch the same is left of it."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dohle.client import Admin, Cluster
from dohle.records.batch import RecordBatch, batches
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.conftest import NewTopic
from tests.jvm.jvm import Jvm

TOPIC = "changes"
KEYS = 12
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: A round as soon as anything is dirty; markers and tombstones stay, or go as soon as they may.
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
}
IDLE = {**QUICK, "log.cleaner.enable": "false"}
BUSY = {**QUICK, "log.cleaner.backoff.ms": "100"}
#: A round through so many records takes many seconds.
SLOW = {**BUSY, "log.cleaner.io.max.bytes.per.second": "3000000"}
LARGE = 200_000
LARGE_KEYS = 40_000
CHECKPOINT = "cleaner-offset-checkpoint"
WAIT_S = 30.0
#: What Kafka's tool says of good indexes. It misses the time of a batch that was emptied.
EXPECTED = re.compile(
    r"Dumping .*|.* is empty\.|.* passed sanity check\."
    r"|Found timestamp mismatch in :.*| *Index timestamp: \d+, log timestamp: -1"
)
#: Each takes a minute.
EXAMPLES = 12 if "DOHLE_EXPLORE" in os.environ else 2


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


class Send(NamedTuple):
    """A record that is written."""

    key: int
    #: How often its number is repeated; None for a tombstone.
    length: int | None
    has_header: bool
    age_ms: int


class Write(NamedTuple):
    """What one producer writes: in transactions, if it has an id, which end one way or other."""

    codec: str
    records_per_batch: int
    is_idempotent: bool
    transactional_id: int | None
    commits: bool
    parts: Sequence[Sequence[Send]]


class Plan(NamedTuple):
    """A log: the settings of its topic, and what is written to it before each cleaning."""

    segment_bytes: int
    retention_ms: int
    sessions: Sequence[Sequence[Write]]
    #: Written last, in a transaction that stays open.
    undecided: Sequence[Send]


sends = st.lists(
    st.builds(
        Send,
        st.integers(0, KEYS - 1),
        st.one_of(st.sampled_from([1, 5, 40]), st.none()),
        st.booleans(),
        st.sampled_from([0, 1, 10_000]),
    ),
    min_size=1,
    max_size=25,
)
writes = st.builds(
    Write,
    st.sampled_from(CODECS),
    st.sampled_from([1, 3, 20]),
    st.booleans(),
    # Some ids come again: the coordinator fences the one before.
    st.one_of(st.none(), st.integers(0, 2)),
    st.booleans(),
    st.lists(sends, min_size=1, max_size=2),
)
#: The first example of a strategy is its smallest, and there are few: so it is not small.
plans = st.builds(
    Plan,
    st.sampled_from([1_500, 4_000]),
    st.sampled_from([0, 86_400_000]),
    st.lists(st.lists(writes, min_size=25, max_size=35), min_size=3, max_size=3),
    sends,
)


class Writer:
    """Writes whatever a client may write."""

    def __init__(self) -> None:
        self._number = 0

    def write(self, bootstrap: str, plan: Sequence[Write]) -> None:
        """Let several producers write, one after the other."""
        for write in plan:
            config = {
                "bootstrap.servers": bootstrap,
                "compression.type": write.codec,
                "linger.ms": 20,
                "batch.num.messages": write.records_per_batch,
            }
            if write.transactional_id is None:
                producer = Producer({**config, "enable.idempotence": write.is_idempotent})
                for part in write.parts:
                    self._send(producer, part)
                assert producer.flush(WAIT_S) == 0
                continue
            name = f"writer-{write.transactional_id}"
            producer = Producer({**config, "transactional.id": name})
            producer.init_transactions(WAIT_S)
            for part in write.parts:
                producer.begin_transaction()
                self._send(producer, part)
                (producer.commit_transaction if write.commits else producer.abort_transaction)(
                    WAIT_S
                )

    def leave_open(self, bootstrap: str, part: Sequence[Send]) -> int:
        """Write in a transaction that nobody ends; return its first offset."""
        config = {"transactional.id": "undecided", "transaction.timeout.ms": 900_000}
        producer = Producer({"bootstrap.servers": bootstrap, **config})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        written: list[int] = []

        def note(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            assert error is None
            assert offset is not None
            written.append(offset)

        self._send(producer, part, note)
        assert producer.flush(WAIT_S) == 0
        return min(written)

    def _send(self, producer: Producer, part: Sequence[Send], on_delivery: Any = None) -> None:
        now_ms = int(time.time() * 1000)
        for send in part:
            self._number += 1
            headers: list[tuple[str, str | bytes | None]] = []
            if send.has_header:
                headers.append(("h", b"%d" % self._number))
            producer.produce(
                TOPIC,
                None if send.length is None else b"%d " % self._number * send.length,
                b"key-%d" % send.key,
                partition=0,
                headers=headers,
                timestamp=now_ms - send.age_ms,
                on_delivery=on_delivery,
            )


def cleaned_up_to(data: Path) -> int:
    """Return how far the topic was cleaned."""
    path = data / CHECKPOINT
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line.split() for line in lines if line.startswith(f"{TOPIC} 0 ")]
    return int(found[0][2]) if found else -1


def cleanable_up_to(data: Path, undecided: int | None) -> int:
    """Return where the segment begins that may not be cleaned."""
    bases = [int(path.stem) for path in (data / f"{TOPIC}-0").glob("*.log")]
    return max(base for base in bases if undecided is None or base <= undecided)


def clean(broker: BrokerProcess | ApacheKafka, data: Path, undecided: int | None) -> list[Seen]:
    """Let a broker clean all that it may, and return what a consumer reads then."""
    end = cleanable_up_to(data, undecided)
    with broker:
        wait_until(lambda: cleaned_up_to(data) == end, 60.0)
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

    def __init__(self, tmp_path: Path, classpath: str, jvm: Jvm, plan: Plan) -> None:
        self._jvm = jvm
        self._source = tmp_path / "source"
        self._source.mkdir()
        self._classpath = classpath
        self._tmp_path = tmp_path
        self._plan = plan
        self._writer = Writer()
        self._undecided: int | None = None
        self._configs = {
            **CONFIGS,
            "internal.segment.bytes": str(plan.segment_bytes),
            "delete.retention.ms": str(plan.retention_ms),
        }
        self._numbers = count(1)
        self._latest: dict[bytes, bytes] = {}

    def write(self, session: Sequence[Write], *, is_last: bool) -> None:
        """Write more to the common log; nobody cleans it meanwhile."""
        with BrokerProcess(self._source, IDLE) as broker:
            if not (self._source / "data" / f"{TOPIC}-0").exists():
                with Wire(broker.bootstrap) as wire:
                    configs = {k.replace(".", "_"): v for k, v in self._configs.items()}
                    wire.create_topic(TOPIC, 1, **configs)
            self._writer.write(broker.bootstrap, session)
            if is_last:
                undecided = self._plan.undecided
                self._undecided = self._writer.leave_open(broker.bootstrap, undecided)
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
        seen = clean(dohle, folders["dohle"] / "data", self._undecided)
        assert dohle.failures == []
        kafka = ApacheKafka(self._classpath, folders["kafka"], BUSY)
        assert clean(kafka, folders["kafka"] / "data", self._undecided) == seen
        # It has read our checkpoints, the one with a mark too (ADR 4).
        assert "resetting the recovery checkpoint" not in kafka.log
        assert latest(seen) == self._latest
        ours, theirs = (left(folders[kind] / "data") for kind in ("dohle", "kafka"))
        assert ours == theirs
        for folder in folders.values():
            assert_dumped(self._jvm, folder / "data")
        assert sum(len(one.records) for one in ours) < sum(len(one.records) for one in before)
        shutil.rmtree(self._source)
        shutil.copytree(folders[keep], self._source)


@pytest.mark.timeout(300 * EXAMPLES)
@given(plan=plans)
@settings(
    max_examples=EXAMPLES,
    # To make a failure smaller would take hours.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_both_leave_the_same_batches_round_after_round(
    classpath: str, jvm: Jvm, plan: Plan
) -> None:
    """Compaction 16.10, and what Kafka's tool finds in what dohle has cleaned (14)."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(Path(folder), classpath, jvm, plan)
        for number, keep in enumerate(("kafka", "dohle", "dohle"), 1):
            pair.write(plan.sessions[number - 1], is_last=number == len(plan.sessions))
            pair.clean(keep)


def fill(folder: Path) -> dict[bytes, bytes]:
    """Write many keys several times, and tombstones; return what is left when all is read."""
    configs = {**CONFIGS, "internal.segment.bytes": "1000000"}
    rng, values = random.Random(1), dict[bytes, bytes]()
    with BrokerProcess(folder, IDLE) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(TOPIC, 1, **{k.replace(".", "_"): v for k, v in configs.items()})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 200})
        for number in range(LARGE):
            key, value = b"key-%d" % rng.randrange(LARGE_KEYS), b"%d " % number * 10
            is_tombstone = number % 11 == 0
            producer.produce(TOPIC, None if is_tombstone else value, key, partition=0)
            if number % 1_000 == 0:
                producer.flush(WAIT_S)
            values.pop(key, None)
            if not is_tombstone:
                values[key] = value
        assert producer.flush(WAIT_S) == 0
        broker.stop()
    return values


def names(data: Path, *ends: str) -> list[str]:
    """Return the files of the topic with these endings."""
    return [path.name for path in (data / f"{TOPIC}-0").iterdir() if path.name.endswith(ends)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kinds", [("dohle", "kafka"), ("kafka", "dohle")], ids="-".join)
def test_a_round_that_was_killed_in_the_middle_is_finished_by_the_other(
    classpath: str, jvm: Jvm, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    """Compaction 9 and 16.10: over and back, each time with files of both kinds on the disk.

    Some groups were swapped and their old files are not yet gone, and another is being written.
    """
    data = tmp_path / "data"

    def broker(kind: str, config: dict[str, str]) -> BrokerProcess | ApacheKafka:
        if kind == "dohle":
            return BrokerProcess(tmp_path, config)
        return ApacheKafka(classpath, tmp_path, config)

    def is_in_the_middle() -> bool:
        return bool(names(data, ".cleaned", ".swap")) and len(names(data, ".log.deleted")) > 1

    expected = fill(tmp_path)
    end = cleanable_up_to(data, None)
    for kind in kinds:
        cleaning = broker(kind, SLOW)
        # It may clean before it serves.
        cleaning.spawn()
        try:
            wait_until(is_in_the_middle, 90.0)
        finally:
            cleaning.kill()
        assert names(data, ".cleaned", ".swap")
        assert cleaned_up_to(data) < end
    # The first finishes what the second had begun, and the second agrees.
    seen = clean(broker(kinds[0], BUSY), data, None)
    assert latest(seen) == expected
    assert len(seen) < LARGE / 2
    assert not names(data, ".cleaned", ".swap")
    assert clean(broker(kinds[1], BUSY), data, None) == seen
    assert_dumped(jvm, data)


def assert_dumped(jvm: Jvm, data: Path) -> None:
    """See that Kafka's tool finds every batch valid, and every index right."""
    folder = data / f"{TOPIC}-0"
    logs = sorted(folder.glob("*.log"))
    main = "kafka.tools.DumpLogSegments"
    ran = jvm.run(main, "--deep-iteration", "--files", ",".join(map(str, logs)))
    assert ran.code == 0, ran
    valid = re.findall(r"isvalid: (\w+)", ran.out)
    assert len(valid) == len(left(data))
    assert set(valid) == {"true"}
    indexes = sorted(path for path in folder.glob("*index") if path.suffix != ".txnindex")
    for option in ("--index-sanity-check", "--verify-index-only"):
        ran = jvm.run(main, option, "--files", ",".join(map(str, indexes)))
        assert ran.code == 0, ran
        told = [*ran.err.splitlines(), *ran.out.splitlines()]
        assert [line for line in told if not EXPECTED.fullmatch(line)] == []


@pytest.mark.timeout(120)
def test_kafkas_own_tester_finds_what_it_has_written(
    classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    """Compaction 15: LogCompactionTester writes keys with deletions, and reads them afterwards."""
    small = {"log.segment.bytes": "1048576", "log.cleaner.min.cleanable.ratio": "0"}
    with BrokerProcess(tmp_path, {**BUSY, **small}) as broker:
        ran = jvm.run(
            "org.apache.kafka.tools.LogCompactionTester",
            *("--bootstrap-server", broker.bootstrap, "--messages", "200000", "--duplicates", "5"),
            *("--percent-deletes", "20", "--topics", "2", "--sleep", "5"),
        )
        assert ran.code == 0, ran
        assert "Data verification is completed" in ran.out
        entries = (tmp_path / "data" / CHECKPOINT).read_text().splitlines()[2:]
        cleaned = [line for line in entries if line.startswith("log-cleaner-test")]
        assert [int(line.split()[2]) > 10_000 for line in cleaned] == [True, True], entries
        assert broker.failures == []


def test_only_dohle_tells_how_far_it_has_cleaned(
    bootstrap: str, new_topic: NewTopic, request: pytest.FixtureRequest
) -> None:
    """Our tag in DescribeLogDirs is nothing to Kafka."""
    topic = new_topic(1, "--config", "cleanup.policy=compact")

    async def ask() -> list[bool]:
        async with Cluster(bootstrap) as cluster:
            found = (await Admin(cluster).describe_log_dirs(with_cleaning=True)).ok()
            return [
                replica.cleaning is not None
                for directories in found.values()
                for directory in directories
                for replica in directory.replicas
                if replica.partition.topic == topic
            ]

    is_dohle = request.node.callspec.params["bootstrap"] == "dohle"
    # A topic may be known a moment before its log is there.
    wait_until(lambda: asyncio.run(ask()) != [])
    assert asyncio.run(ask()) == [is_dohle]
