"""Reads of the remote tier: in threads of their own, so many at a time, each with its deadline.

A read that takes longer than its fetch may wait goes on, and what it finds is kept for a while: the
consumer asks for the same again (T12). Indexes are loaded once, however many ask for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import ThreadPool
from dohle.core.ids import Uuid
from dohle.server.tier.counts import CountsByTopic, TierCounts
from dohle.storage import log_read
from dohle.storage.files import FileSystem
from dohle.storage.log import Log
from dohle.storage.segment.reader import TimestampedOffset
from dohle.storage.segment.transaction_index import AbortedTransaction
from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.index_cache import CachedIndexes, IndexCache
from dohle.tiering.lineage import is_within, last_common_offset, without_empty
from dohle.tiering.reading import SegmentAt
from dohle.tiering.segments import RemoteSegment, SegmentState
from dohle.tiering.store import ObjectStore, StoreError

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.partitions.fetch_reader import FetchReader, RemotePart
    from dohle.server.partitions.partitions import Partition
    from dohle.server.tier.metadata_feed import MetadataFeed
    from dohle.server.tier.settings import TierSettings

logger = logging.getLogger("dohle.server")

#: Of reads that came too late, so many bytes are kept.
_KEPT_BYTES: Final = 32 * 1024 * 1024
#: How many segments are looked through for aborted transactions, or by time, for one answer.
_SEGMENTS_MAX: Final = 10_000


class RemoteRead(NamedTuple):
    """What was read of a partition."""

    records: bytes
    aborted: list[AbortedTransaction]


_NOTHING: Final = RemoteRead(b"", [])
_ReadKey = tuple[Uuid, int, int, bool, bool]


class RemoteReads:
    """All reads of the remote tier on a broker."""

    def __init__(
        self,
        broker: BrokerServer,
        settings: TierSettings,
        feed: MetadataFeed,
        store: ObjectStore,
        cache: IndexCache,
        files: FileSystem,
        counts: CountsByTopic,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._feed = feed
        self._store = store
        self._cache = cache
        self._files = files
        self._counts = counts
        self._threads: ThreadPool = broker.host.thread_pool(
            settings.reader_threads, "remote-log-reader", may_hang=True
        )
        self._loading: dict[Uuid, asyncio.Task[CachedIndexes]] = {}
        self._reading: dict[_ReadKey, asyncio.Task[RemoteRead]] = {}
        #: What came too late for the fetch that asked for it.
        self._kept: OrderedDict[_ReadKey, RemoteRead] = OrderedDict()
        self._kept_bytes = 0

    def _cache_of(self, partition: Partition) -> RemoteLogMetadataCache | None:
        return self._feed.cache((partition.topic_id, partition.key.partition))

    def _max_wait_ms(self) -> int:
        return self._broker.broker_values().get_int("remote.fetch.max.wait.ms")

    # Fetches

    async def fill(self, reader: FetchReader) -> None:
        """Read what a fetch wants of the remote tier, as far as that is done in time."""
        wanted = reader.remote
        tasks = {}
        for part in wanted:
            try:
                tasks[part] = self._begin(part)
            except KafkaError as error:
                reader.failed_remotely(part, error.code)
        running = [task for task in tasks.values() if isinstance(task, asyncio.Task)]
        wait_s = self._max_wait_ms() / 1000
        if running:
            await asyncio.wait(running, timeout=wait_s)
        elif any(found is _NOTHING for found in tasks.values()):
            # The consumer asks again at once: it would keep a broker busy that starts.
            await asyncio.sleep(wait_s)
        for part, task in tasks.items():
            self._finish(reader, part, task)

    def _begin(self, part: RemotePart) -> asyncio.Task[RemoteRead] | RemoteRead:
        partition, offset = part.partition, part.offset
        cache = self._cache_of(partition)
        if cache is None or partition.log.leader_epochs.epoch_of(offset) is None:
            # It is there, but not known here yet: out of range would make the consumer jump.
            return _NOTHING
        segment = _find(cache, partition.log, offset)
        if segment is None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is in no tier")
        key = segment.id, offset, part.max_bytes, part.whole_batch, part.reads_committed
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept_bytes -= len(kept.records)
            return kept
        task = self._reading.get(key)
        if task is None:
            if len(self._reading) >= self._settings.reader_pending_max:
                # It is asked for again. (Kafka answers -1, which some clients give up at.)
                return _NOTHING
            task = self._broker.loop.create_task(self._read(part, cache, segment))
            self._reading[key] = task
            counts = self._counts.of(partition.key.topic)
            counts.remotefetchrequests += 1
            task.add_done_callback(lambda done: self._done(key, done, counts))
        return task

    def _done(self, key: _ReadKey, task: asyncio.Task[RemoteRead], counts: TierCounts) -> None:
        del self._reading[key]
        if task.cancelled() or task.exception() is not None:
            counts.remotefetcherrors += 1
            return
        counts.remotefetchbytes += len(task.result().records)
        if not task.result().records:
            # It takes no room, so it would be kept for ever.
            return
        self._kept[key] = task.result()
        self._kept_bytes += len(task.result().records)
        while self._kept_bytes > _KEPT_BYTES:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= len(gone.records)

    def _finish(
        self, reader: FetchReader, part: RemotePart, task: asyncio.Task[RemoteRead] | RemoteRead
    ) -> None:
        if isinstance(task, asyncio.Task):
            if not task.done():
                # It goes on, and the next fetch finds what it has read.
                return
            error = task.exception()
            if error is not None:
                code = ErrorCode.UNKNOWN_SERVER_ERROR
                if isinstance(error, KafkaError):
                    code = error.code
                elif isinstance(error, StoreError):
                    logger.warning("%s: a remote read failed: %s", part.partition.key, error)
                else:
                    logger.error(
                        "%s: a remote read failed. Please report this.",
                        part.partition.key,
                        exc_info=error,
                    )
                reader.failed_remotely(part, code)
                return
            self._take_kept(task)
            task = task.result()
        if task.records:
            reader.filled_remotely(part, task.records, task.aborted)

    def _take_kept(self, task: asyncio.Task[RemoteRead]) -> None:
        """Keep a result no longer that has got to the one who asked for it."""
        for key, found in list(self._kept.items()):
            if found is task.result():
                del self._kept[key]
                self._kept_bytes -= len(found.records)

    async def _read(
        self, part: RemotePart, cache: RemoteLogMetadataCache, segment: RemoteSegment
    ) -> RemoteRead:
        log, offset = part.partition.log, part.offset
        last = offset - 1
        for _ in range(_SEGMENTS_MAX):
            at = await self._at(segment)
            last = _last_in(log, segment, last + 1)
            data = await self._threads.run(
                partial(at.read, offset, part.max_bytes, whole_batch=part.whole_batch, last=last)
            )
            if data is not None:
                aborted: list[AbortedTransaction] = []
                if part.reads_committed:
                    aborted = list(data.aborted)
                    if not data.is_complete:
                        aborted += await self._aborted_behind(log, cache, last, offset, data.upper)
                return RemoteRead(data.records, list(dict.fromkeys(aborted)))
            # What is asked for is in the gap at its end.
            following = _find(cache, log, last + 1)
            if following is None or following.id == segment.id:
                return _NOTHING
            segment = following
        return _NOTHING

    async def _aborted_behind(
        self,
        log: Log,
        cache: RemoteLogMetadataCache,
        last: int,
        offset: int,
        upper: int,
    ) -> list[AbortedTransaction]:
        """Look for markers behind an offset: in remote segments, then in those that are here."""
        aborted: list[AbortedTransaction] = []
        for _ in range(_SEGMENTS_MAX):
            segment = _find(cache, log, last + 1)
            behind = last if segment is None else _last_in(log, segment, last + 1)
            if segment is None or behind <= last:
                break
            last = behind
            if segment.txn_index_empty:
                continue
            at = await self._at(segment)
            some, is_complete = await self._threads.run(partial(at.aborted, offset, upper))
            aborted += [each for each in some if each.last_offset <= last]
            if is_complete and last == segment.end_offset:
                return aborted
        start = max(last + 1, log.segments.first.base_offset)
        for local in log.segments.from_offset(start):
            some, is_complete = local.indexes.txn.collect_aborted(offset, upper)
            aborted += some
            if is_complete:
                break
        return aborted

    # Indexes

    async def _at(self, segment: RemoteSegment) -> SegmentAt:
        indexes = self._cache.get(segment)
        if indexes is None:
            task = self._loading.get(segment.id)
            if task is None:
                task = self._broker.loop.create_task(self._load(segment))
                self._loading[segment.id] = task
                task.add_done_callback(lambda _: self._loading.pop(segment.id, None))
            indexes = await asyncio.shield(task)
        return SegmentAt(self._files, self._store, segment, indexes, self._settings.prefix)

    async def _load(self, segment: RemoteSegment) -> CachedIndexes:
        cache, prefix = self._cache, self._settings.prefix
        indexes = await self._threads.run(lambda: cache.load(self._store, segment, prefix))
        gone = cache.add(segment, indexes)
        if gone:
            await self._threads.run(lambda: cache.remove(gone))
        return indexes

    # By time

    async def find_by_timestamp(
        self, partition: Partition, timestamp: int
    ) -> TimestampedOffset | None:
        """Return the first record that is not older than asked, of either tier (T13)."""
        log, cache = partition.log, self._cache_of(partition)
        if cache is None:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, "it is not known yet what is in the remote tier"
            )
        lineage = without_empty(log.leader_epochs.entries)
        first_local = log.segments.first.base_offset
        for epoch, _ in lineage:
            for segment in cache.of_epoch(epoch):
                if (
                    segment.state is not SegmentState.COPY_SEGMENT_FINISHED
                    or segment.max_timestamp_ms < timestamp
                    or segment.end_offset < log.log_start_offset
                    or segment.start_offset >= first_local
                    or not is_within(segment, log.log_end_offset, lineage)
                ):
                    continue
                at = await self._at(segment)
                found = await self._threads.run(
                    partial(at.find_by_timestamp, timestamp, log.log_start_offset)
                )
                if found is not None:
                    return found
        return log_read.find_by_timestamp(log, timestamp)

    async def stop(self) -> None:
        """Give up what is read; what waits for the store is not waited for."""
        tasks = [*self._reading.values(), *self._loading.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._threads.close()


def _last_in(log: Log, segment: RemoteSegment, offset: int) -> int:
    """Return the last offset up to which a segment has what the log has."""
    epochs = log.leader_epochs.entries
    return last_common_offset(segment, epochs, offset, log.log_end_offset)


def _find(cache: RemoteLogMetadataCache, log: Log, offset: int) -> RemoteSegment | None:
    """Return the remote segment that holds an offset of a log."""
    epoch = log.leader_epochs.epoch_of(offset)
    return None if epoch is None else cache.find(epoch, offset)
