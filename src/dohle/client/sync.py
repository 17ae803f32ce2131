"""The client for programs without a loop: scripts, threads, notebooks.

The same producer, consumer and admin as those of :mod:`dohle.client`, run by one loop in a thread
behind the scenes; calls wait for their results. They work in a program that has a running loop too
(a notebook), though they block it. Any thread may use them; a consumer, one at a time.

>>> def main(bootstrap: str) -> None:
...     with Producer(bootstrap, value_serializer="json") as producer:
...         producer.send("orders", {"item": "coffee"}, key=b"alice")
...     with Consumer(bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
...         consumer.subscribe(["orders"])
...         for record in consumer:
...             print(record.offset, record.value)
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from dohle.client.config import ConsumerConfig, ProducerConfig
from dohle.client.consumer.columns import ColumnBatch
from dohle.client.consumer.consumer import Consumer as AsyncConsumer
from dohle.client.consumer.fetched import ConsumedRecord
from dohle.client.consumer.fetcher import Form
from dohle.client.consumer.given_starts import GivenStarts
from dohle.client.consumer.starts import At, Start
from dohle.client.group.membership import GroupMetadata
from dohle.client.group.offsets import OffsetAndMetadata
from dohle.client.group.rebalance_listener import RebalanceListener
from dohle.client.interceptors import ProducerRecord
from dohle.client.loop_thread import loop_thread
from dohle.client.producer.batch import RecordMetadata
from dohle.client.producer.checks import Headers, check_record
from dohle.client.producer.handover import Handover
from dohle.client.producer.partitioner import Partitioner
from dohle.client.producer.producer import Producer as AsyncProducer
from dohle.client.serializers import Serialization, serialized, serializer_of
from dohle.client.sync_admin import Admin
from dohle.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Admin", "Consumer", "Producer"]

#: How many records the loop over a consumer takes at once: each time costs a change of threads.
_AHEAD_MAX = 500
#: A consumer that waits looks up this often, so that Ctrl-C ends it.
_WAIT_MS = 1000


class Producer:
    """Sends records to topics. Leaving it as a context manager flushes."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None,
        config: ProducerConfig | None = None,
        *,
        key_serializer: Serialization | None = None,
        value_serializer: Serialization | None = None,
        partitioner: str | Partitioner | None = None,
        **settings: Any,
    ) -> None:
        """Send to a cluster: as :class:`dohle.client.Producer` takes it."""
        self._key_serializer = serializer_of(key_serializer, "key_serializer")
        self._value_serializer = serializer_of(value_serializer, "value_serializer")
        self._thread = loop_thread()

        async def make() -> AsyncProducer:
            return AsyncProducer(
                bootstrap,
                config,
                partitioner=partitioner,
                **settings,
            )

        self._core = self._thread.call(make())
        self._handover = Handover(self._thread, self._core)
        self._interceptors = self._core.hand_over_interceptors()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.close(flush=kind is None or issubclass(kind, Exception))

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record and return where it was written, once it is acknowledged."""
        return self._thread.wait_for(
            self._put(topic, value, key, partition, timestamp, headers, is_awaited=True)
        )

    def send_soon(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Future[RecordMetadata]:
        """Hand a record over and return the future of where it is written.

        Records are sent in the order of the calls. It waits only while very many are waiting. Key
        and value are serialized at once: who changes them afterwards does not change the record.
        """
        return self._put(topic, value, key, partition, timestamp, headers, is_awaited=False)

    def _put(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        *,
        is_awaited: bool,
    ) -> Future[RecordMetadata]:
        interceptors = self._interceptors
        if interceptors is not None:
            topic, value, key, partition, timestamp, headers = interceptors.on_send(
                ProducerRecord(topic, value, key, partition, timestamp, headers)
            )
        try:
            key = serialized(key, self._key_serializer, "key")
            value = serialized(value, self._value_serializer, "value")
            pairs = check_record(topic, partition, timestamp, headers)
            record = (topic, value, key, partition, timestamp, pairs)
            outcome = self._handover.put(record, is_awaited=is_awaited)
        except Exception as error:
            if interceptors is not None:
                interceptors.refused(error)
            raise
        if interceptors is not None:
            outcome.add_done_callback(interceptors.acknowledged)
        return outcome

    def flush(self) -> None:
        """Wait until each record that was handed over has its outcome."""
        self._handover.wait_until_taken()
        self._thread.call(self._core.flush())

    def init_transactions(self) -> None:
        """Get ready for transactions; whoever used the transactional id before is fenced."""
        self._thread.call(self._core.init_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._thread.run(self._core.begin_transaction)

    def commit_transaction(self) -> None:
        """Send all records and commit; if one of them failed, raise: then it must be aborted."""
        self._handover.wait_until_taken()
        self._thread.call(self._core.commit_transaction())

    def abort_transaction(self) -> None:
        """Throw the transaction away."""
        self._handover.wait_until_taken()
        self._thread.call(self._core.abort_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata
    ) -> None:
        """Let offsets of a group be committed with the transaction, or not at all."""
        self._thread.call(self._core.send_offsets_to_transaction(offsets, group))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Send what is sent within in one transaction: all of it is committed, or nothing."""
        context = self._core.transaction()
        self._thread.call(_enter(context))
        try:
            yield self
        except BaseException as error:
            self._handover.wait_until_taken()
            with suppress(type(error)):
                self._thread.call(_leave(context, error))
            raise
        self._handover.wait_until_taken()
        self._thread.call(_leave(context, None))

    def close(self, *, flush: bool = True) -> None:
        """Take no more records, flush unless told not to, and stop."""
        if flush:
            self._handover.wait_until_taken()
        self._handover.close()
        self._thread.call(self._core.close(flush=flush))
        if self._interceptors is not None:
            self._interceptors.close()


