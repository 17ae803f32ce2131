"""What a program may want to do when partitions come and go."""

from __future__ import annotations

from collections.abc import Sequence

from dohle.core.ids import TopicPartition


class RebalanceListener:
    """Told of partitions that a consumer gets and gives up; what is not overridden does nothing.

    Reading waits while it is told. What it raises is raised by the next read; the partitions come
    or go all the same.
    """

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions came; they are read from here on. Seeking is possible."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions will go; committing is still possible."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are gone, others may read them already; committing is not possible."""
        await self.on_partitions_revoked(partitions)
