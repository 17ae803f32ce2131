"""What a consumer does when its group moves partitions: commit, tell the listener, read or not."""

from __future__ import annotations

from dohle.client.cluster import Cluster
from dohle.client.config import ConsumerConfig
from dohle.client.consumer.fetcher import Fetcher
from dohle.client.consumer.opening import readers_where_committed
from dohle.client.group.commits import OffsetCommits
from dohle.client.group.offsets import OffsetAndMetadata
from dohle.client.group.rebalance_listener import RebalanceListener
from dohle.core.ids import TopicPartition


def positions(fetcher: Fetcher) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return where reading goes on, in the form in which it is committed."""
    return {
        partition: OffsetAndMetadata(reader.position, reader.position_epoch)
        for partition, reader in fetcher.readers.items()
    }


class Rebalancing:
    """The moves of one consumer's partitions."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, fetcher: Fetcher, commits: OffsetCommits
    ) -> None:
        self.listener = RebalanceListener()
        #: Whether to stop at the ends that partitions have when they are assigned.
        self.stop_at_end = False
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._commits = commits

    async def save(self) -> None:
        """Commit what was read before a rebalance during which reading continues."""
        if self._config.enable_auto_commit:
            await self._commits.commit_quietly(positions(self._fetcher))

    async def give_up(self, partitions: tuple[TopicPartition, ...], is_lost: bool) -> None:
        """Revoke partitions during a rebalance."""
        try:
            await self.hand_back(partitions, is_lost=is_lost, commit=True)
        except Exception as error:
            # It comes from the listener: the caller gets it, and the rebalance continues.
            self._fetcher.errors.append(error)

    async def hand_back(
        self, partitions: tuple[TopicPartition, ...], *, is_lost: bool, commit: bool
    ) -> None:
        """Stop reading partitions; what the listener raises is raised."""
        try:
            if is_lost:
                await self.listener.on_partitions_lost(partitions)
                return
            if commit and self._config.enable_auto_commit:
                places = positions(self._fetcher)
                await self._commits.commit_quietly(
                    {each: places[each] for each in partitions if each in places}
                )
            await self.listener.on_partitions_revoked(partitions)
        finally:
            self._fetcher.remove(partitions)
            self._commits.forget(partitions)

    async def take(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Start reading assigned partitions at their committed offsets."""
        if partitions:
            readers = await readers_where_committed(
                self._cluster,
                self._config,
                self._commits,
                partitions,
                stop_at_end=self.stop_at_end,
            )
            self._fetcher.add(readers)
        try:
            await self.listener.on_partitions_assigned(partitions)
        except Exception as error:
            self._fetcher.errors.append(error)
