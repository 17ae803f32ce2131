"""What the clients of a check do, with librdkafka: produce, consume in groups, use transactions.

Each role is a thread that goes on until it is told that the round is over. It takes any error as a
matter of course, notes in the history what it does and sees, and begins anew with a new client
where one has failed. Some producers end as a process does that is killed: without a last word.

``confluent_kafka`` tells of an error whether it can be retried, asks for an abort or is fatal. What
it does not say is whether a record was written nevertheless: then its outcome stays unknown.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from time import monotonic, monotonic_ns
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from dohle.testing.check.stuck import StuckClient, calls_of
from dohle.testing.checking.history import (
    ClientTransaction,
    History,
    Outcome,
    Partition,
    Reading,
    SentRecord,
)

PARTITIONS = 3
#: No more records of one producer wait for a partition.
_OUTSTANDING_MAX = 100
#: librdkafka wants it to be no shorter than ``socket.timeout.ms``.
_TRANSACTION_TIMEOUT_MS = 20_000
_CALL_S = 15.0
_POLL_S = 0.3
#: Some of these, one after the other, must be over before the end of a round is given up.
_INSIST_S = 45.0
#: With a fatal error pending, a delivery report may surface as this one.
ERRORS = (KafkaException, SystemError)

_silent = logging.getLogger("dohle.testing.check.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

#: Longer than nodes are paused and links are cut: a request that is sent again because of a
#: time-out may come twice, and an EndTxn that does may tear a transaction of the older protocol
#: (KAFKA-17754). That is tried apart, in ``late_end``.
CLIENT: dict[str, Any] = {
    "socket.timeout.ms": 20_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
    "logger": _silent,
}


@dataclass(frozen=True, slots=True)
class RoundTopics:
    """The names of one round."""

    round: int

    @property
    def input(self) -> str:
        """What idempotent producers write to."""
        return f"input-{self.round}"

    @property
    def output(self) -> str:
        """What copiers write to."""
        return f"output-{self.round}"

    @property
    def ledger(self) -> str:
        """What transactions write to."""
        return f"ledger-{self.round}"

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return self.input, self.output, self.ledger

    @property
    def copiers(self) -> str:
        """The group of the copiers."""
        return f"copiers-{self.round}"

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups that commit offsets: the copiers, and readers by either protocol."""
        return self.copiers, f"classic-{self.round}", f"consumer-{self.round}"


@dataclass(slots=True)
class Recorder:
    """A history that several threads write to."""

    history: History
    began_ns: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now_ns(self) -> int:
        """The time since the check began."""
        return monotonic_ns() - self.began_ns

    def send(
        self, process: str, where: Partition, transaction: ClientTransaction | None = None
    ) -> SentRecord:
        """Note a record that is about to be sent."""
        with self.lock:
            send = self.history.send(process, where, transaction)
        send.began_ns = self.now_ns
        return send

    def copy(
        self, process: str, where: Partition, value: bytes, within: ClientTransaction
    ) -> SentRecord:
        """Note a copy of a record that is about to be sent."""
        with self.lock:
            send = self.history.copy(process, where, value, within)
        send.began_ns = self.now_ns
        return send

    def begin(self, process: str) -> ClientTransaction:
        """Note a transaction that begins."""
        with self.lock:
            return self.history.begin(process)

    def read_by(self, process: str, where: Partition) -> Reading:
        """Note that a reader begins."""
        with self.lock:
            return self.history.read_by(process, where, self.now_ns)

    def delivered(self, send: SentRecord, error: KafkaError | None, message: Message) -> None:
        """Note what became of a record."""
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            send.acknowledged(offset, self.now_ns)


class ConsumerTenure:
    """What a consumer is given, from one rebalance to the next."""

    def __init__(self, recorder: Recorder, process: str) -> None:
        self._recorder = recorder
        self._process = process
        self._readings: dict[Partition, Reading] = {}

    def assigned(self, _: Consumer, partitions: Iterable[TopicPartition]) -> None:
        """Begin to read."""
        for each in partitions:
            where = Partition(each.topic, each.partition)
            self._readings[where] = self._recorder.read_by(self._process, where)

    def given(self, messages: Iterable[Message]) -> list[Message]:
        """Note what was read, and return it without what are errors."""
        records = [message for message in messages if message.error() is None]
        for message in records:
            where = Partition(str(message.topic()), int(message.partition() or 0))
            self._readings[where].given(
                int(message.offset() or 0), message.value() or b"", self._recorder.now_ns
            )
        return records


