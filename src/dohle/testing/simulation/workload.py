"""What the clients of a run do: produce, consume in groups, use transactions, change topics.

Each role is a program for a machine of its own, written with dohle's real client. It goes on until
it is told that the run is over, takes any error as a matter of course, notes in the history what it
does and sees, and begins anew with new producers and consumers where one has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dohle.client import (
    Admin,
    Beginning,
    ClientConfig,
    Cluster,
    ConsumedRecord,
    Consumer,
    ConsumerConfig,
    End,
    IsolationLevel,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
)
from dohle.client.errors import TimedOut
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing.checking.history import (
    ClientTransaction,
    Delivery,
    History,
    Outcome,
    Partition,
    Reading,
    SentRecord,
)
from dohle.testing.simulation.administration import (
    ADMINISTRATOR,
    Administrator,
    note_final_topics,
)
from dohle.testing.simulation.client_settings import grouped, plain, transactional
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.members import MEMBERS, SimulatedMember, Tenure

INPUT, OUTPUT, LEDGER = "input", "output", "ledger"
#: Whose producers are not idempotent.
LOOSE = "loose"
TOPICS = (INPUT, OUTPUT, LEDGER, LOOSE)
COPIERS, READERS = "copiers", "readers"
#: What is given is promised by what is asked for: acks 0, 1 and all, without idempotence.
_LOOSE_ACKS = {0: Delivery.AT_MOST_ONCE, 1: Delivery.AT_LEAST_ONCE, -1: Delivery.AT_LEAST_ONCE}

CLIENT = ClientConfig(
    request_timeout_ms=3_000,
    api_timeout_ms=8_000,
    socket_connection_setup_timeout_ms=2_000,
    retry_backoff_max_ms=500,
)
#: Longer than what the faults of a run last, for what must succeed in the end.
PATIENT = ClientConfig(api_timeout_ms=60_000, socket_connection_setup_timeout_ms=2_000)
_POLL_MS = 300

Program = Callable[[SimulatedHost], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Workload:
    """The clients' programs, and what they have in common."""

    bootstrap: str
    history: History
    now_ns: Callable[[], int]
    is_over: Callable[[], bool]
    partitions: int = 3
    #: Those of the topics. If they are compacted, nothing goes but what was aborted: each record
    #: has a key of its own.
    configs: Mapping[str, str] = field(default_factory=dict)
    #: The directories of the node's logs.
    log_dirs: Sequence[str] = ()
    #: How long a client rests between two operations, on average.
    rest_s: float = 0.1
    #: Whether all that was acknowledged is kept. Else a coordinator may have forgotten of a
    #: transaction that is then open for ever, so that readers of committed records wait for it.
    is_kept: bool = True
    #: Where the readers are, if brokers are in racks.
    rack: str = ""
    _instances: int = field(default=0)

    def __post_init__(self) -> None:
        self.history.patience_ns = CLIENT.request_timeout_ms * 1_000_000

    def roles(self) -> dict[str, Program]:
        """Return the programs that a client may have."""
        return {
            "produce": self._produce,
            "transact": self._transact,
            "weave": self._weave,
            "copy": self._copy,
            "consume": self._consume,
            "scatter": self._scatter,
            "join": self._join,
            "administer": self._administer,
        }

    async def set_up(self, host: SimulatedHost) -> None:
        """Make the topics."""
        async with Cluster(self.bootstrap, PATIENT, host=host) as cluster:
            topics = [NewTopic(name, self.partitions, configs=self.configs) for name in TOPICS]
            while True:
                made = await Admin(cluster).create_topics(topics)
                if all(e.code is ErrorCode.TOPIC_ALREADY_EXISTS for e in made.errors.values()):
                    return
                await asyncio.sleep(0.1)

    # Roles

    async def _produce(self, host: SimulatedHost) -> None:
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                await self._produce_with(host, cluster, plain(host), INPUT)

    async def _scatter(self, host: SimulatedHost) -> None:
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                acks = host.rng.choice(sorted(_LOOSE_ACKS))
                config = replace(plain(host), acks=acks, enable_idempotence=False)
                await self._produce_with(host, cluster, config, LOOSE, _LOOSE_ACKS[acks])

    async def _produce_with(
        self,
        host: SimulatedHost,
        cluster: Cluster,
        config: ProducerConfig,
        topic: str,
        delivery: Delivery = Delivery.EXACTLY_ONCE,
    ) -> None:
        process = self._instance(host, "producer")
        producer = Producer(cluster, config)
        try:
            for _ in range(host.rng.randint(1, 40)):
                if self.is_over():
                    break
                await self._send_some(host, producer, process, topic, None, delivery)
                await self._rest(host)
        finally:
            await producer.close(flush=False)

    async def _transact(self, host: SimulatedHost) -> None:
        transactional_id = f"ledger of {host.machine.name}"
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                producer = Producer(cluster, transactional(transactional_id, host))
                process = self._instance(host, "ledger")
                try:
                    await producer.init_transactions()
                    while not self.is_over():
                        await self._one_transaction(host, producer, process)
                        await self._rest(host)
                except KafkaError:
                    await self._rest(host)
                finally:
                    await producer.close(flush=False)

    async def _one_transaction(self, host: SimulatedHost, producer: Producer, process: str) -> None:
        producer.begin_transaction()
        transaction = self.history.begin(process, self.now_ns())
        for _ in range(host.rng.randint(1, 3)):
            await self._send_some(host, producer, process, LEDGER, transaction)
        await self._end(host, producer, transaction)

    async def _end(
        self, host: SimulatedHost, producer: Producer, transaction: ClientTransaction
    ) -> None:
        if host.rng.random() < 0.25:
            await producer.abort_transaction()
            transaction.outcome = Outcome.FAILED
        else:
            await producer.commit_transaction()
            transaction.committed(self.now_ns())

    async def _weave(self, host: SimulatedHost) -> None:
        """Read in transactions what others write in theirs, into the same topic."""
        where = [TopicPartition(TopicName(LEDGER), number) for number in range(self.partitions)]
        level = IsolationLevel.READ_COMMITTED
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                producer = Producer(cluster, transactional(f"weaver of {host.machine.name}", host))
                config = ConsumerConfig(isolation_level=level, fetch_max_wait_ms=200)
                consumer = Consumer(cluster, config)
                process, now_ns = self._instance(host, "weaver"), self.now_ns()
                read = [self.history.read_by(process, Partition(*each), now_ns) for each in where]
                try:
                    await producer.init_transactions()
                    await consumer.assign(dict.fromkeys(where, Beginning()))
                    while not self.is_over():
                        await self._weave_once(host, producer, consumer, process, read)
                        await self._rest(host)
                except KafkaError:
                    await self._rest(host)
                finally:
                    await producer.close(flush=False)
                    await consumer.close()

    async def _weave_once(
        self,
        host: SimulatedHost,
        producer: Producer,
        consumer: Consumer,
        process: str,
        read: Sequence[Reading],
    ) -> None:
        producer.begin_transaction()
        transaction = self.history.begin(process, self.now_ns())
        for _ in range(host.rng.randint(1, 4)):
            if host.rng.random() < 0.5:
                await self._send_some(host, producer, process, LEDGER, transaction)
                continue
            for found in await consumer.poll(timeout_ms=_POLL_MS, max_records=20):
                value = found.record.value or b""
                read[found.partition].given(found.record.offset, value, self.now_ns())
                transaction.reads.append((read[found.partition].partition, value))
        await self._end(host, producer, transaction)

    async def _copy(self, host: SimulatedHost) -> None:
        transactional_id = f"copier of {host.machine.name}"
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                process = self._instance(host, "copier")
                producer = Producer(cluster, transactional(transactional_id, host))
                consumer = Consumer(cluster, grouped(COPIERS))
                tenure = self._tenure(process, COPIERS, consumer)
                try:
                    await producer.init_transactions()
                    await consumer.subscribe([INPUT], tenure)
                    await self._copy_on(host, consumer, producer, process, tenure)
                except KafkaError:
                    await self._rest(host)
                finally:
                    await producer.close(flush=False)
                    with suppress(KafkaError):
                        await consumer.close(commit=False)

    async def _copy_on(
        self,
        host: SimulatedHost,
        consumer: Consumer,
        producer: Producer,
        process: str,
        tenure: Tenure,
    ) -> None:
        """Copy until something fails or is aborted: then what was read is read again."""
        while not self.is_over():
            # Of before the records: if they are taken away after that, this is refused.
            membership = consumer.group_metadata()
            records = await consumer.poll(timeout_ms=_POLL_MS, max_records=host.rng.randint(1, 50))
            tenure.given(records)
            if not records:
                continue
            producer.begin_transaction()
            transaction = self.history.begin(process, self.now_ns())
            futures = []
            for record in records:
                where = Partition(OUTPUT, record.partition)
                send = self.history.copy(process, where, record.record.value or b"", transaction)
                sent = await producer.send_soon(
                    OUTPUT, send.value, key=send.value, partition=record.partition
                )
                futures.append((send, sent))
            if host.rng.random() < 0.1:
                await producer.abort_transaction()
                transaction.outcome = Outcome.FAILED
                await _outcomes(futures, self.now_ns)
                return
            ends = {Partition(r.topic, r.partition): r.record.offset + 1 for r in records}
            await _outcomes(futures, self.now_ns)
            commits = self.history.commit(
                COPIERS,
                ends,
                transaction,
                generation=membership.generation_id,
                began_ns=self.now_ns(),
            )
            await producer.send_offsets_to_transaction(_offsets(ends), membership)
            await producer.commit_transaction()
            transaction.committed(self.now_ns())
            self.history.committed(commits, self.now_ns())
            await self._rest(host)

    async def _consume(self, host: SimulatedHost) -> None:
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                process = self._instance(host, "consumer")
                consumer = Consumer(cluster, replace(grouped(READERS), client_rack=self.rack))
                tenure = self._tenure(process, READERS, consumer)
                try:
                    await consumer.subscribe([INPUT, LEDGER], tenure)
                    for _ in range(host.rng.randint(5, 100)):
                        if self.is_over():
                            break
                        records = await consumer.poll(timeout_ms=_POLL_MS, max_records=100)
                        tenure.given(records)
                        if records and host.rng.random() < 0.5:
                            await self._commit(consumer, records)
                        await self._rest(host)
                except KafkaError:
                    await self._rest(host)
                finally:
                    with suppress(KafkaError):
                        await consumer.close(commit=False)

    async def _commit(self, consumer: Consumer, records: Sequence[ConsumedRecord]) -> None:
        ends = {Partition(r.topic, r.partition): r.record.offset + 1 for r in records}
        generation = consumer.group_metadata().generation_id
        commits = self.history.commit(READERS, ends, generation=generation, began_ns=self.now_ns())
        await consumer.commit(_offsets(ends))
        self.history.committed(commits, self.now_ns())

    async def _join(self, host: SimulatedHost) -> None:
        async with Cluster(self.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over():
                process = self._instance(host, "member")
                tenure = Tenure(self.history, process, self.now_ns, MEMBERS)
                topics = [INPUT, LOOSE]
                member = SimulatedMember(cluster, host, self.history, topics, tenure, self.now_ns)
                try:
                    for _ in range(host.rng.randint(5, 60)):
                        if self.is_over():
                            break
                        await member.go_on()
                        await self._rest(host)
                except KafkaError:
                    await self._rest(host)
                finally:
                    await member.leave()

    async def _administer(self, host: SimulatedHost) -> None:
        name = self._instance(host, "administrator").replace(" ", "-")
        async with Cluster(self.bootstrap, ADMINISTRATOR, host=host) as cluster:
            moved = [(topic, self.partitions) for topic in TOPICS]
            admin = Administrator(cluster, host, self.history, name, self.log_dirs, moved)
            while not self.is_over():
                await admin.change_something()
                await self._rest(host)

    # Parts of them

    async def _send_some(
        self,
        host: SimulatedHost,
        producer: Producer,
        process: str,
        topic: str,
        transaction: ClientTransaction | None,
        delivery: Delivery = Delivery.EXACTLY_ONCE,
    ) -> None:
        futures = []
        for _ in range(host.rng.randint(1, 8)):
            where = Partition(topic, host.rng.randrange(self.partitions))
            send = self.history.send(process, where, transaction)
            send.began_ns, send.delivery = self.now_ns(), delivery
            try:
                sent = await producer.send_soon(
                    topic, send.value, key=send.value, partition=where.number
                )
            except KafkaError:
                # It was not accepted, so nobody has sent it.
                send.outcome = Outcome.FAILED
                if transaction is not None:
                    raise
                continue
            futures.append((send, sent))
        await _outcomes(futures, self.now_ns)

    def _tenure(self, process: str, group: str, consumer: Consumer) -> Tenure:
        def generation() -> int:
            return consumer.group_metadata().generation_id

        return Tenure(self.history, process, self.now_ns, group, generation)

    def _instance(self, host: SimulatedHost, what: str) -> str:
        self._instances += 1
        return f"{what} {self._instances} of {host.machine.name}"

    async def _rest(self, host: SimulatedHost) -> None:
        await asyncio.sleep(host.rng.expovariate(1 / self.rest_s))

    # The end

    async def inspect(self, host: SimulatedHost) -> None:
        """Read everything, once no transaction is open any more, and the groups' offsets."""
        level = IsolationLevel.READ_COMMITTED if self.is_kept else IsolationLevel.READ_UNCOMMITTED
        history = self.history
        async with Cluster(self.bootstrap, PATIENT, host=host) as cluster:
            partitions = [
                TopicPartition(TopicName(topic), number)
                for topic in TOPICS
                for number in range(self.partitions)
            ]
            if self.is_kept:
                await _until_stable(Admin(cluster), partitions)
            config = ConsumerConfig(isolation_level=level)
            async with Consumer(cluster, config) as consumer:
                await consumer.assign({each: Beginning() for each in partitions}, stop_at_end=True)
                for each in partitions:
                    history.final[Partition(*each)] = []
                async for found in consumer:
                    place = found.record.offset, found.record.value or b""
                    history.final[Partition(found.topic, found.partition)].append(place)
            for group in (COPIERS, READERS, MEMBERS):
                config = ConsumerConfig(group_id=group, enable_auto_commit=False)
                async with Consumer(cluster, config) as consumer:
                    try:
                        committed = await consumer.committed(partitions)
                    except TimedOut:
                        if self.is_kept:
                            raise
                        # Of a transaction that is open for ever.
                        continue
                for each in partitions:
                    known = committed.get(each)
                    offset = None if known is None else known.offset
                    history.looked(group, Partition(*each), offset)
            await note_final_topics(Admin(cluster), history)


async def _until_stable(admin: Admin, partitions: Sequence[TopicPartition]) -> None:
    """Wait until nothing is held back from readers of committed records."""
    ends = dict.fromkeys(partitions, End())
    while True:
        with suppress(KafkaError):
            stable = await admin.list_offsets(ends, isolation_level=IsolationLevel.READ_COMMITTED)
            all_ = await admin.list_offsets(ends)
            if stable.ok() == all_.ok():
                return
        await asyncio.sleep(0.5)


async def _outcomes(
    futures: Sequence[tuple[SentRecord, asyncio.Future[Any]]], now_ns: Callable[[], int]
) -> None:
    """Note what became of records; of an error it is not known what it says."""
    for send, future in futures:
        try:
            found = await future
        except KafkaError as error:
            send.is_out_of_order = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            continue
        if found.offset >= 0:
            send.acknowledged(found.offset, now_ns())


def _offsets(ends: dict[Partition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(TopicName(each.topic), each.number): OffsetAndMetadata(offset)
        for each, offset in ends.items()
    }
