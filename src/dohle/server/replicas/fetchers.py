"""Who copies what: each partition that another broker leads has one fetcher (F4, F10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from dohle.core.ids import BrokerId, TopicPartition
from dohle.metadata.image import Endpoint
from dohle.metadata.partition import NO_LEADER
from dohle.server.partitions.partitions import Partition
from dohle.server.replicas.context import FetcherContext

if TYPE_CHECKING:
    from dohle.server.replicas.fetcher import ReplicaFetcher

_UINT32 = 2**32
_INT32_MAX = 2**31 - 1


class _Following(NamedTuple):
    leader: BrokerId
    leader_epoch: int
    fetcher: ReplicaFetcher


class Fetchers:
    """All fetchers of a broker."""

    def __init__(self, context: FetcherContext, count: int) -> None:
        """Prepare, with ``count`` fetchers for each leader."""
        self._context = context
        self._count = count
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._following: dict[Partition, _Following] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def all(self) -> list[ReplicaFetcher]:
        """Those that there are now."""
        return list(self._fetchers.values())

    def address_of(self, leader: BrokerId) -> Endpoint | None:
        """Return where a leader is, as brokers see it (M6)."""
        registered = self._context.images.image.broker(leader)
        name = self._context.listener_name
        return None if registered is None else registered.endpoints.get(name)

    def update(self, partition: Partition) -> None:
        """Take in who leads a partition now.

        A leader that goes on in the same epoch is copied from as before, whatever else changed.
        """
        image = partition.image
        known = self._following.get(partition)
        if not self._is_to_be_copied(partition):
            if known is not None:
                self.forget(partition)
            return
        if known is not None:
            if known.leader_epoch == image.leader_epoch and known.leader == image.leader:
                return
            self._leave(partition, known)
        fetcher = self._fetcher(image.leader, partition.key)
        self._following[partition] = _Following(image.leader, image.leader_epoch, fetcher)
        fetcher.follow(partition, image.leader_epoch)
        self._stop_idle()

    def _is_to_be_copied(self, partition: Partition) -> bool:
        image, node_id = partition.image, self._context.node_id
        if partition.is_led or partition.is_gone or image.leader in (NO_LEADER, node_id):
            return False
        registered = self._context.images.image.broker(node_id)
        is_leaving = registered is not None and registered.in_controlled_shutdown
        # A broker that is about to go must not come back into an ISR (A53).
        return not (is_leaving and node_id not in image.isr)

    def forget(self, partition: Partition) -> None:
        """Copy a partition no more."""
        known = self._following.pop(partition, None)
        if known is not None:
            self._leave(partition, known)
            self._stop_idle()

    def resize(self, count: int) -> None:
        """Share the partitions of each leader among another number of fetchers."""
        if count == self._count:
            return
        self._count = count
        partitions = list(self._following)
        for partition in partitions:
            self._leave(partition, self._following.pop(partition))
        for partition in partitions:
            self.update(partition)
        self._stop_idle()

    def _leave(self, partition: Partition, known: _Following) -> None:
        known.fetcher.forget(partition)

    def _fetcher(self, leader: BrokerId, key: TopicPartition) -> ReplicaFetcher:
        # A node that is alone starts without all that a client needs.
        from dohle.server.replicas.fetcher import ReplicaFetcher

        number = fetcher_number(key, self._count)
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = self._fetchers[leader, number] = ReplicaFetcher(self._context, leader, number)
        return fetcher

    def _stop_idle(self) -> None:
        for key, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle:
                del self._fetchers[key]
                task = self._context.loop.create_task(fetcher.stop())
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        """Return when nothing is copied any more."""
        fetchers, self._fetchers = self._fetchers, {}
        self._following.clear()
        await asyncio.gather(*(each.stop() for each in fetchers.values()), *self._stopping)


def fetcher_number(key: TopicPartition, count: int) -> int:
    """Return which of a leader's fetchers copies a partition: the same as in Kafka (F10)."""
    hashed = 0
    for letter in key.topic:
        hashed = 31 * hashed + ord(letter)
    hashed = (31 * hashed + key.partition) % _UINT32
    signed = hashed - _UINT32 if hashed > _INT32_MAX else hashed
    return (0 if signed == -_INT32_MAX - 1 else abs(signed)) % count
