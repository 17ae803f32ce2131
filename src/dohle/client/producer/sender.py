"""Sends batches to their leaders: one task that looks for batches to send, and one per request.

The loop looks again when a batch is full, when a response arrives, when metadata has changed and
when the next linger, retry or delivery time is reached; it never polls. How a response affects the
other batches of its partition is decided in :mod:`dohle.client.producer.partition_queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from dohle.client.cluster import Cluster
from dohle.client.config import ProducerConfig
from dohle.client.errors import ClientClosed, TimedOut, answered_error
from dohle.client.metadata import BrokerInfo
from dohle.client.producer.accumulator import RecordAccumulator
from dohle.client.producer.batch import NO_OFFSET, ProducerBatch, ProducerIdentity
from dohle.client.producer.buffer_memory import BufferMemory
from dohle.client.producer.partition_queue import PartitionQueue
from dohle.client.transactions.requests import PRODUCE_V1_MAX, TransactionRequests
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_EPOCH_MAX = 32_766


class Sender:
    """The background part of a producer."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        memory: BufferMemory,
        transactions: TransactionRequests | None = None,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._memory = memory
        self._transactions = transactions
        self._is_adding_partitions = False
        self._answered = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._requests_in_flight: dict[BrokerId, int] = {}
        self._turns: dict[BrokerId, asyncio.Lock] = {}
        self._identity: ProducerIdentity | None = None
        self._identity_failures = 0
        self._identity_at_ms = 0.0
        self._is_asking_identity = False
        self._stale_topics: set[TopicName] = set()
        self._is_refreshing = False
        self._flushes = 0
        self._loop = asyncio.get_running_loop()
        self._spawn(self._run())

    def now_ms(self) -> float:
        """Return the time by which lingers and timeouts are measured."""
        return self._loop.time() * 1000

    def wake(self) -> None:
        """Let the loop look for work."""
        self._wake.set()

    async def flush(self) -> None:
        """Send everything without lingering, and wait for the outcomes."""
        self._flushes += 1
        self.wake()
        try:
            unfinished = [batch.done for batch in self._accumulator.unfinished()]
            if unfinished:
                await asyncio.wait(unfinished)
        finally:
            self._flushes -= 1

    async def stop(self) -> None:
        """Stop at once; unfinished batches fail."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        error = ClientClosed("the producer was closed before the records were delivered")
        for batch in [*self._accumulator.unfinished()]:
            batch.fail(error)

    async def drop_waiting(self, error: KafkaError) -> None:
        """Fail unsent batches, and wait for those in flight, without retries."""
        waiting = [each for queue in self._accumulator.active_queues() for each in queue.waiting]
        if self._transactions is not None and any(batch.has_sequence for batch in waiting):
            # Without them the sequence has a gap.
            self._transactions.state.batch_failed(error)
        self._fail_all_waiting(error)
        while self._is_adding_partitions or any(self._requests_in_flight.values()):
            self._answered.clear()
            await self._answered.wait()

    def restart_sequences(self) -> None:
        """Restart all sequences with another identity."""
        self._accumulator.restart_sequences()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            look_at_ms = self._send_what_may_go(self.now_ms())
            timer = None
            if look_at_ms is not None:
                timer = self._loop.call_at(look_at_ms / 1000, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _send_what_may_go(self, now_ms: float) -> float | None:
        """Send all batches that are due; return when to look again at the latest."""
        look_at_ms = [
            batch.created_ms + self._config.delivery_timeout_ms
            for queue in self._accumulator.active_queues()
            if (batch := self._oldest_after_expiry(queue, now_ms)) is not None
        ]
        if not look_at_ms:
            return None
        if self._config.enable_idempotence and not self._has_identity(now_ms):
            return min(look_at_ms) if self._is_asking_identity else self._identity_at_ms
        requests: dict[BrokerId, list[ProducerBatch]] = {}
        sizes: dict[BrokerId, int] = {}
        at_once = bool(self._flushes) or self._memory.is_exhausted
        for queue in self._accumulator.active_queues():
            due_ms = self._accumulator.send_at_ms(queue, at_once=at_once)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                look_at_ms.append(due_ms)
                continue
            if not self._is_in_transaction(queue):
                continue  # adding it to the transaction wakes the loop
            leader = self._cluster.metadata.leader(queue.partition)
            if leader is None:
                look_at_ms.append(self._wait_for_leader(queue, now_ms))
                continue
            node_id = leader.node_id
            size = sizes.get(node_id, 0) + queue.waiting[0].builder.size
            in_flight = self._requests_in_flight.get(node_id, 0)
            if size > self._config.max_request_size and node_id in requests:
                self._send(node_id, requests.pop(node_id))
                size = queue.waiting[0].builder.size
                in_flight += 1
            if in_flight >= self._config.max_in_flight_requests:
                continue  # its next response wakes the loop
            sizes[node_id] = size
            requests.setdefault(node_id, []).append(queue.take(self._current_identity()))
            self._accumulator.had_its_turn(queue)
        for node_id, batches in requests.items():
            self._send(node_id, batches)
        if requests:
            self.wake()  # partitions may have another batch to send
        return min(look_at_ms)

    def _oldest_after_expiry(self, queue: PartitionQueue, now_ms: float) -> ProducerBatch | None:
        """Expire old batches and restart broken sequences; return the oldest batch left."""
        expired = queue.expired(now_ms, self._config.delivery_timeout_ms)
        for batch in expired:
            self._memory.give(batch.memory)
        given_up = expired or any(batch.done.done() for batch in queue.in_flight)
        if given_up and self._transactions is not None:
            self._fail_transaction(TimedOut(f"records for {queue.partition} were not delivered"))
        if queue.is_broken and not queue.in_flight and self._transactions is None:
            if queue.identity == self._identity:
                self._bump_epoch()
            for batch in queue.restart():
                self._memory.give(batch.memory)
        self._accumulator.settle(queue)
        unfinished = [batch for batch in queue.in_flight if not batch.done.done()]
        if unfinished:
            return unfinished[0]
        return queue.waiting[0] if queue.waiting else None

    def _wait_for_leader(self, queue: PartitionQueue, now_ms: float) -> float:
        queue.leader_failures += 1
        delay_s = self._cluster.backoff.delay_s(queue.leader_failures)
        queue.not_before_ms = now_ms + delay_s * 1000
        self._refresh_metadata(queue.partition.topic)
        return queue.not_before_ms

    def _send(self, node_id: BrokerId, batches: list[ProducerBatch]) -> None:
        self._requests_in_flight[node_id] = self._requests_in_flight.get(node_id, 0) + 1
        self._spawn(self._produce(node_id, batches))

    async def _produce(self, node_id: BrokerId, batches: list[ProducerBatch]) -> None:
        """Send one request and finish its batches."""
        try:
            answer = None
            # Requests leave in the order in which they were made, even while a connection opens.
            async with self._turns.setdefault(node_id, asyncio.Lock()):
                connection = await self._cluster.connection(node_id)
                request = self._request(batches)
                if self._config.acks == 0:
                    await connection.post(request)
                else:
                    answer = await connection.send(
                        request, ProduceResponse, version_max=self._version_max()
                    )
            if answer is not None:
                self._settle_all(batches, await answer)
                return
            for batch in batches:
                self._settle(batch, PartitionProduceResponse(base_offset=NO_OFFSET))
        except KafkaError as error:
            for batch in batches:
                self._fail(batch, error)
        except Exception as error:
            # Whatever it was, the callers must learn of it, or they would wait for ever.
            for batch in batches:
                self._fail(batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            raise
        finally:
            self._requests_in_flight[node_id] -= 1
            self._answered.set()
            self.wake()

    def _request(self, batches: Iterable[ProducerBatch]) -> ProduceRequest:
        topics: dict[TopicName, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.partition
            data = PartitionProduceData(index=partition, records=memoryview(batch.encoded()))
            topics.setdefault(topic, []).append(data)
        transactions = self._transactions
        return ProduceRequest(
            transactional_id=None if transactions is None else transactions.state.transactional_id,
            acks=self._config.acks,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(
                    name=name,
                    topic_id=self._cluster.metadata.topic_id(name),
                    partition_data=tuple(partitions),
                )
                for name, partitions in topics.items()
            ),
        )

    def _settle_all(self, batches: list[ProducerBatch], answer: ProduceResponse) -> None:
        endpoints = tuple(
            BrokerInfo(each.node_id, each.host, each.port, each.rack)
            for each in answer.node_endpoints
        )
        found: dict[tuple[TopicName | Uuid, int], PartitionProduceResponse] = {
            (topic.name or topic.topic_id, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            topic, index = batch.partition
            result = found.get((topic, index)) or found.get(
                (self._cluster.metadata.topic_id(topic), index)
            )
            if result is None:
                error = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    (f"the response does not contain {batch.partition}"),
                )
                self._fail(batch, error)
                continue
            leader = result.current_leader
            self._cluster.note_leader(
                batch.partition, leader.leader_id, leader.leader_epoch, endpoints
            )
            self._settle(batch, result)

    def _settle(self, batch: ProducerBatch, result: PartitionProduceResponse) -> None:
        code = result.error_code
        if code and code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            details = [result.error_message] if result.error_message else []
            details += [
                f"record {each.batch_index}: {each.batch_index_error_message}"
                for each in result.record_errors
            ]
            self._fail(batch, answered_error(code, str(batch.partition), "; ".join(details)))
            return
        queue = self._accumulator.queue(batch.partition)
        queue.succeeded(batch)
        batch.succeed(NO_OFFSET if code else result.base_offset, result.log_append_time_ms)
        self._memory.give(batch.memory)
        self._accumulator.settle(queue)

    def _fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        queue = self._accumulator.queue(batch.partition)
        may_retry = batch.attempts <= self._cluster.config.retries and self._config.acks != 0
        if self._transactions is not None:
            may_retry = may_retry and self._transactions.state.is_open
        retry_at_ms = self.now_ms() + self._cluster.backoff.delay_s(batch.attempts) * 1000
        if queue.failed(batch, error, may_retry=may_retry, retry_at_ms=retry_at_ms):
            if error.code.refreshes_metadata:
                self._refresh_metadata(batch.partition.topic)
        else:
            batch.fail(error)
            self._memory.give(batch.memory)
            self._accumulator.settle(queue)
            if self._transactions is not None:
                self._fail_transaction(error)

    def _fail_transaction(self, error: KafkaError) -> None:
        """Fail the open transaction: nothing else of it is worth sending."""
        assert self._transactions is not None
        self._transactions.state.batch_failed(error)
        self._fail_all_waiting(error)

    def _is_in_transaction(self, queue: PartitionQueue) -> bool:
        """Tell whether batches may be sent; a partition that must be added first is added."""
        transactions = self._transactions
        if transactions is None:
            return True
        if transactions.state.to_add and not self._is_adding_partitions:
            self._is_adding_partitions = True
            self._spawn(self._add_partitions(transactions))
        return transactions.state.may_send(queue.partition)

    async def _add_partitions(self, transactions: TransactionRequests) -> None:
        try:
            while transactions.state.to_add and transactions.state.is_open:
                await transactions.add_partitions(frozenset(transactions.state.to_add))
        except KafkaError as error:
            self._fail_all_waiting(error)
        finally:
            self._is_adding_partitions = False
            self._answered.set()
            self.wake()

    def _current_identity(self) -> ProducerIdentity | None:
        return self._identity if self._transactions is None else self._transactions.state.identity

    def _version_max(self) -> int | None:
        """Return the newest version of Produce that fits the transaction protocol in use."""
        if self._transactions is None or self._transactions.state.is_v2:
            return None
        return PRODUCE_V1_MAX

    def _refresh_metadata(self, topic: TopicName) -> None:
        self._stale_topics.add(topic)
        if not self._is_refreshing:
            self._is_refreshing = True
            self._spawn(self._refresh_until_done())

    async def _refresh_until_done(self) -> None:
        failures = 0
        try:
            while self._stale_topics:
                topics, self._stale_topics = self._stale_topics, set()
                try:
                    await self._cluster.refresh(topics)
                    failures = 0
                except KafkaError:
                    # Delivery timeouts inform the callers; until then it is retried.
                    self._stale_topics |= topics
                    failures += 1
                    await asyncio.sleep(self._cluster.backoff.delay_s(failures))
                self.wake()
        finally:
            self._is_refreshing = False

    def _has_identity(self, now_ms: float) -> bool:
        """Tell whether there is a producer id, and request one if there is none."""
        if self._transactions is not None:
            return self._transactions.state.identity is not None
        may_ask = not self._is_asking_identity and now_ms >= self._identity_at_ms
        if self._identity is None and may_ask:
            self._is_asking_identity = True
            self._spawn(self._ask_identity())
        return self._identity is not None

    async def _ask_identity(self) -> None:
        """Get a producer id from any broker; an error that is not retriable fails all batches."""
        try:
            connection = await self._cluster.any_connection()
            answer = await connection.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2_147_483_647),
                InitProducerIdResponse,
            )
            if answer.error_code:
                raise answered_error(answer.error_code, "no producer id was given")
            self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._identity_failures = 0
        except KafkaError as error:
            self._identity_failures += 1
            delay_s = self._cluster.backoff.delay_s(self._identity_failures)
            self._identity_at_ms = self.now_ms() + delay_s * 1000
            if not error.code.retriable:
                self._fail_all_waiting(error)
        finally:
            self._is_asking_identity = False
            self.wake()

    def _fail_all_waiting(self, error: KafkaError) -> None:
        for queue in self._accumulator.active_queues():
            while queue.waiting:
                batch = queue.waiting.popleft()
                batch.fail(error)
                self._memory.give(batch.memory)
            self._accumulator.settle(queue)

    def _bump_epoch(self) -> None:
        """Leave the sequences of the current identity behind (KIP-360)."""
        if self._identity is None or self._identity.epoch >= _EPOCH_MAX:
            self._identity = None
        else:
            self._identity = self._identity._replace(epoch=self._identity.epoch + 1)
