"""Copying partitions from one leader: a connection, and one request on it at a time (F10).

``replication.follower`` decides what an answer means for a partition, ``follower_fetches`` what is
asked next; here it is done. What a leader sends of a partition is written as it came, with one
write, and only what is written is behind the next fetch: that tells the leader how far it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from dohle.client.errors import ConnectionClosed, answered_error
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.metadata.metadata_version import fetch_version, list_offsets_version
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.replication.follower import (
    Append,
    BeginFromTier,
    CompareRange,
    Delay,
    Fail,
    Reaction,
    Restart,
    Truncate,
    beginning,
    in_range,
    next_fetch,
    react,
)
from dohle.replication.follower_fetches import (
    FollowerFetches,
    Key,
    PartitionAnswer,
    SessionLost,
)
from dohle.replication.follower_frames import Told
from dohle.server.links import LinkSettings, NodeLink, broker_address
from dohle.server.net.slices import Slices
from dohle.server.partitions.partitions import Partition
from dohle.server.replicas.context import FetcherContext
from dohle.server.replicas.copying import append_fetched, in_pieces
from dohle.server.replicas.counts import FetcherCounts
from dohle.server.replicas.tier_start import FromTier, find_tier_place
from dohle.storage.log import Log

logger = logging.getLogger("dohle.server")

_LATEST, _EARLIEST = -1, -2
#: An answer has at least one batch, however large it is.
_RESPONSE_BYTES_MAX = 2**31 - 1
#: How much most answers have beside the records; and up to which size memory is kept for them.
_ANSWER_BYTES = 64 * 1024
_KEPT_BYTES_MAX = 16 * 1024 * 1024
#: A leader that refuses for so long is told of: mostly it is about to hear that it leads.
_REFUSAL_TOLD_MS = 10_000
#: What the leader has sent is damaged: it may be read again.
_DAMAGED = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})


class _Followed(NamedTuple):
    partition: Partition
    leader_epoch: int


class ReplicaFetcher:
    """Copies from one leader until it is stopped."""

    def __init__(self, context: FetcherContext, leader: BrokerId, number: int) -> None:
        """Begin; ``number`` tells it from other fetchers of the same leader."""
        self._context = context
        self._clock = context.host.clock
        self.leader = leader
        #: Its thread has this name in Kafka.
        self.name = f"ReplicaFetcherThread-{number}-{leader}"
        self.counts = FetcherCounts()
        self._followed: dict[Key, _Followed] = {}
        #: Those that have all that is committed, as far as their leader has told.
        self._in_sync: set[Key] = set()
        #: Since when the leader has refused partitions, or when that was told last.
        self._refused_since_ms: dict[Key, int] = {}
        self._fetches = FollowerFetches()
        settings = context.settings
        self._client_id = f"broker-{context.node_id}-fetcher-{number}"
        link_settings = LinkSettings(
            self._client_id,
            settings.request_timeout_ms,
            settings.connection_setup_timeout_ms,
            _RESPONSE_BYTES_MAX,
            # Most answers under load are as large as they may be.
            min(settings.limits.max_bytes + _ANSWER_BYTES, _KEPT_BYTES_MAX),
            security=context.security,
        )
        self._link = NodeLink(context.loop, context.host, link_settings)
        #: That of the last request, on which the session is.
        self._connection: Connection | None = None
        self._wake_up = asyncio.Event()
        self._is_reached = True
        self._task = context.loop.create_task(self._run())

    @property
    def is_idle(self) -> bool:
        """Tell whether it has nothing to copy."""
        return not self._followed

    # What to copy

    def follow(self, partition: Partition, leader_epoch: int) -> None:
        """Copy a partition from where its log ends."""
        key = partition.topic_id, partition.key.partition
        self._followed[key] = _Followed(partition, leader_epoch)
        self._in_sync.discard(key)
        self._refused_since_ms.pop(key, None)
        self.counts.forget(partition)
        cut = beginning(partition.log)
        if cut is None or self._try(key, cut):
            self._want(key)
        self._wake_up.set()

    def forget(self, partition: Partition) -> None:
        """Copy a partition no more."""
        key = partition.topic_id, partition.key.partition
        if self._followed.pop(key, None) is not None:
            self._in_sync.discard(key)
            self._refused_since_ms.pop(key, None)
            self._fetches.forget(key)
            self.counts.forget(partition)
            if self.is_idle and not self._is_reached:
                self._is_reached = True
                logger.info("broker %d leads nothing any more that is copied here", self.leader)

    async def stop(self) -> None:
        """Return when nothing is copied any more and the connection is gone."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._link.close()

    # Asking

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except (KafkaError, SessionLost) as error:
                self._tell_unreached(error)
            except Exception:
                logger.exception(
                    "copying from broker %d failed; it is tried again. Please report this.",
                    self.leader,
                )
            else:
                continue
            self._fetches.disconnected()
            self._link.cut()
            await asyncio.sleep(self._context.settings.backoff_ms / 1000)

    async def _round(self) -> None:
        for key in self._fetches.due(self._clock.monotonic_ms()):
            self._want(key)
        settings, image = self._context.settings, self._context.images.image
        if not self._fetches.has_wishes:
            await self._wait()
            return
        connection = await self._connect()
        version = connection.version_of(FetchRequest, fetch_version(image.metadata_version))
        asker = self._context.node_id, self._context.broker_epoch, settings.limits, version
        frame_for = self._fetches.common_request(self._client_id, *asker)
        if frame_for is None:
            request = self._fetches.request(*asker)
            response = await connection.request(request, FetchResponse, version_max=version)
            self._note_answer()
            await self._take(connection, response)
            return
        frame, body = await connection.exchange(FetchRequest.API_KEY, version, frame_for)
        self._note_answer()
        told = self._fetches.answered_commonly(frame, body)
        if told is None:
            response = connection.decode(FetchResponse, version, frame, body)
            await self._take(connection, response)
        else:
            await self._take_common(told)

    def _note_answer(self) -> None:
        if not self._is_reached:
            self._is_reached = True
            logger.info("broker %d is reached again, and copied from", self.leader)
        self.counts.requests += 1

    async def _wait(self) -> None:
        """Wait until there is something to ask for."""
        due_ms = self._fetches.next_due_ms
        delay_s = None
        if due_ms is not None:
            delay_s = max(due_ms - self._clock.monotonic_ms(), 1) / 1000
        self._wake_up.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wake_up.wait()

    async def _connect(self) -> Connection:
        context = self._context
        address = broker_address(context.images.image, self.leader, context.listener_name)
        connection = await self._link.connect(address)
        if connection is not self._connection:
            # A session ends with its connection.
            self._connection = connection
            self._fetches.disconnected()
        return connection

    def _tell_unreached(self, error: Exception) -> None:
        if self._is_reached:
            self._is_reached = False
            logger.warning("cannot copy from broker %d: %s; trying again", self.leader, error)

    # Taking in answers

    async def _take(self, connection: Connection, response: FetchResponse) -> None:
        slices = Slices(self._context.turns)
        for answered in self._fetches.answered(response):
            key, asked, data = answered
            followed = self._followed.get(key)
            # Something may have happened to it while others had their turn.
            if followed is None or not self._fetches.is_wanted(key, asked):
                continue
            reaction: Reaction = react(data, followed.partition.log)
            if isinstance(reaction, CompareRange):
                await slices.wait_for(self._compare_range(connection, answered))
            elif isinstance(reaction, BeginFromTier):
                start = reaction.log_start_offset
                await slices.wait_for(self._begin_from_tier(connection, answered, start))
            elif isinstance(reaction, Append):
                await self._append(slices, key, asked, reaction)
            elif self._try(key, reaction):
                self._want(key)
            await slices.give_way()

    async def _take_common(self, told: Sequence[Told]) -> None:
        """Take in an answer that has nothing but records and offsets."""
        slices = Slices(self._context.turns)
        for topic_id, index, high_watermark, log_start_offset, records in told:
            key = topic_id, index
            asked = self._fetches.asked(key)
            if asked is not None and key in self._followed:
                append = Append(records, high_watermark, log_start_offset)
                await self._append(slices, key, asked, append)
            await slices.give_way()

    async def _append(
        self, slices: Slices, key: Key, asked: FetchPartition, append: Append
    ) -> None:
        """Append, and let others have their turn in between if there is very much."""
        partition = self._followed[key].partition
        _, high_watermark, log_start_offset = append
        for piece in in_pieces(memoryview(append.records)):
            if not self._try(key, Append(piece, high_watermark, log_start_offset)):
                return
            if slices.is_over:
                await slices.wait()
                if not self._fetches.is_wanted(key, asked):
                    return
        self.counts.copied(partition, len(append.records), append.high_watermark)
        if not _is_same(asked, partition.log) or self._held_back_ms(key):
            self._want(key)

    def _held_back_ms(self, key: Key) -> int:
        """Return how long not to ask for a partition: it is throttled and out of sync (F18)."""
        followed = self._followed.get(key)
        if followed is None or key in self._in_sync or not followed.partition.throttles_fetching:
            return 0
        return self._context.quota.wait_ms(self._clock.monotonic_ms())

    def _want(self, key: Key) -> None:
        """Ask for what comes next."""
        followed = self._followed.get(key)
        if followed is not None:
            if wait_ms := self._held_back_ms(key):
                self._fetches.delay(key, self._clock.monotonic_ms() + wait_ms)
                return
            max_bytes = self._context.settings.partition_max_bytes
            fetch = next_fetch(followed.partition.log, key[1], followed.leader_epoch, max_bytes)
            self._fetches.want(key, fetch)

    def _try(
        self, key: Key, reaction: Append | Truncate | Restart | FromTier | Delay | Fail
    ) -> bool:
        """Do it; False if the partition is left out for a while, or until another leader."""
        partition, leader_epoch = self._followed[key]
        try:
            match reaction:
                case Append(records, high_watermark, log_start_offset):
                    if records:
                        append_fetched(partition.log, memoryview(records), leader_epoch)
                    self._context.commits.replicated(partition, high_watermark, log_start_offset)
                    self._note_copied(key, len(records), high_watermark)
                case Truncate(offset):
                    self._warn_of_loss(partition, offset)
                    partition.log.truncate_to(offset)
                    self._context.commits.note_end(partition)
                case Restart(offset):
                    partition.log.truncate_fully_and_start_at(offset)
                    self._context.commits.note_end(partition)
                case FromTier(log_start_offset, offset, epochs, producers):
                    partition.log.start_from_tier(offset, log_start_offset, epochs, producers)
                    self._context.commits.note_end(partition)
                case Delay(error):
                    self._tell_if_it_lasts(key, error)
                    self._delay(key)
                    return False
                case Fail(error):
                    # The metadata log is about to tell of a newer leader.
                    logger.debug("%s: the leader answers %s", partition.key, error.name)
                    self._give_up(key)
                    return False
        except KafkaError as error:
            # A disk that is full has room again some day; one that has failed does not come back.
            is_full = error.code is ErrorCode.KAFKA_STORAGE_ERROR
            if error.code in _DAMAGED or (is_full and partition.log.disk.failure is None):
                logger.warning("%s cannot be copied now: %s; trying again", partition.key, error)
                self._delay(key)
            else:
                self._fail(key, str(error))
            return False
        except Exception:
            logger.exception("%s could not be copied. Please report this.", partition.key)
            self._fail(key, "an error that was not expected")
            return False
        return True

    def _note_copied(self, key: Key, size: int, high_watermark: int) -> None:
        partition = self._followed[key].partition
        if self._refused_since_ms:
            self._refused_since_ms.pop(key, None)
        if partition.log.log_end_offset >= high_watermark:
            self._in_sync.add(key)
        else:
            self._in_sync.discard(key)
        if self._context.node_id in partition.image.adding_replicas:
            partition.traffic.reassignment_bytes_in += size
        if size and partition.throttles_fetching:
            self._context.quota.record(size, self._clock.monotonic_ms())

    def _tell_if_it_lasts(self, key: Key, error: ErrorCode) -> None:
        """Tell of a leader that refuses, unless it is about to hear that it leads."""
        key_name, now_ms = self._followed[key].partition.key, self._clock.monotonic_ms()
        logger.debug("%s: the leader answers %s", key_name, error.name)
        since_ms = self._refused_since_ms.setdefault(key, now_ms)
        if now_ms - since_ms >= _REFUSAL_TOLD_MS:
            self._refused_since_ms[key] = now_ms
            logger.warning(
                "%s is not copied: for %d s the leader, broker %d, has answered %s",
                key_name,
                (now_ms - since_ms) // 1000,
                self.leader,
                error.name,
            )

    def _delay(self, key: Key) -> None:
        backoff_ms = self._context.settings.backoff_ms
        self._fetches.delay(key, self._clock.monotonic_ms() + backoff_ms)

    def _fail(self, key: Key, reason: str) -> None:
        partition = self._followed[key].partition
        logger.error(
            "%s is not copied until it has another leader or this broker is restarted: %s",
            partition.key,
            reason,
        )
        self._give_up(key)

    def _give_up(self, key: Key) -> None:
        """Leave a partition out until it has another leader."""
        self._fetches.forget(key)
        self.counts.failed[self._followed[key].partition] = None

    def _warn_of_loss(self, partition: Partition, offset: int) -> None:
        if offset < partition.log.high_watermark:
            logger.warning(
                "%s: cut to offset %d, as its leader says, below the high watermark %d",
                partition.key,
                offset,
                partition.log.high_watermark,
            )

    async def _compare_range(self, connection: Connection, answered: PartitionAnswer) -> None:
        """Find out where the leader's log is, and go there (the F table, error 1)."""
        key, asked, _ = answered
        try:
            start = await self._leader_offset(connection, key, _EARLIEST)
            if not self._fetches.is_wanted(key, asked):
                # It may not even be followed any more.
                return
            end = await self._leader_offset(connection, key, _LATEST)
        except ConnectionClosed:
            raise
        except KafkaError as error:
            if self._fetches.is_wanted(key, asked):
                self._try(key, Delay(error.code))
            return
        if not self._fetches.is_wanted(key, asked):
            return
        log = self._followed[key].partition.log
        wanted = in_range(log, start, end)
        if wanted is None:
            # Nothing is to be done about it: the next fetch may be in range again.
            self._delay(key)
        elif self._try(key, wanted):
            self._want(key)

    async def _begin_from_tier(
        self, connection: Connection, answered: PartitionAnswer, log_start_offset: int
    ) -> None:
        """Begin where the leader's disk does, with what the remote tier knows of before (T14)."""
        key, asked, _ = answered
        partition = self._followed[key].partition
        try:
            place = await find_tier_place(
                connection, partition, self._context, self._followed[key].leader_epoch
            )
            state = await self._context.tier_state(partition, *place)
        except ConnectionClosed:
            raise
        except KafkaError as error:
            logger.debug("%s: %s", partition.key, error)
            if self._fetches.is_wanted(key, asked):
                self._try(key, Delay(error.code))
            return
        if self._fetches.is_wanted(key, asked) and self._try(
            key, FromTier(log_start_offset, *state)
        ):
            self._want(key)

    async def _leader_offset(self, connection: Connection, key: Key, timestamp: int) -> int:
        partition, leader_epoch = self._followed[key]
        asked = ListOffsetsPartition(
            partition_index=key[1], current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsTopic(name=partition.key.topic, partitions=(asked,))
        level = self._context.images.image.metadata_version
        response = await connection.request(
            ListOffsetsRequest(replica_id=self._context.node_id, topics=(topic,)),
            ListOffsetsResponse,
            version_max=list_offsets_version(level),
        )
        found = response.topics[0].partitions[0]
        if found.error_code:
            text = f"{partition.key}: the leader does not tell its offsets"
            raise answered_error(found.error_code, text)
        return found.offset


def _is_same(asked: FetchPartition, log: Log) -> bool:
    """Tell whether the next fetch would ask for the same."""
    latest = log.leader_epochs.latest_epoch
    return (
        asked.fetch_offset == log.log_end_offset
        and asked.log_start_offset == log.log_start_offset
        and asked.last_fetched_epoch == (-1 if latest is None else latest)
    )