class Load:
    """The clients of one round."""

    def __init__(
        self, bootstrap: str, topics: RoundTopics, recorder: Recorder, rate: float, seed: str
    ) -> None:
        """``rate`` is how many records all producers together send to the input in a second."""
        self._client: dict[str, Any] = {**CLIENT, "bootstrap.servers": bootstrap}
        self._topics = topics
        self._recorder = recorder
        self._over = threading.Event()
        self._instances = Counter[str]()
        self._rate = rate
        roles: Mapping[str, Callable[[str, Random], None]] = {
            "producer-1": self._produce,
            "producer-2": self._produce,
            "ledger-1": self._transact,
            "copier-1": self._copy,
            "copier-2": self._copy,
            "classic-1": lambda name, rng: self._consume(name, rng, "classic"),
            "classic-2": lambda name, rng: self._consume(name, rng, "classic"),
            "consumer-1": lambda name, rng: self._consume(name, rng, "consumer"),
            "consumer-2": lambda name, rng: self._consume(name, rng, "consumer"),
            "reader-1": self._read,
        }
        self._threads = [
            threading.Thread(target=role, args=(name, Random(f"{seed}/{name}")), name=name)
            for name, role in roles.items()
        ]
        for thread in self._threads:
            thread.daemon = True

    def start(self) -> None:
        """Let all begin."""
        recorder, topics = self._recorder, self._topics
        recorder.history.copies.append((topics.input, topics.output, topics.copiers))
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float) -> list[StuckClient]:
        """Let all come to their end; return those that do not."""
        self._over.set()
        deadline_s = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(deadline_s - monotonic(), 0))
        return [
            StuckClient(each.name, calls_of(each, __file__), self._send_offsets.__name__)
            for each in self._threads
            if each.is_alive()
        ]

    # Producers

    def _produce(self, name: str, rng: Random) -> None:
        while not self._over.is_set():
            process = self._instance(name)
            producer = Producer(
                {
                    **self._client,
                    "client.id": name,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": rng.choice((0, 5, 20)),
                    "compression.type": rng.choice(("none", "none", "lz4", "zstd")),
                    "message.timeout.ms": 90_000,
                }
            )
            outstanding = Counter[int]()
            with suppress(*ERRORS):
                for _ in range(rng.randint(50, 600)):
                    if self._over.is_set():
                        break
                    self._send_some(producer, process, rng, outstanding)
                if rng.random() < 0.8 or self._over.is_set():
                    producer.flush(90)
                else:
                    producer.purge()
                    producer.flush(1)
            del producer

    def _send_some(
        self, producer: Producer, process: str, rng: Random, outstanding: Counter[int]
    ) -> None:
        recorder, count = self._recorder, rng.randint(1, 9)
        for _ in range(count):
            where = Partition(self._topics.input, rng.randrange(PARTITIONS))
            if outstanding[where.number] >= _OUTSTANDING_MAX:
                continue
            send = recorder.send(process, where)

            def delivered(
                error: KafkaError | None, message: Message, send: SentRecord = send
            ) -> None:
                outstanding[send.partition.number] -= 1
                recorder.delivered(send, error, message)

            outstanding[where.number] += 1
            try:
                producer.produce(
                    where.topic, send.value, partition=where.number, on_delivery=delivered
                )
            except (*ERRORS, BufferError):
                # It was not accepted, so nobody has sent it.
                send.outcome = Outcome.FAILED
                raise
        # Two producers share the rate.
        until_s = monotonic() + rng.expovariate(self._rate / 2 / count)
        while (left_s := until_s - monotonic()) > 0:
            producer.poll(left_s)

    # Transactions

    def _transact(self, name: str, rng: Random) -> None:
        while not self._over.is_set():
            process = self._instance(name)
            with suppress(*ERRORS):
                producer = self._transactional(name)
                while not self._over.is_set():
                    producer.begin_transaction()
                    transaction = self._recorder.begin(process)
                    for _ in range(rng.randint(1, 8)):
                        where = Partition(self._topics.ledger, rng.randrange(PARTITIONS))
                        send = self._recorder.send(process, where, transaction)
                        self._produce_within(producer, send)
                    is_commit = rng.random() < 0.75
                    if not self._end(producer, transaction, is_commit=is_commit):
                        break
                    self._over.wait(rng.expovariate(5))
            self._over.wait(0.2)

    def _transactional(self, name: str) -> Producer:
        producer = Producer(
            {
                **self._client,
                "client.id": name,
                "transactional.id": f"{name}-{self._topics.round}",
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
            }
        )
        self._insist(lambda: producer.init_transactions(_CALL_S))
        return producer

    def _produce_within(self, producer: Producer, send: SentRecord) -> None:
        try:
            producer.produce(
                send.partition.topic,
                send.value,
                partition=send.partition.number,
                on_delivery=lambda error, message: self._recorder.delivered(send, error, message),
            )
        except (*ERRORS, BufferError):
            send.outcome = Outcome.FAILED
            raise

    def _end(self, producer: Producer, transaction: ClientTransaction, *, is_commit: bool) -> bool:
        """End a transaction; return whether its producer can go on.

        Whether a commit that fails for good has taken place is not known, unless the client asks
        for an abort and gets one.
        """
        if is_commit:
            try:
                self._insist(lambda: producer.commit_transaction(_CALL_S))
                transaction.outcome = Outcome.OK
                return True
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    return False
        self._insist(lambda: producer.abort_transaction(_CALL_S))
        transaction.outcome = Outcome.FAILED
        return True

    def _insist(self, act: Callable[[], object]) -> None:
        """Do it until it is done, has failed for good, or has been tried for long."""
        deadline_s = monotonic() + _INSIST_S
        while True:
            try:
                act()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or monotonic() > deadline_s:
                    raise

    def _copy(self, name: str, rng: Random) -> None:
        while not self._over.is_set():
            process = self._instance(name)
            tenure = ConsumerTenure(self._recorder, process)
            consumer = self._consumer(self._topics.copiers, "classic")
            try:
                producer = self._transactional(name)
                consumer.subscribe([self._topics.input], on_assign=tenure.assigned)
                while not self._over.is_set():
                    if not self._copy_some(consumer, producer, process, tenure, rng):
                        break
            except (*ERRORS, RuntimeError):
                pass
            finally:
                with suppress(*ERRORS, RuntimeError):
                    consumer.close()

    def _copy_some(
        self,
        consumer: Consumer,
        producer: Producer,
        process: str,
        tenure: ConsumerTenure,
        rng: Random,
    ) -> bool:
        """Copy some records in a transaction; return False if they are to be read again."""
        # Of before the records: if they are taken away after that, this is refused.
        membership = consumer.consumer_group_metadata()
        records = tenure.given(consumer.consume(rng.randint(1, 50), _POLL_S))
        if not records:
            return True
        producer.begin_transaction()
        transaction = self._recorder.begin(process)
        ends: dict[Partition, int] = {}
        for message in records:
            where = Partition(self._topics.output, int(message.partition() or 0))
            value = message.value() or b""
            self._produce_within(producer, self._recorder.copy(process, where, value, transaction))
            read = Partition(self._topics.input, where.number)
            ends[read] = int(message.offset() or 0) + 1
        if rng.random() < 0.1:
            self._end(producer, transaction, is_commit=False)
            return False
        with self._recorder.lock:
            commits = self._recorder.history.commit(self._topics.copiers, ends, transaction)
        offsets = [TopicPartition(*where, offset) for where, offset in ends.items()]
        try:
            self._insist(lambda: self._send_offsets(producer, offsets, membership))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._end(producer, transaction, is_commit=False)
            return False
        self._end(producer, transaction, is_commit=True)
        if transaction.outcome is not Outcome.OK:
            return False
        with self._recorder.lock:
            self._recorder.history.committed(commits)
        return True

    def _send_offsets(
        self, producer: Producer, offsets: list[TopicPartition], membership: object
    ) -> None:
        """Add offsets to a transaction, in a call that may not end by itself.

        librdkafka 2.16 forgets its time limit if the coordinator is a broker that left the
        metadata just then: it goes on when the state of any connection changes (its issues 5456
        and 5511).
        """
        producer.send_offsets_to_transaction(offsets, membership, _CALL_S)

    # Consumers

    def _consumer(self, group: str, protocol: str) -> Consumer:
        settings: dict[str, Any] = {
            **self._client,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 200,
            "max.poll.interval.ms": 60_000,
        }
        if protocol == "classic":
            # With the other one the group's configs say so.
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}
        return Consumer(settings)

    def _consume(self, name: str, rng: Random, protocol: str) -> None:
        group = f"{protocol}-{self._topics.round}"
        while not self._over.is_set():
            tenure = ConsumerTenure(self._recorder, self._instance(name))
            consumer = self._consumer(group, protocol)
            try:
                topics = [self._topics.input, self._topics.ledger]
                consumer.subscribe(topics, on_assign=tenure.assigned)
                for _ in range(rng.randint(50, 500)):
                    if self._over.is_set():
                        break
                    records = tenure.given(consumer.consume(100, _POLL_S))
                    if records and rng.random() < 0.3:
                        self._commit(consumer, group, records)
            except (*ERRORS, RuntimeError):
                self._over.wait(rng.expovariate(5))
            finally:
                with suppress(*ERRORS, RuntimeError):
                    consumer.close()

    def _commit(self, consumer: Consumer, group: str, records: list[Message]) -> None:
        ends = {
            Partition(str(each.topic()), int(each.partition() or 0)): int(each.offset() or 0) + 1
            for each in records
        }
        with self._recorder.lock:
            commits = self._recorder.history.commit(group, ends)
        offsets = [TopicPartition(*where, offset) for where, offset in ends.items()]
        for done in consumer.commit(offsets=offsets, asynchronous=False) or []:
            if done.error is not None:
                raise KafkaException(done.error)
        with self._recorder.lock:
            self._recorder.history.committed(commits)

    def _read(self, name: str, rng: Random) -> None:
        """Read everything by itself, without a group, through all that happens."""
        tenure = ConsumerTenure(self._recorder, self._instance(name))
        consumer = self._consumer(f"{name}-{self._topics.round}", "classic")
        every = [
            TopicPartition(topic, number, 0)
            for topic in self._topics.all
            for number in range(PARTITIONS)
        ]
        tenure.assigned(consumer, every)
        consumer.assign(every)
        try:
            while not self._over.is_set():
                with suppress(*ERRORS):
                    tenure.given(consumer.consume(200, _POLL_S))
        finally:
            consumer.close()

    def _instance(self, name: str) -> str:
        with self._recorder.lock:
            self._instances[name] += 1
            return f"{name} #{self._instances[name]}"
