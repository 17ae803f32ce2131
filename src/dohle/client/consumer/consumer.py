"""The consumer: reads partitions that are assigned manually or by its group.

Rules it keeps, besides those of fetching (:mod:`dohle.client.consumer.fetcher`) and of group
membership (:mod:`dohle.client.group.member`):

- The records of a partition come in order, each once between two seeks.
- A caller that asks for the next record has processed the previous ones: only then are partitions
  revoked and offsets committed automatically.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from dohle.client.config import ConsumerConfig, GroupProtocol
from dohle.client.consumer.columns import ColumnBatch, form_of
from dohle.client.consumer.deserializing import record_deserializer
from dohle.client.consumer.fetched import ConsumedRecord, PartitionReader
from dohle.client.consumer.fetcher import Fetcher, Form, records_one_by_one
from dohle.client.consumer.given_starts import GivenStarts, start_of, starts_of
from dohle.client.consumer.offsets import resolve_starts
from dohle.client.consumer.opening import (
    offsets_of_starts,
    readers_at,
)
from dohle.client.consumer.rebalancing import Rebalancing, positions
from dohle.client.consumer.started_change import StartedChange
from dohle.client.consumer.starts import Start
from dohle.client.errors import ClientClosed
from dohle.client.group.commits import OffsetCommits
from dohle.client.group.member import Topics
from dohle.client.group.members import Member, check_for_broker, new_member
from dohle.client.group.membership import GroupMetadata
from dohle.client.group.offsets import OffsetAndMetadata, places_of
from dohle.client.group.rebalance_listener import RebalanceListener
from dohle.client.interceptors import ConsumerInterceptors
from dohle.client.serializers import Serialization, SerializationFailed
from dohle.client.settings.names import Where, given
from dohle.core.ids import GroupId, TopicName, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer:
    """Reads partitions; created and used within a running loop, by one task at a time.

    Leaving it as a context manager without an error commits what was read, if auto-commit is
    enabled and it is in a group.

    >>> async def main(bootstrap: str) -> None:
    ...     async with Consumer(bootstrap, group_id="g", value_deserializer="json") as consumer:
    ...         consumer.subscribe(["orders"])
    ...         async for record in consumer:
    ...             print(record.key, record.value["item"])
    """

    def __init__(
        self,
        cluster: Where = None,
        config: ConsumerConfig | None = None,
        *,
        key_deserializer: Serialization | None = None,
        value_deserializer: Serialization | None = None,
        **settings: Any,
    ) -> None:
        """Read from a cluster: where it is, or a :class:`Cluster` that others use too.

        Settings are a ``config``, or by name (``group_id="billing"``), or a dict with Kafka's own
        names in the place of the first argument.
        """
        cluster, is_own, config = given(cluster, config, ConsumerConfig, settings)
        self.config: ConsumerConfig = config
        self._cluster = cluster
        self._has_own_cluster = is_own
        self._deserialize = record_deserializer(key_deserializer, value_deserializer)
        self._interceptors: ConsumerInterceptors | None = None
        if config.interceptors:
            self._interceptors = ConsumerInterceptors(config.interceptors)
        #: What ``subscribe`` or ``assign`` has begun, until somebody has waited for it.
        self._begun: StartedChange | None = None
        self._is_told_what = False
        #: What the next call raises: a record that could not be deserialized.
        self._failure: SerializationFailed | None = None
        self._fetcher = Fetcher(cluster, self.config)
        self._group_channel = cluster.new_channel("group")
        self._commits: OffsetCommits | None = None
        self._member: Member | None = None
        self._rebalancing: Rebalancing | None = None
        self._stop_at_end = False
        self._is_closed = False
        if self.config.group_id is not None:
            self._commits = OffsetCommits(
                cluster,
                GroupId(self.config.group_id),
                self._group_channel,
                wake=self._on_commit_news,
                report=self._fetcher.errors.append,
                on_commit=None if self._interceptors is None else self._interceptors.on_commit,
            )
            self._rebalancing = Rebalancing(cluster, config, self._fetcher, self._commits)
            if self.config.enable_auto_commit:
                self._commits.start(self.config.auto_commit_interval_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        await self.close(commit=kind is None)

    def assign(self, starts: GivenStarts, *, stop_at_end: bool = False) -> StartedChange:
        """Read these partitions from these positions, instead of the previous assignment.

        Without positions they begin where the group has committed, else by ``auto_offset_reset``.
        With ``stop_at_end`` reading stops at the current end of the partitions. It takes effect
        whether or not it is awaited: the next record comes from there.
        """
        self._check_open()
        if self._member is not None:
            raise ValueError("the group assigns the partitions: call unsubscribe first")
        return self._begin(self._assign(starts_of(starts), stop_at_end))

    async def _assign(
        self, starts: Mapping[TopicPartition, Start | None], stop_at_end: bool
    ) -> None:
        offsets = await offsets_of_starts(self._cluster, self.config, self._commits, starts)
        self._stop_at_end = stop_at_end
        readers = await readers_at(
            self._cluster, self.config, offsets, stop_at_end=self._stop_at_end
        )
        self._fetcher.remove([*self._fetcher.readers])
        self._fetcher.errors.clear()
        self._fetcher.add(readers)

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
        *,
        stop_at_end: bool = False,
    ) -> StartedChange:
        """Read these topics together with the other members of the group.

        A pattern must match the whole name of a topic; topics that are created later are found too.
        With ``group_protocol=consumer`` the broker looks for them, by its own regular expressions
        (RE2: no lookarounds, no references back).
        With ``stop_at_end`` reading stops when all partitions of this member are read up to the end
        that they had when they were assigned. It takes effect whether or not it is awaited.
        """
        self._check_open()
        if self._commits is None:
            raise ValueError("subscribe needs a group_id")
        if isinstance(topics, str):
            raise TypeError("topics is a single string: pass a list of topics")
        wanted: Topics = topics if isinstance(topics, re.Pattern) else tuple(map(TopicName, topics))
        if self.config.group_protocol is GroupProtocol.CONSUMER:
            check_for_broker(wanted)
        return self._begin(self._subscribe(self._commits, wanted, listener, stop_at_end))

    async def _subscribe(
        self,
        commits: OffsetCommits,
        wanted: Topics,
        listener: RebalanceListener | None,
        stop_at_end: bool,
    ) -> None:
        rebalancing = self._rebalancing
        assert rebalancing is not None
        rebalancing.listener = listener or RebalanceListener()
        self._stop_at_end = rebalancing.stop_at_end = stop_at_end
        if self._member is not None:
            await self._member.subscribe(wanted)
            return
        self._fetcher.remove([*self._fetcher.readers])
        member = new_member(
            self._cluster,
            self.config,
            commits.group_id,
            wanted,
            self._group_channel,
            give_up=rebalancing.give_up,
            save=rebalancing.save,
            take=rebalancing.take,
            wake_reader=self._fetcher.news.set,
            report=self._fetcher.errors.append,
        )
        await member.start()
        self._member = member
        commits.membership = member.membership

    def _begin(self, change: Coroutine[Any, Any, None]) -> StartedChange:
        """Change what is read, after the change before it."""
        self._begun = StartedChange(change, before=self._begun)
        self._is_told_what = True
        return self._begun

    async def unsubscribe(self, *, commit: bool = True) -> None:
        """Give up the assignment and leave the group."""
        await self._attend_begun()
        self._is_told_what = False
        member, self._member = self._member, None
        if member is None or self._commits is None or self._rebalancing is None:
            return
        await member.stop()
        owned = member.membership.owned
        try:
            if owned:
                is_lost = not member.membership.may_commit
                await self._rebalancing.hand_back(owned, is_lost=is_lost, commit=commit)
        finally:
            self._commits.membership = None
            await member.leave()

    async def seek(self, partition: TopicPartition, start: Start | int) -> None:
        """Continue reading a partition at another position, or at an offset."""
        self._check_open()
        await self._attend_begun()
        self._reader(partition)
        offsets = await resolve_starts(
            self._cluster, {partition: start_of(start)}, self.config.isolation_level
        )
        self._reader(partition).go_to(offsets[partition])
        self._fetcher.news.set()

    def _reader(self, partition: TopicPartition) -> PartitionReader:
        self._check_open()
        reader = self._fetcher.readers.get(partition)
        if reader is None:
            now = ", ".join(map(str, self.assignment)) or "nothing"
            raise ValueError(
                f"{partition} is not assigned to this consumer, which reads {now}; after subscribe "
                "the group assigns partitions during a poll"
            )
        return reader

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""
        for partition in partitions:
            reader = self._reader(partition)
            reader.is_paused = True
            reader.go_to(reader.position)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        for partition in partitions:
            self._reader(partition).is_paused = False
        self._fetcher.news.set()

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        readers = self._fetcher.readers.values()
        return tuple(reader.partition for reader in readers if reader.is_paused)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition."""
        return self._reader(partition).position

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the end of a partition as of the last fetch, if there was one."""
        return self._reader(partition).high_watermark

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are being read."""
        return tuple(self._fetcher.readers)

    @property
    def is_done(self) -> bool:
        """Whether all partitions have been read up to where they should stop."""
        if self._member is not None and not (
            self._stop_at_end and self._member.membership.is_stable
        ):
            return False
        return all(reader.is_done for reader in self._fetcher.readers.values())

    def group_metadata(self) -> GroupMetadata:
        """Return the group membership, for offsets that are part of a transaction."""
        return self._group_commits().who

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit offsets, by default the positions after all returned records."""
        self._check_open()
        commits = self._group_commits()
        places = positions(self._fetcher) if offsets is None else places_of(offsets)
        await commits.commit(places)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; a partition without one is left out."""
        self._check_open()
        return await self._group_commits().committed(partitions)

    def __aiter__(self) -> Self:
        self._fetcher.hand_out(records_one_by_one)
        return self

    async def __anext__(self) -> ConsumedRecord:
        """Return the next record of any partition; within a partition they come in order."""
        fetcher = self._fetcher
        if self._begun is not None or not self._is_told_what:
            await self._attend_begun()
            self._check_told()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        while True:
            if self._commits is not None:
                await self._attend(self._commits)
            item: ConsumedRecord | None = fetcher.next_buffered()
            if item is not None:
                if self._deserialize is not None:
                    item = self._deserialize(item)
                if self._interceptors is None:
                    return item
                if kept := self._interceptors.on_consume([item]):
                    return kept[0]
                continue
            if fetcher.has_answers:
                # Between two responses other tasks get their turn, including the next fetch.
                await asyncio.sleep(0)
                fetcher.open_next()
                continue
            self._check_open()
            if fetcher.errors:
                raise fetcher.errors.popleft()
            if self.is_done:
                raise StopAsyncIteration
            fetcher.news.clear()
            fetcher.fetch_more()
            await fetcher.news.wait()

    async def poll(self, *, timeout_ms: int = 0, max_records: int = 500) -> list[ConsumedRecord]:
        """Return the available records, waiting for the first one for a while.

        An empty list means that none came in time, or that reading is done.
        """
        self._fetcher.hand_out(records_one_by_one)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                items = [await self.__anext__()]
        except (TimeoutError, StopAsyncIteration):
            return []
        fetcher = self._fetcher
        while len(items) < max_records:
            item: ConsumedRecord | None = fetcher.next_buffered()
            if item is None:
                if not fetcher.has_answers:
                    break
                fetcher.open_next()
                continue
            if self._deserialize is not None:
                try:
                    item = self._deserialize(item)
                except SerializationFailed as error:
                    # Those before it are good; the next call raises it.
                    self._failure = error
                    break
            items.append(item)
        if self._interceptors is not None and len(items) > 1:
            items[1:] = self._interceptors.on_consume(items[1:])
        return items

    @overload
    def consume_batches(self) -> AsyncIterator[ColumnBatch]: ...
    @overload
    def consume_batches(
        self, *, arrow: Literal[True], headers: bool = False
    ) -> AsyncIterator[pa.RecordBatch]: ...
    def consume_batches(
        self, *, arrow: bool = False, headers: bool = False
    ) -> AsyncIterator[ColumnBatch] | AsyncIterator[pa.RecordBatch]:
        """Hand out records by columns, some thousands of a partition at a time.

        Each is a :class:`ColumnBatch`, or with ``arrow=True`` a RecordBatch of pyarrow with the
        columns of Spark's Kafka source. Keys and values are bytes.
        """
        return self._batches(self.batch_form(arrow=arrow, headers=headers))

    async def _batches(self, form: Form) -> AsyncIterator[Any]:
        while (batch := await self.poll_batch(form)) is not None:
            yield batch

    def batch_form(self, *, arrow: bool, headers: bool) -> Form:
        """Return what :meth:`poll_batch` takes; raise why there are no such batches."""
        if self._deserialize is not None or self._interceptors is not None:
            raise ValueError(
                "consume_batches hands out bytes as they are: use a consumer without "
                "deserializers and interceptors"
            )
        return form_of(arrow=arrow, headers=headers)

    async def poll_batch(self, form: Form, *, timeout_ms: int | None = None) -> Any:
        """Return the next batch; None if none came in time, or reading is done."""
        self._fetcher.hand_out(form)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await self.__anext__()
        except (TimeoutError, StopAsyncIteration):
            return None

    async def close(self, *, commit: bool = True) -> None:
        """Stop reading, commit (with auto-commit) and leave the group."""
        if self._is_closed:
            return
        try:
            if self._begun is not None:
                begun, self._begun = self._begun, None
                await begun.end()
            if self._member is not None:
                await self.unsubscribe(commit=commit)
            elif self._commits is not None and commit and self.config.enable_auto_commit:
                await self._commits.commit_quietly(positions(self._fetcher))
        finally:
            self._is_closed = True
            self._fetcher.news.set()
            if self._commits is not None:
                await self._commits.close()
            await self._fetcher.close()
            if self._interceptors is not None:
                self._interceptors.close()
            await self._cluster.close_channel(self._group_channel)
            if self._has_own_cluster:
                await self._cluster.close()

    async def _attend_begun(self) -> None:
        """Wait for a change that nobody has waited for, and raise what it raised."""
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun.attend()

    def _check_told(self) -> None:
        self._check_open()
        if not self._is_told_what:
            raise ValueError("there is nothing to read: call subscribe or assign first")

    async def _attend(self, commits: OffsetCommits) -> None:
        """Handle what waits for the caller to ask for more."""
        if commits.is_due:
            commits.commit_by_itself(positions(self._fetcher))
        member = self._member
        if member is None:
            return
        if member.gate.is_reader_wanted:
            await member.gate.let_reader_in()
        if member.failure is not None:
            raise member.failure

    def _on_commit_news(self) -> None:
        self._fetcher.news.set()
        if self._member is not None:
            self._member.wake()

    def _group_commits(self) -> OffsetCommits:
        if self._commits is None:
            raise ValueError("this consumer has no group_id: offsets are committed for a group")
        return self._commits

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