class Consumer:
    """Reads partitions that are assigned manually or by its group."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None,
        config: ConsumerConfig | None = None,
        *,
        key_deserializer: Serialization | None = None,
        value_deserializer: Serialization | None = None,
        **settings: Any,
    ) -> None:
        """Read from a cluster: as :class:`dohle.client.Consumer` takes it."""
        self._thread = loop_thread()

        async def make() -> AsyncConsumer:
            return AsyncConsumer(
                bootstrap,
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                **settings,
            )

        self._core = self._thread.call(make())
        #: What the loop over this consumer has in hand. To the group it is not read yet.
        self._ahead: deque[ConsumedRecord] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.close(commit=kind is None)

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
        *,
        stop_at_end: bool = False,
    ) -> None:
        """Read these topics together with the other members of the group."""
        self._change(lambda: self._core.subscribe(topics, listener, stop_at_end=stop_at_end))

    def assign(self, starts: GivenStarts, *, stop_at_end: bool = False) -> None:
        """Read these partitions from these positions, instead of the previous assignment.

        Without positions they begin where the group has committed, else by ``auto_offset_reset``.
        """
        self._change(lambda: self._core.assign(starts, stop_at_end=stop_at_end))

    def unsubscribe(self) -> None:
        """Give up the assignment and leave the group."""
        self._change(self._core.unsubscribe)

    def seek(self, partition: TopicPartition, start: Start | int) -> None:
        """Continue reading a partition at another position, or at an offset."""
        self._change(lambda: self._core.seek(partition, start))

    def poll(self, *, timeout_ms: int = 0, max_records: int = 500) -> list[ConsumedRecord]:
        """Return the available records, waiting for the first one for a while."""
        ahead = self._ahead
        if ahead:
            return [ahead.popleft() for _ in range(min(max_records, len(ahead)))]
        return self._thread.call(self._core.poll(timeout_ms=timeout_ms, max_records=max_records))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumedRecord:
        """Return the next record; ends if reading stops somewhere (``stop_at_end``)."""
        ahead = self._ahead
        while not ahead:
            ahead.extend(self.poll(timeout_ms=_WAIT_MS, max_records=_AHEAD_MAX))
            if not ahead and self._core.is_done:
                raise StopIteration
        return ahead.popleft()

    @overload
    def consume_batches(self) -> Iterator[ColumnBatch]: ...
    @overload
    def consume_batches(
        self, *, arrow: Literal[True], headers: bool = False
    ) -> Iterator[pa.RecordBatch]: ...
    def consume_batches(
        self, *, arrow: bool = False, headers: bool = False
    ) -> Iterator[ColumnBatch] | Iterator[pa.RecordBatch]:
        """Hand out records by columns: as :meth:`dohle.client.Consumer.consume_batches`."""
        return self._batches(self._core.batch_form(arrow=arrow, headers=headers))

    def _batches(self, form: Form) -> Iterator[Any]:
        while True:
            if self._ahead:
                self._change(_nothing)
            batch = self._thread.call(self._core.poll_batch(form, timeout_ms=_WAIT_MS))
            if batch is not None:
                yield batch
            elif self._core.is_done:
                return

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""
        self._thread.run(lambda: self._core.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._thread.run(lambda: self._core.resume(partitions))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition."""
        first = self._first_ahead()
        return first[partition] if partition in first else self._core.position(partition)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are being read."""
        return self._core.assignment

    def group_metadata(self) -> GroupMetadata:
        """Return the group membership, for offsets that are part of a transaction."""
        return self._core.group_metadata()

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit offsets, by default the positions after all returned records."""
        if offsets is None and self._ahead:
            self._change(self._core.commit)
        else:
            self._thread.call(self._core.commit(offsets))

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; a partition without one is left out."""
        return self._thread.call(self._core.committed(partitions))

    def close(self, *, commit: bool = True) -> None:
        """Stop reading, commit (with auto-commit) and leave the group."""
        self._change(lambda: self._core.close(commit=commit))

    def _first_ahead(self) -> dict[TopicPartition, int]:
        first: dict[TopicPartition, int] = {}
        for item in self._ahead:
            first.setdefault(TopicPartition(item.topic, item.partition), item.offset)
        return first

    def _change(self, change: Callable[[], Awaitable[None]]) -> None:
        """Do something that goes by what was read: what is only in hand was not."""
        first = self._first_ahead()
        self._ahead.clear()

        async def give_back_and_change() -> None:
            for partition, offset in first.items():
                if partition in self._core.assignment:
                    await self._core.seek(partition, At(offset))
            await change()

        self._thread.call(give_back_and_change())


async def _nothing() -> None:
    pass


async def _enter(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    kind = None if error is None else type(error)
    await context.__aexit__(kind, error, None)
