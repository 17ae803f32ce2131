"""The remote tier of a broker: which partitions are in it, and who works for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.metadata.image import TopicImage
from dohle.server.net.slices import Slices
from dohle.server.tier.counts import CountsByTopic
from dohle.server.tier.metadata_feed import Key, MetadataFeed
from dohle.server.tier.partition_tasks import PartitionTasks
from dohle.server.tier.reads import RemoteReads
from dohle.server.tier.settings import TierSettings
from dohle.storage.directory.checkpoints import LOG_START_OFFSET_CHECKPOINT
from dohle.storage.directory.partition_dirs import REMOTE_INDEX_CACHE
from dohle.storage.files import FileSystem, join
from dohle.storage.leader_epochs import EpochEntry, parse_leader_epochs
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.producers.snapshot import decode_snapshot
from dohle.tiering.index_cache import IndexCache
from dohle.tiering.layout import EPOCHS, INDEXES, MANIFEST, SNAPSHOT, decode_manifest, object_key
from dohle.tiering.object_store import InvalidStore, open_store
from dohle.tiering.segments import RemoteSegment
from dohle.tiering.store import ObjectStore, StoreError
from dohle.tiering.upload import CopyJob, delete_objects

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.partitions.partitions import Partition

logger = logging.getLogger("dohle.server")

_SUFFIX = ".tier"
#: How long a follower waits here at most: its fetcher has other partitions to copy, and asks again.
_STATE_WAIT_S = 0.5
_TOPIC_RETRY_S = 1.0
_TOPIC_RETRY_S_MAX = 60.0


#: Leader epochs and producers.
State = tuple[list[EpochEntry], list[ProducerEntry]]


def _open_store(files: FileSystem, url: str) -> ObjectStore:
    try:
        return open_store(files, url)
    except InvalidStore as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


class Tier:
    """``start`` when the broker serves, ``update`` for each partition, ``await stop()``."""

    def __init__(
        self,
        broker: BrokerServer,
        settings: TierSettings,
        files: FileSystem,
        folder: str,
    ) -> None:
        """``folder`` is the first log directory, where indexes are cached."""
        self.broker = broker
        self.settings = settings
        self._files = files
        self.store: ObjectStore = _open_store(files, settings.url)
        self.feed = MetadataFeed(broker, settings)
        self.counts = CountsByTopic()
        self._copiers = broker.host.thread_pool(
            settings.copier_threads, "remote-log-copier", may_hang=True
        )
        self._index_cache = IndexCache(
            files, join(folder, REMOTE_INDEX_CACHE), settings.index_cache_bytes
        )
        self._index_cache.open()
        self.reads = RemoteReads(
            broker, settings, self.feed, self.store, self._index_cache, files, self.counts
        )
        self._tasks: dict[Partition, PartitionTasks] = {}
        #: Copies that are under way, by the ids of segments.
        self._copies: dict[Uuid, asyncio.Future[None]] = {}
        self._deleting: set[asyncio.Task[None]] = set()
        #: What followers begin with: of which segment, and who reads it.
        self._states: dict[Key, tuple[Uuid, asyncio.Task[State]]] = {}
        #: Partitions that are tiered no more, as long as anything of them is remote.
        self._switching_off: set[Key] = set()
        self._ensuring: asyncio.Task[None] | None = None
        self._is_started = False
        #: One at a time: they write the same file.
        self._checkpointing = asyncio.Lock()

    def start(self) -> None:
        """Begin to work for the partitions that there are."""
        self._is_started = True
        self._ensuring = self.broker.loop.create_task(self._ensure_topic())
        for partition in self.broker.partitions:
            self.update(partition)

    async def _ensure_topic(self) -> None:
        delay_s = _TOPIC_RETRY_S
        while True:
            try:
                await self.feed.ensure_topic()
                return
            except KafkaError as error:
                logger.warning(
                    "nothing is copied to the remote tier, which is tried again in %.0f s: %s",
                    delay_s,
                    error,
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _TOPIC_RETRY_S_MAX)

    def update(self, partition: Partition) -> None:
        """Take in that a partition is new here, leads or follows, or has other settings."""
        if not self._is_started:
            return
        tasks = self._tasks.get(partition)
        if partition.is_gone:
            self.forget(partition)
        elif not partition.log.config.remote_storage_enable:
            if self._tasks.pop(partition, None) is not None and tasks is not None:
                # If it is tiered again later, what is remote has to be found out anew.
                partition.log.highest_remote_offset = -1
                if partition.is_led:
                    self._switching_off.add(tasks.key)
                    self._in_background(self._switch_off(tasks))
                else:
                    self._in_background(self._end(tasks))
        elif tasks is None:
            key = partition.topic_id, partition.key.partition
            if key not in self._switching_off:
                self.feed.assign(key)
                self._tasks[partition] = PartitionTasks(self, partition)
        else:
            tasks.look_again()

    def image_changed(self) -> None:
        """Take in that metadata partitions may have other leaders."""
        if self._is_started:
            self.feed.look_for_leaders()

    @property
    def led(self) -> list[PartitionTasks]:
        """Those of the partitions that this broker leads."""
        return [tasks for tasks in self._tasks.values() if tasks.partition.is_led]

    def forget(self, partition: Partition) -> None:
        """Work no more for a partition; what is in the store stays there."""
        state = self._states.pop((partition.topic_id, partition.key.partition), None)
        if state is not None:
            state[1].cancel()
        tasks = self._tasks.pop(partition, None)
        if tasks is not None:
            self._in_background(self._end(tasks))

    async def _end(self, tasks: PartitionTasks) -> None:
        await tasks.stop()
        if not any(each.key == tasks.key for each in self._tasks.values()):
            self.feed.unassign(tasks.key)

    async def _switch_off(self, tasks: PartitionTasks) -> None:
        """Delete what is remote of a topic that is tiered no more (KIP-950)."""
        try:
            tasks.raise_start(tasks.partition.log.local_log_start_offset)
            await self._delete_all(tasks)
        finally:
            self._switching_off.discard(tasks.key)
        # It may be remote again by now: what is copied then must not be deleted by this.
        partition = self.broker.partitions.get(*tasks.partition.key)
        if partition is not None and partition.topic_id == tasks.partition.topic_id:
            self.update(partition)

    def topic_deleted(self, topic: TopicImage) -> None:
        """Delete what is remote of a topic, in the background, where this broker led it (T15)."""
        for partition, tasks in list(self._tasks.items()):
            if partition.topic_id == topic.id:
                image = topic.partitions.get(partition.key.partition)
                del self._tasks[partition]
                is_leader = image is not None and image.leader == self.broker.node_id
                self._in_background(self._delete_all(tasks) if is_leader else self._end(tasks))

    async def _delete_all(self, tasks: PartitionTasks) -> None:
        await tasks.stop()
        while True:
            try:
                await self.feed.wait_until_ready(tasks.key)
                cache = self.feed.cache(tasks.key)
                if cache is not None:
                    await tasks.delete_all(cache)
                break
            except (KafkaError, StoreError, TimeoutError) as error:
                logger.warning(
                    "%s: what is remote of it is still to be deleted; it is tried again: %s",
                    tasks.partition.key,
                    error,
                )
            await asyncio.sleep(self.settings.task_interval_ms / 1000)
        self.feed.unassign(tasks.key)
        if self.broker.image.topic_by_id(tasks.partition.topic_id) is None:
            self.counts.forget(tasks.partition.key.topic)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.broker.loop.create_task(work)
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)

    # The store

    async def copy(self, job: CopyJob) -> None:
        """Copy a segment, in a thread."""
        counts = self.counts.of(job.segment.segment_id.topic)
        counts.remotecopyrequests += 1
        try:
            copying = self._copiers.run(partial(job.run, self._files, self.store))
            self._copies[job.segment.id] = copying
            copying.add_done_callback(lambda done: self._copied(job.segment.id, done))
            # Giving this up does not end the thread.
            await asyncio.shield(copying)
        except StoreError:
            counts.remotecopyerrors += 1
            raise
        counts.remotecopybytes += job.segment.size

    def _copied(self, segment_id: Uuid, done: asyncio.Future[None]) -> None:
        del self._copies[segment_id]
        if not done.cancelled():
            # Perhaps nobody waits for it any more.
            done.exception()

    async def delete(self, segment: RemoteSegment) -> None:
        """Delete a segment, in a thread; not before a copy that was given up has come to its end.

        Else that would write objects that nobody knows of.
        """
        copying = self._copies.get(segment.id)
        if copying is not None:
            await asyncio.wait((copying,))
        gone = self._index_cache.forget(segment)

        def work() -> None:
            self._index_cache.remove(gone)
            delete_objects(self.store, segment, self.settings.prefix)

        counts = self.counts.of(segment.segment_id.topic)
        counts.remotedeleterequests += 1
        try:
            await self._copiers.run(work)
        except StoreError:
            counts.remotedeleteerrors += 1
            raise

    async def keep_log_start(self, partition: Partition) -> None:
        """Return when it is on the disk where a log begins."""
        directory = self.broker.logs.directory_of(partition.key)
        if directory is None:
            return
        async with self._checkpointing:
            steps = directory.checkpoints.write_in_steps(LOG_START_OFFSET_CHECKPOINT, _SUFFIX)
            with directory.disk.guarding("writing log start offsets"):
                await Slices(self.broker.turns).run(steps)

    # Followers

    async def state_at(
        self, partition: Partition, epoch: int, offset: int
    ) -> tuple[int, list[EpochEntry], list[ProducerEntry]]:
        """Return what a follower continues from behind the remote segment with an offset (T14).

        That is: from which offset on, with which leader epochs and which producers.
        """
        key = partition.topic_id, partition.key.partition
        cache = self.feed.cache(key)
        segment = None if cache is None else cache.find(epoch, offset)
        if segment is None:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{partition.key}: offset {offset} is not known to be remote yet",
            )

        known = self._states.get(key)
        if known is not None and known[0] != segment.id:
            known[1].cancel()
            known = None
        if known is None:
            known = segment.id, self.broker.loop.create_task(self.state_beside(segment))
            self._states[key] = known
        task = known[1]
        await asyncio.wait((task,), timeout=_STATE_WAIT_S)
        if not task.done():
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{partition.key}: what the store has of offset {offset} is still being read",
            )
        self._states.pop(key, None)
        if task.cancelled():
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition.key}: it has changed")
        epochs, producers = task.result()
        return segment.end_offset + 1, epochs, producers

    async def state_beside(self, segment: RemoteSegment) -> State:
        """Return the leader epochs and producers that are in the store beside a segment."""

        def load() -> State:
            prefix = self.settings.prefix
            manifest = decode_manifest(self.store.get(object_key(segment, MANIFEST, prefix)))
            indexes = object_key(segment, INDEXES, prefix)
            epochs = self.store.get(indexes, *manifest.indexes[EPOCHS])
            producers = self.store.get(indexes, *manifest.indexes[SNAPSHOT])
            return parse_leader_epochs(indexes, epochs), decode_snapshot(producers)

        try:
            return await self._copiers.run(load)
        except Exception as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the state beside {segment.segment_id}: {error}"
            ) from error

    def cancel(self) -> None:
        """Begin nothing more: requests are not served any longer."""
        for each in self._tasks.values():
            each.cancel()
        self.feed.cancel()

    async def stop(self) -> None:
        """Return when nothing is done any more; threads that wait for the store are left."""
        for each in self._tasks.values():
            await each.stop()
        tasks: list[asyncio.Task[Any]] = [
            *self._deleting,
            *(task for _, task in self._states.values()),
        ]
        if self._ensuring is not None:
            tasks.append(self._ensuring)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.reads.stop()
        await self.feed.stop()
        self._copiers.close()
