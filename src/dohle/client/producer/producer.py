"""The producer: accepts records, gathers them into batches and sends those to their leaders.

``send`` returns where a record was written. ``send_soon`` waits only for what it needs to accept
one: the topic's metadata and space in the buffer. From then on the record is on its way, and its
future has the outcome.

With a ``transactional_id`` records are sent in transactions: consumers with read_committed see all
records of a committed one, and none of an aborted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from dohle.client.config import ProducerConfig
from dohle.client.errors import ClientClosed, TimedOut
from dohle.client.group.membership import GroupMetadata
from dohle.client.group.offsets import OffsetAndMetadata, places_of
from dohle.client.interceptors import ProducerInterceptors, ProducerRecord
from dohle.client.metadata import TopicInfo
from dohle.client.net.connection import Channel
from dohle.client.producer.accumulator import RecordAccumulator, record_bytes_max
from dohle.client.producer.batch import RecordMetadata
from dohle.client.producer.buffer_memory import BufferMemory
from dohle.client.producer.checks import Headers, check_record
from dohle.client.producer.partitioner import (
    Partitioner,
    StickyPartitioner,
    partition_of_key,
    partitioner_of,
)
from dohle.client.producer.sender import Sender
from dohle.client.serializers import Serialization, serialized, serializer_of
from dohle.client.settings.names import Where, given
from dohle.client.transactions.ends import PreparedTransaction
from dohle.client.transactions.requests import TransactionRequests
from dohle.client.transactions.state import ProducerTransactions
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition, TransactionalId
from dohle.records.builder import BatchBuilder
from dohle.records.record import Header


class Producer:
    """Sends records to topics; created and used within a running loop.

    Leaving it as a context manager flushes, unless it is left by a cancellation or an interrupt.

    >>> async def main(bootstrap: str) -> None:
    ...     async with Producer(bootstrap, value_serializer="json") as producer:
    ...         sent = await producer.send("orders", {"item": "coffee"}, key=b"alice")
    ...         print(f"partition {sent.partition}, offset {sent.offset}")
    """

    def __init__(
        self,
        cluster: Where = None,
        config: ProducerConfig | None = None,
        *,
        channel: Channel | None = None,
        key_serializer: Serialization | None = None,
        value_serializer: Serialization | None = None,
        partitioner: str | Partitioner | None = None,
        **settings: Any,
    ) -> None:
        """Send to a cluster: where it is, or a :class:`Cluster` that others use too.

        Settings are a ``config``, or by name (``linger_ms=20``), or a dict with Kafka's own names
        in the place of the first argument. ``channel`` is what coordinators are asked over, by
        default one of its own.
        """
        cluster, is_own, config = given(cluster, config, ProducerConfig, settings)
        self._key_serializer = serializer_of(key_serializer, "key_serializer")
        self._value_serializer = serializer_of(value_serializer, "value_serializer")
        self._partitioner = partitioner_of(partitioner)
        self._interceptors: ProducerInterceptors | None = None
        if config.interceptors:
            self._interceptors = ProducerInterceptors(config.interceptors)
        self._has_own_cluster = is_own
        self.config: ProducerConfig = config
        self._cluster = cluster
        self._clock = cluster.host.clock
        self._memory = BufferMemory(self.config.buffer_memory)
        self._accumulator = RecordAccumulator(self.config)
        self._transactions: TransactionRequests | None = None
        if self.config.transactional_id is not None:
            state = ProducerTransactions(TransactionalId(self.config.transactional_id))
            self._transactions = TransactionRequests(cluster, self.config, state, channel)
        self._sender = Sender(
            cluster, self.config, self._accumulator, self._memory, self._transactions
        )
        #: What is left to be ended, if all its records are written.
        self._prepared: PreparedTransaction | None = None
        self._sticky = StickyPartitioner(cluster.rng)
        #: The partitions with a leader, and the topic's metadata they were taken from.
        self._available: dict[TopicName, tuple[TopicInfo, Sequence[int]]] = {}
        self._should_yield = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        await self.close(flush=kind is None or issubclass(kind, Exception))

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record and return where it was written, once it is acknowledged.

        One after the other takes a round trip for each: for many, use :meth:`send_soon`.
        """
        outcome = await self.send_soon(
            topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers
        )
        # A caller that gives up does not take the record back.
        return await asyncio.shield(outcome)

    def send_soon(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Coroutine[Any, Any, asyncio.Future[RecordMetadata]]:
        """Accept a record and return the future of where it is written.

        The partition is the one given, else that of the key, else one that gathers records
        without keys. The timestamp is in milliseconds, by default now.
        """
        if self._interceptors is not None:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            return self._interceptors.send(record, self._accept)
        return self._accept(topic, value, key, partition, timestamp, headers)

    async def _accept(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        if key.__class__ is not bytes or self._key_serializer is not None:
            key = serialized(key, self._key_serializer, "key")
        if value.__class__ is not bytes or self._value_serializer is not None:
            value = serialized(value, self._value_serializer, "value")
        pairs: Sequence[Header] = ()
        if topic.__class__ is not str or partition is not None or timestamp is not None or headers:
            pairs = check_record(topic, partition, timestamp, headers)
        if self._should_yield:
            # Without this a caller that never waits would keep full batches from being sent.
            self._should_yield = False
            await asyncio.sleep(0)
        self._check_open()
        if self._transactions is not None:
            self._transactions.state.check_send()
        name = TopicName(topic)
        size = record_bytes_max(key, value, pairs)
        try:
            self._check_size(size)
            if self._partitioner is not None and partition is None:
                partition = await self._choose_by_own(self._partitioner, name, key, value)
            info = self._cluster.known_topic(name)
            is_known = info is not None and (partition is None or partition in info.partitions)
            if info is None or not is_known or not self._memory.try_take(size):
                info = await self._wait_for(name, partition, size)
        except Exception as error:
            self._spoil_transaction(error)
            raise
        # Nothing waits from here on: the room is taken and the order of calls is kept.
        try:
            self._check_open()
            where = self._choose(info, key, partition, size)
            if self._transactions is not None:
                self._transactions.state.check_send()
                self._transactions.state.add(where)
            if timestamp is None:
                timestamp = self._clock.now_ms()
            now_ms = self._sender.now_ms()
            future, look = self._accumulator.append(
                where, timestamp, key, value, pairs, size, now_ms
            )
        except BaseException:
            self._memory.give(size)
            raise
        if look:
            self._should_yield = True
            self._sender.wake()
        return future

    def hand_over_interceptors(self) -> ProducerInterceptors | None:
        """Leave interceptors to the caller, which sees records before they are serialized."""
        interceptors, self._interceptors = self._interceptors, None
        return interceptors

    def _spoil_transaction(self, error: Exception) -> None:
        """Let a transaction without one of its records not be committed, as in Java's client."""
        if self._transactions is not None:
            if not isinstance(error, KafkaError):
                error = KafkaError(ErrorCode.INVALID_RECORD, str(error))
            self._transactions.state.batch_failed(error)

    def new_batch(self) -> BatchBuilder:
        """Begin a batch to be filled by the caller and sent by :meth:`send_batch`."""
        return self._accumulator.new_builder()

    async def send_batch(
        self, partition: TopicPartition, batch: BatchBuilder
    ) -> asyncio.Future[RecordMetadata]:
        """Accept a batch that is filled, and return the future of where its first record is.

        It is sent as it is, however large: a broker takes up to ``max.message.bytes``.
        Interceptors do not see it.
        """
        await asyncio.sleep(0)  # a caller that never waits would keep batches from being sent
        self._check_open()
        size = batch.size
        name, index = partition
        info = self._cluster.known_topic(name)
        if info is None or index not in info.partitions or not self._memory.try_take(size):
            await self._wait_for(name, index, size)
        try:
            self._check_open()
            if self._transactions is not None:
                self._transactions.state.check_send()
                self._transactions.state.add(partition)
            future = self._accumulator.append_batch(partition, batch, self._sender.now_ms())
        except BaseException:
            self._memory.give(size)
            raise
        self._sender.wake()
        return future

    async def flush(self) -> None:
        """Send all records without lingering and wait until each has its outcome.

        What failed is told by the records' futures.
        """
        await self._sender.flush()

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Get ready for transactions; whoever used the transactional id before is fenced.

        What it left open is aborted, what it was about to commit is committed first. With
        ``keep_prepared`` what it left open is kept and returned (KIP-939): then there is nothing to
        do but to commit it, abort it, or complete it.
        """
        transactions = self._transactional()
        transactions.state.check_init()
        if not keep_prepared:
            is_v2, identity = await asyncio.gather(
                transactions.is_v2(), transactions.init_producer_id(None)
            )
            transactions.state.initialized(identity, is_v2=is_v2)
            return None
        is_v2, (identity, ongoing) = await asyncio.gather(
            transactions.is_v2(), transactions.take_over()
        )
        transactions.state.initialized(identity, is_v2=is_v2, has_kept=ongoing is not None)
        if ongoing is not None:
            self._prepared = PreparedTransaction(
                transactions.state.transactional_id, ongoing, is_v2=is_v2
            )
        return self._prepared

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Send what is sent within in one transaction: all of it is committed, or nothing.

        It is committed at the end, and aborted if that fails or anything else is raised.
        """
        if not self._transactional().state.is_initialized:
            await self.init_transactions()
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort, unless the producer has been fenced: what was raised tells more than that."""
        try:
            await self.abort_transaction()
        except (KafkaError, ValueError) as failure:
            error.add_note(f"the transaction could not be aborted: {failure}")

    def begin_transaction(self) -> None:
        """Begin a transaction; the brokers learn of it by its first record."""
        self._check_open()
        self._transactional().state.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata
    ) -> None:
        """Let offsets of a group be committed with the transaction, or not at all.

        ``group`` is what the consumer says of itself: :meth:`Consumer.group_metadata`.
        """
        transactions = self._transactional()
        places = places_of(offsets)
        transactions.state.add_offsets()
        if not transactions.state.is_v2:
            await transactions.add_offsets(group)
        await transactions.commit_offsets(group, places)

    async def commit_transaction(self) -> None:
        """Send all records and commit; if one of them failed, raise: then it must be aborted."""
        transactions = self._transactional()
        transactions.state.commit()
        await self._sender.flush()
        transactions.state.commit()
        await self._end(transactions, commit=True)

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send all records and leave the transaction open; None if there was no record.

        Whoever is told what is returned can end it: see :func:`end_transaction`. Here it can be
        ended too, but nothing else can be done until then.
        """
        transactions = self._transactional()
        transactions.state.commit()
        await self._sender.flush()
        transactions.state.commit()
        self._prepared = transactions.prepared() if transactions.state.has_to_end else None
        transactions.state.prepared()
        return self._prepared

    async def complete_transaction(self, decided: PreparedTransaction) -> bool | None:
        """End the prepared transaction: commit it if it is ``decided``, else abort it.

        For a caller that noted which one to commit, and then lost its producer. Tells
        whether it was committed; None if there is none.
        """
        if self._prepared is None:
            self._transactional().state.check_ready()
            return None
        is_decided = self._prepared.identity == decided.identity
        await (self.commit_transaction() if is_decided else self.abort_transaction())
        return is_decided

    async def abort_transaction(self) -> None:
        """Throw the transaction away, with what was sent of it and what was not."""
        transactions = self._transactional()
        transactions.state.abort()
        await self._sender.drop_waiting(
            KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")
        )
        await self._end(transactions, commit=False)

    async def _end(self, transactions: TransactionRequests, *, commit: bool) -> None:
        state = transactions.state
        identity = None
        if state.has_to_end:
            state.ending()
            identity = await transactions.end(commit=commit)
        if state.needs_new_epoch:
            identity = await transactions.init_producer_id(state.identity)
        if identity is not None:
            self._sender.restart_sequences()
        state.ended(identity)
        self._prepared = None

    def _transactional(self) -> TransactionRequests:
        if self._transactions is None:
            raise ValueError("for transactions a producer needs a transactional_id")
        return self._transactions

    async def close(self, *, flush: bool = True) -> None:
        """Take no more records, flush unless told not to, and stop.

        A transaction that is open then stays so until the next ``init_transactions`` of its id,
        or its timeout.
        """
        self._is_closed = True
        try:
            if flush:
                await self._sender.flush()
        finally:
            await self._sender.stop()
            if self._interceptors is not None:
                # Those that are told of outcomes by the loop come first.
                asyncio.get_running_loop().call_soon(self._interceptors.close)
                await asyncio.sleep(0)
            if self._transactions is not None:
                await self._transactions.close()
            if self._has_own_cluster:
                await self._cluster.close()

    async def _wait_for(self, name: TopicName, partition: int | None, size: int) -> TopicInfo:
        """Wait for the topic and for room, together at most ``max_block_ms``."""
        timeout_ms = self.config.max_block_ms
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        info = await self._wait_for_topic(name, partition)
        if not self._memory.try_take(size):
            self._sender.wake()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._memory.take(size)
            except TimeoutError:
                raise TimedOut(
                    f"a record for {name} was not accepted within {timeout_ms} ms: the buffer of "
                    f"{self._memory.limit} bytes (buffer_memory) is full of records that are not "
                    "acknowledged"
                ) from None
        return info

    async def _wait_for_topic(self, name: TopicName, partition: int | None) -> TopicInfo:
        return await self._cluster.retry(
            f"a record for {name} is not accepted, for want of the topic's metadata",
            lambda: self._topic_with(name, partition),
            timeout_ms=self.config.max_block_ms,
        )

    async def _topic_with(self, name: TopicName, partition: int | None) -> TopicInfo:
        info = await self._cluster.topic(
            name, allow_auto_topic_creation=self.config.allow_auto_create_topics
        )
        if partition is not None and partition not in info.partitions:
            await self._cluster.refresh((name,))
            info = await self._cluster.topic(name)
        if partition is not None and partition not in info.partitions:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"{name} has {len(info.partitions)} partitions and no partition {partition}",
            )
        return info

    async def _choose_by_own(
        self, choose: Partitioner, name: TopicName, key: bytes | None, value: bytes | None
    ) -> int | None:
        """Ask the user's partitioner, which has to know how many partitions there are."""
        info = self._cluster.known_topic(name) or await self._wait_for_topic(name, None)
        chosen = choose(name, key, value, len(info.partitions))
        if chosen is not None and not 0 <= chosen < len(info.partitions):
            raise ValueError(
                f"the partitioner chose {chosen!r} for {name}, which has the partitions 0 to "
                f"{len(info.partitions) - 1}"
            )
        return chosen

    def _choose(
        self, info: TopicInfo, key: bytes | None, partition: int | None, size: int
    ) -> TopicPartition:
        """Choose the partition of a record."""
        name = info.name
        if partition is not None:
            return TopicPartition(name, partition)
        if key is not None:
            return TopicPartition(name, partition_of_key(key, len(info.partitions)))
        known = self._available.get(name)
        if known is None or known[0] is not info:
            led = [each.partition for each in info.partitions.values() if each.leader_id >= 0]
            known = self._available[name] = (info, led or list(info.partitions))
        available = known[1]
        where = TopicPartition(name, self._sticky.current(name, available))
        if self._accumulator.has_room(where, size):
            return where
        # A new batch is due, here or elsewhere: this is when to move on.
        if self._accumulator.seal(where):
            self._sender.wake()
        return TopicPartition(name, self._sticky.move(name, available))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed")

    def _check_size(self, size: int) -> None:
        limit = min(self.config.max_request_size, self.config.buffer_memory)
        if size > limit:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of up to {size} bytes is larger than {limit}: raise max_request_size "
                "(and the topic's max.message.bytes), or send less",
            )
