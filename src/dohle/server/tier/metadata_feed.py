"""What is in the remote tier, read from ``__remote_log_metadata`` and written to it (T9).

A broker reads the metadata partitions of all its tiered partitions, from their leaders, whoever
they are. A partition that is new here is ready when everything that was there has been read again
from the beginning. What this broker writes counts when it has read it back: so nothing is known
here that others do not get to know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.client.producer.partitioner import murmur2
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.protocol.record_framing import decode_remote_log_metadata_record
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.server.links import LinkSettings, NodeLink, broker_address
from dohle.server.net.slices import Slices
from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.segments import (
    METADATA_TOPIC,
    RemoteSegment,
    SegmentUpdate,
    event_of,
    metadata_key,
)

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.tier.settings import TierSettings

logger = logging.getLogger("dohle.server")

#: Topic id and partition.
Key = tuple[Uuid, int]

_TOPIC: Final = TopicName(METADATA_TOPIC)
_LATEST: Final = -1
_CONSUMER: Final = BrokerId(-1)
_MAX_WAIT_MS: Final = 500
_MAX_BYTES: Final = 1024 * 1024
_BACKOFF_S: Final = 0.5
#: The last versions that name topics.
_FETCH_VERSION: Final = 12
_PRODUCE_VERSION: Final = 12
_READ_BACK_S: Final = 120.0


class _Watched:
    """A tiered partition of this broker."""

    def __init__(self) -> None:
        self.cache = RemoteLogMetadataCache()
        #: The offset of the last record that it has taken in.
        self.applied = -1
        #: How far the metadata partition is to be read before this is known; None: not asked yet.
        self.ready_at: int | None = None
        self.ready = asyncio.Event()


class MetadataFeed:
    """The metadata of this broker's tiered partitions."""

    def __init__(self, broker: BrokerServer, settings: TierSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._watched: dict[Key, _Watched] = {}
        #: Where the next fetch of each metadata partition begins.
        self._positions: dict[int, int] = {}
        self._readers: dict[BrokerId, _Reader] = {}
        self._progress = asyncio.Condition()
        self._creating = asyncio.Lock()
        self._publish_link: dict[BrokerId, NodeLink] = {}
        self._publishing: dict[BrokerId, asyncio.Lock] = {}

    def link(self, name: str) -> NodeLink:
        """Return a way to another broker, or to this one."""
        config = self._broker.config
        settings = LinkSettings(
            f"{METADATA_TOPIC}_client_{self._broker.node_id}_{name}",
            config.get_int("request.timeout.ms"),
            config.get_int("socket.connection.setup.timeout.ms"),
            security=self._broker.link_security,
        )
        return NodeLink(self._broker.loop, self._broker.host, settings)

    # Who is watched

    def assign(self, key: Key) -> None:
        """Read what there is of a partition, from the beginning."""
        if key not in self._watched:
            self._watched[key] = _Watched()
            self._positions[self.partition_of(key)] = 0
            self.look_for_leaders()

    def unassign(self, key: Key) -> None:
        """Forget a partition."""
        self._watched.pop(key, None)
        needed = {self.partition_of(each) for each in self._watched}
        for index in set(self._positions) - needed:
            del self._positions[index]

    def partition_of(self, key: Key) -> int:
        """Return the metadata partition of a partition."""
        hashed = murmur2(metadata_key(*key)) & 0x7FFFFFFF
        return hashed % self._settings.metadata_partitions

    def cache(self, key: Key) -> RemoteLogMetadataCache | None:
        """Return what is remote of a partition; None if that is not known yet."""
        watched = self._watched.get(key)
        return watched.cache if watched is not None and watched.ready.is_set() else None

    async def wait_until_ready(self, key: Key) -> None:
        """Return when it is known what is remote of a partition."""
        watched = self._watched.get(key)
        if watched is not None:
            await watched.ready.wait()

    # Reading

    def look_for_leaders(self) -> None:
        """Read from those that lead metadata partitions now."""
        topic = self._broker.image.topic(_TOPIC)
        if topic is None:
            return
        for index in self._positions:
            image = topic.partitions.get(index)
            if image is not None and image.leader >= 0 and image.leader not in self._readers:
                self._readers[image.leader] = _Reader(self._broker, self, image.leader)
        for reader in self._readers.values():
            reader.wake_up.set()

    def wanted_from(self, leader: BrokerId) -> dict[int, int]:
        """Return what is to be read from a broker: metadata partitions, and from where on."""
        topic = self._broker.image.topic(_TOPIC)
        if topic is None:
            return {}
        return {
            index: position
            for index, position in self._positions.items()
            if index in topic.partitions and topic.partitions[index].leader == leader
        }

    def without_end(self, indexes: Iterable[int]) -> dict[int, list[_Watched]]:
        """Return which of these metadata partitions are to be asked for their end, and for whom."""
        wanted: dict[int, list[_Watched]] = {}
        for key, watched in self._watched.items():
            index = self.partition_of(key)
            if watched.ready_at is None and index in indexes:
                wanted.setdefault(index, []).append(watched)
        return wanted

    async def take(self, index: int, asked: int, data: PartitionData) -> None:
        """Take in what was read of a metadata partition."""
        if self._positions.get(index) != asked:
            # It was begun anew meanwhile.
            return
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_anew(index, max(0, data.log_start_offset))
            return
        if data.error_code:
            raise answered_error(data.error_code, f"{_TOPIC}-{index} cannot be read")
        mine = {key: w for key, w in self._watched.items() if self.partition_of(key) == index}
        position, slices = asked, Slices(self._broker.turns)
        for batch in batches(data.records or b""):
            if not batch.is_control:
                for record in batch:
                    if record.offset >= position:
                        self._apply(mine, record.offset, record.value)
            position = batch.next_offset
            await slices.give_way()
            if self._positions.get(index) != asked:
                return
        self._positions[index] = position
        for watched in mine.values():
            if watched.ready_at is not None and position >= watched.ready_at:
                watched.ready.set()
        async with self._progress:
            self._progress.notify_all()

    def _begin_anew(self, index: int, position: int) -> None:
        """Read a metadata partition again that has lost its end, by an unclean election.

        Other records have come there since, at offsets that were read before. What is known already
        stays so: it is in the store.
        """
        logger.warning("%s-%d has lost records, and is read again", _TOPIC, index)
        self._positions[index] = position
        for key, watched in self._watched.items():
            if self.partition_of(key) == index:
                watched.applied, watched.ready_at = -1, None
                watched.ready.clear()

    def _apply(self, mine: dict[Key, _Watched], offset: int, value: bytes | None) -> None:
        try:
            event = event_of(decode_remote_log_metadata_record(value or b""))
        except (KafkaError, ValueError) as error:
            logger.error(
                "a record of %s at offset %d cannot be understood, and is left out: %s",
                _TOPIC,
                offset,
                error,
            )
            return
        if event is None:
            return
        watched = mine.get((event.segment_id.topic_id, event.segment_id.partition))
        if watched is not None and offset > watched.applied:
            watched.applied = offset
            watched.cache.apply(event)

    # Writing

    async def publish(self, event: RemoteSegment | SegmentUpdate) -> None:
        """Write a record, and return when it was read back here."""
        await self.ensure_topic()
        key = event.segment_id.topic_id, event.segment_id.partition
        index = self.partition_of(key)
        leader = self._leader(index)
        lock = self._publishing.setdefault(leader, asyncio.Lock())
        async with lock:
            offset = await self._produce(leader, index, event.encode())
        async with asyncio.timeout(_READ_BACK_S), self._progress:
            await self._progress.wait_for(
                lambda: self._positions.get(index, offset + 1) > offset or key not in self._watched
            )

    def _leader(self, index: int) -> BrokerId:
        image = self._broker.image.partition(_TOPIC, index)
        if image is None or image.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{_TOPIC}-{index} has no leader")
        return image.leader

    async def _produce(self, leader: BrokerId, index: int, value: bytes) -> int:
        broker = self._broker
        link = self._publish_link.get(leader)
        if link is None:
            link = self._publish_link[leader] = self.link("producer")
        builder = BatchBuilder()
        builder.append(broker.clock.now_ms(), None, value)
        part = PartitionProduceData(index=index, records=bytes(builder.build()))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=broker.config.get_int("request.timeout.ms"),
            topic_data=(TopicProduceData(name=_TOPIC, partition_data=(part,)),),
        )
        listener = broker.config.placement.inter_broker_listener_name
        connection = await link.connect(broker_address(broker.image, leader, listener))
        response = await connection.request(request, ProduceResponse, version_max=_PRODUCE_VERSION)
        found = response.responses[0].partition_responses[0]
        if found.error_code:
            raise answered_error(found.error_code, f"{_TOPIC}-{index} cannot be written")
        return found.base_offset

    # The topic

    async def ensure_topic(self) -> None:
        """Return when the topic is there; KafkaError if it cannot be created, or is another."""
        async with self._creating:
            topic = self._broker.image.topic(_TOPIC)
            if topic is None:
                await self._create()
                return
        count = len(topic.partitions)
        if count != self._settings.metadata_partitions:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{_TOPIC} has {count} partitions and not {self._settings.metadata_partitions}: set"
                " rlmm.config.remote.log.metadata.topic.num.partitions to the former",
            )

    async def _create(self) -> None:
        settings = self._settings
        wanted = CreatableTopic(
            name=_TOPIC,
            num_partitions=settings.metadata_partitions,
            replication_factor=settings.metadata_replication_factor,
            configs=tuple(
                CreatableTopicConfig(name=k, value=v) for k, v in settings.metadata_configs.items()
            ),
        )
        request = CreateTopicsRequest(topics=(wanted,))
        reply = await self._broker.channel.send(request, CreateTopicsResponse)
        result = reply.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise answered_error(
                result.error_code, f"{_TOPIC} cannot be created: {result.error_message}"
            )

    def cancel(self) -> None:
        """Read nothing more."""
        for reader in self._readers.values():
            reader.cancel()

    async def stop(self) -> None:
        """Return when nothing is read or written any more."""
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            await reader.stop()
        for link in self._publish_link.values():
            await link.close()


