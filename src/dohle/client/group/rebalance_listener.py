"""Callbacks for partitions that are assigned and revoked."""

from __future__ import annotations

from collections.abc import Sequence

from dohle.core.ids import TopicPartition


class RebalanceListener:
    """Called when a consumer gets or gives up partitions; by default it does nothing.

    Reading waits during a call. What it raises is raised by the next read; the partitions are
    assigned or revoked all the same.
    """

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were assigned; they are read from here on. Seeking is possible."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are about to be revoked; committing is still possible."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are lost, and others may read them already; committing is not possible."""
        await self.on_partitions_revoked(partitions)
