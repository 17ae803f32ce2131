"""What a broker does for one tiered partition, again and again (T3, T6, T7).

A leader copies closed segments and deletes what has expired; a follower takes note of how far the
remote tier reaches, so that it may delete its own old segments. A run that fails is made again
after ``remote.log.manager.task.interval.ms``, and one that fails again after twice that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.core.uuid import random_uuid
from dohle.storage.leader_epochs import encode_leader_epochs
from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.lineage import (
    epochs_of_range,
    highest_remote_offset,
    newest_copy_of,
    remote_log_start,
)
from dohle.tiering.planning import Extent, Limits, to_copy, to_expire
from dohle.tiering.segments import RemoteSegment, SegmentId, SegmentState, SegmentUpdate
from dohle.tiering.store import StoreError
from dohle.tiering.upload import CopyJob

if TYPE_CHECKING:
    from dohle.server.partitions.partitions import Partition
    from dohle.server.tier.tier import Tier
    from dohle.storage.segment.segment import LogSegment

logger = logging.getLogger("dohle.server")

_DELAY_S_MAX = 300.0
_COPIED = SegmentState.COPY_SEGMENT_FINISHED
_DELETING = SegmentState.DELETE_SEGMENT_STARTED
_DELETED = SegmentState.DELETE_SEGMENT_FINISHED


class _NoLongerLeader(Exception):
    """Another broker leads the partition now, and does what is left."""


class PartitionTasks:
    """The work for one partition, until it is stopped."""

    def __init__(self, tier: Tier, partition: Partition) -> None:
        self._tier = tier
        self.partition = partition
        self.key = partition.topic_id, partition.key.partition
        #: Those that are being copied.
        self._copying: set[Uuid] = set()
        self._wake_up = asyncio.Event()
        self._task = tier.broker.loop.create_task(self._run())

    def look_again(self) -> None:
        """Begin a run now: it leads, or follows, or its settings are others."""
        self._wake_up.set()

    def cancel(self) -> None:
        """Begin nothing more."""
        self._task.cancel()

    async def stop(self) -> None:
        """Return when nothing is done any more; a copy that has begun is left as it is."""
        self.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        interval_s = delay_s = self._tier.settings.task_interval_ms / 1000
        while True:
            try:
                await self._tier.feed.wait_until_ready(self.key)
                await self.round()
                delay_s = interval_s
            except _NoLongerLeader:
                delay_s = interval_s
            except (KafkaError, StoreError, TimeoutError) as error:
                # A store that is down is left alone for longer and longer.
                delay_s = max(interval_s, min(2 * delay_s, _DELAY_S_MAX))
                logger.warning(
                    "%s: work on the remote tier failed, and is tried again in %.1f s: %s",
                    self.partition.key,
                    delay_s,
                    error or type(error).__name__,
                )
            except Exception:
                logger.exception(
                    "%s: work on the remote tier failed, and is tried again. Please report this.",
                    self.partition.key,
                )
            self._wake_up.clear()
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake_up.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Do what there is to do now."""
        cache = self._tier.feed.cache(self.key)
        if cache is None or self.partition.is_gone:
            return
        log = self.partition.log
        if not log.config.remote_storage_enable:
            return
        await self._restore_epochs(cache)
        if not self.partition.is_led:
            self._note_remote(cache)
            return
        epoch = self.partition.leader_epoch
        self._find_start(cache)
        self._note_remote(cache)
        if not log.config.remote_log_copy_disable:
            await self._copy(epoch)
        await self._expire(cache, epoch)

    async def _restore_epochs(self, cache: RemoteLogMetadataCache) -> None:
        """Put back leader epochs of the remote part, without which nobody could read it (T15a).

        They are lost with their file: recovery finds only those of what is on the disk.
        """
        log = self.partition.log
        epochs = log.leader_epochs.entries
        if not log.has_remote_part or (epochs and epochs[0].start_offset <= log.log_start_offset):
            return
        newest = newest_copy_of(cache, log.local_log_start_offset - 1)
        if newest is None:
            return
        found, _ = await self._tier.state_beside(newest)
        log.leader_epochs.prepend(found)
        log.leader_epochs.truncate_from_start(log.log_start_offset)
        logger.warning(
            "%s: the leader epochs before offset %d were lost, and are taken from the remote tier",
            self.partition.key,
            epochs[0].start_offset if epochs else log.log_end_offset,
        )

    def _note_remote(self, cache: RemoteLogMetadataCache) -> None:
        log = self.partition.log
        epochs, start = log.leader_epochs.entries, log.local_log_start_offset
        found = highest_remote_offset(cache, epochs, start, log.log_end_offset)
        log.highest_remote_offset = found if found >= start or log.has_remote_part else -1

    def _find_start(self, cache: RemoteLogMetadataCache) -> None:
        """Mend a log start below which nothing is left in any tier (T3.1).

        Its checkpoint was lost or is behind; or a leader of before, which did not know better, has
        deleted more. Its readers would be told that the very beginning is out of range.
        """
        log = self.partition.log
        if log.has_remote_part:
            found = remote_log_start(cache, log.leader_epochs.entries)
            start = log.local_log_start_offset
            self.raise_start(start if found is None else min(found, start))

    def raise_start(self, offset: int) -> bool:
        """Let the log begin here, or behind this; tell whether that is new."""
        log = self.partition.log
        is_new = log.increment_log_start_offset(min(offset, log.high_watermark))
        if is_new:
            # Its followers are told with their next fetch.
            self._tier.broker.recheck(self.partition.key)
        return is_new

    def _check_leader(self, epoch: int) -> None:
        if not self.partition.is_led or self.partition.leader_epoch != epoch:
            raise _NoLongerLeader

    def extent(self) -> Extent:
        """Return where the log and its segments begin and end."""
        log = self.partition.log
        return Extent(
            log.log_start_offset,
            log.last_stable_offset,
            log.log_end_offset,
            log.segments.base_offsets,
        )

    # Copying

    async def _copy(self, epoch: int) -> None:
        log = self.partition.log
        for base, following in to_copy(self.extent(), log.highest_remote_offset):
            segment = log.segments.floor(base)
            if segment is None or segment.base_offset != base:
                return
            if following > log.recovery_point:
                # What is not on the disk yet is copied by a later run.
                log.flush_soon(following)
                return
            if not await self._copy_segment(segment, following, epoch):
                # None behind it may count as remote before it does.
                return

    async def _copy_segment(self, local: LogSegment, following: int, epoch: int) -> bool:
        """Copy a segment; False if it cannot be copied."""
        job = self._job(local, following)
        if job is None:
            return False
        segment = job.segment
        self._copying.add(segment.id)
        tier = self._tier
        try:
            await tier.feed.publish(segment)
            self._check_leader(epoch)
            try:
                await tier.copy(job)
            except StoreError:
                await self._delete(segment)
                raise
            self._check_leader(epoch)
            await tier.feed.publish(self._update(segment, _COPIED))
            self._note_copied(segment)
            return True
        finally:
            self._copying.discard(segment.id)

    def _note_copied(self, segment: RemoteSegment) -> None:
        """Count a segment as remote, as others will: what was written may not have been valid."""
        cache = self._tier.feed.cache(self.key)
        if cache is not None:
            self._note_remote(cache)
        if self.partition.log.highest_remote_offset < segment.end_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{segment.segment_id} is copied, but the metadata does not have it as such",
            )

    def _job(self, local: LogSegment, following: int) -> CopyJob | None:
        log, broker = self.partition.log, self._tier.broker
        epochs = log.leader_epochs.entries
        snapshot = log.producer_state.snapshots.find(following)
        first = max(local.base_offset, log.log_start_offset)
        if snapshot is None or not epochs or epochs[0].start_offset > first:
            logger.error(
                "%s: segment %d cannot be copied to the remote tier: there is no %s",
                self.partition.key,
                local.base_offset,
                f"producer snapshot at its end, {following}"
                if snapshot is None
                else f"leader epoch at its start, {first}: none would find it there",
            )
            return None
        with log.disk.guarding(f"copying {log.partition} to the remote tier"):
            local.indexes.write_out()
            txn = None if local.indexes.txn.is_empty else local.indexes.txn.path
            max_timestamp_ms = local.largest_timestamp_ms()
        topic, index = self.partition.key
        segment = RemoteSegment(
            SegmentId(topic, self.partition.topic_id, index, random_uuid(broker.rng)),
            start_offset=local.base_offset,
            end_offset=following - 1,
            max_timestamp_ms=max_timestamp_ms,
            broker_id=broker.node_id,
            event_timestamp_ms=broker.clock.now_ms(),
            epochs=epochs_of_range(epochs, local.base_offset, following),
            size=local.size,
            txn_index_empty=txn is None,
        )
        return CopyJob(
            segment,
            log_path=local.path,
            offset_index_path=local.indexes.offset.path,
            time_index_path=local.indexes.time.path,
            txn_index_path=txn,
            snapshot_path=snapshot,
            epochs=encode_leader_epochs(each for each in epochs if each.start_offset < following),
            prefix=self._tier.settings.prefix,
        )

    def _update(self, segment: RemoteSegment, state: SegmentState) -> SegmentUpdate:
        broker = self._tier.broker
        return SegmentUpdate(segment.segment_id, state, broker.node_id, broker.clock.now_ms())

    # Deleting

    async def _expire(self, cache: RemoteLogMetadataCache, epoch: int) -> None:
        log = self.partition.log
        config = log.config
        limits = Limits(
            config.retention_ms if config.delete and config.retention_ms >= 0 else None,
            config.retention_bytes if config.delete and config.retention_bytes >= 0 else None,
        )
        remote = log.highest_remote_offset
        local_only = sum(each.size for each in log.segments if each.base_offset > remote)
        now_ms = self._tier.broker.clock.now_ms()
        epochs = log.leader_epochs.entries
        plan = to_expire(cache, self.extent(), epochs, limits, local_only, now_ms, self._copying)
        # Before anything goes: nobody is told of records that are gone, nor after a restart.
        if self.raise_start(plan.log_start_offset):
            await self._tier.keep_log_start(self.partition)
        for segment in plan.segments:
            self._check_leader(epoch)
            await self._delete(segment)

    async def _delete(self, segment: RemoteSegment) -> None:
        tier = self._tier
        await tier.feed.publish(self._update(segment, _DELETING))
        await tier.delete(segment)
        await tier.feed.publish(self._update(segment, _DELETED))

    async def delete_all(self, cache: RemoteLogMetadataCache) -> None:
        """Delete everything remote: the topic is gone, or remote no more."""
        for segment in cache:
            await self._delete(segment)