class _Reader:
    """Reads from one leader, until it is stopped."""

    def __init__(self, broker: BrokerServer, feed: MetadataFeed, leader: BrokerId) -> None:
        self._broker = broker
        self._feed = feed
        self._leader = leader
        self._link = feed.link("consumer")
        self.wake_up = asyncio.Event()
        self._is_reached = True
        self._task = broker.loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
                self._is_reached = True
                continue
            except (KafkaError, ValueError) as error:
                if self._is_reached:
                    self._is_reached = False
                    logger.warning(
                        "cannot read %s from broker %d: %s; trying again",
                        _TOPIC,
                        self._leader,
                        error,
                    )
            except Exception:
                logger.exception(
                    "reading %s from broker %d failed; it is tried again. Please report this.",
                    _TOPIC,
                    self._leader,
                )
            self._link.cut()
            await asyncio.sleep(_BACKOFF_S)

    async def _round(self) -> None:
        wanted = self._feed.wanted_from(self._leader)
        if not wanted:
            self.wake_up.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF_S):
                    await self.wake_up.wait()
            return
        broker = self._broker
        listener = broker.config.placement.inter_broker_listener_name
        address = broker_address(broker.image, self._leader, listener)
        connection = await self._link.connect(address)
        await self._find_ends(connection, wanted)
        parts = tuple(
            FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=_MAX_BYTES)
            for index, position in wanted.items()
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            topics=(FetchTopic(topic=_TOPIC, partitions=parts),),
        )
        response = await connection.request(request, FetchResponse, version_max=_FETCH_VERSION)
        if response.error_code:
            raise answered_error(response.error_code, f"{_TOPIC} cannot be read")
        for topic in response.responses:
            for data in topic.partitions:
                await self._feed.take(data.partition_index, wanted[data.partition_index], data)

    async def _find_ends(self, connection: Connection, indexes: Iterable[int]) -> None:
        """Find out how much is to be read before it is known what is remote.

        The high watermark of an answer does not say that: that of a new leader may be behind for a
        moment. Asked for its end, a leader that does not know refuses (KIP-207).
        """
        asking = self._feed.without_end(indexes)
        if not asking:
            return
        parts = tuple(ListOffsetsPartition(partition_index=i, timestamp=_LATEST) for i in asking)
        response = await connection.request(
            ListOffsetsRequest(
                replica_id=_CONSUMER, topics=(ListOffsetsTopic(name=_TOPIC, partitions=parts),)
            ),
            ListOffsetsResponse,
        )
        for found in response.topics[0].partitions:
            if found.error_code:
                text = f"{_TOPIC}-{found.partition_index} does not tell its end"
                raise answered_error(found.error_code, text)
            for watched in asking[found.partition_index]:
                watched.ready_at = found.offset

    def cancel(self) -> None:
        """Read nothing more."""
        self._task.cancel()

    async def stop(self) -> None:
        """Return when nothing is read any more."""
        self.cancel()
        await asyncio.wait([self._task])
        await self._link.close()
