"""Tells when a pipeline that has caught up has work again: when its topics have grown."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from dohle.client import Admin, ClientConfig, Cluster, End
from dohle.core.ids import TopicName, TopicPartition
from dohle.spark import worker_loop

#: How often flows without topics are run to see whether there is anything new.
_BLIND_INTERVAL_S = 10.0

Positions = Mapping[tuple[str, int], int]


class SourceTopics:
    """How far flows have read their topics, and whether these have grown since."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._read: dict[str, Positions] = {}
        self._lock = threading.Lock()

    def note(self, flow: str, positions: Positions) -> None:
        """Record how far a flow has read."""
        if positions:
            with self._lock:
                self._read[flow] = positions

    def await_more(self, interval_s: float) -> None:
        """Return when a flow has something to read."""
        read = self._slowest()
        if not read:
            time.sleep(_BLIND_INTERVAL_S)
            return
        while not self._have_grown(read):
            time.sleep(interval_s)

    def _slowest(self) -> dict[TopicPartition, int]:
        """Return for each partition the position of the flow that has read least of it."""
        slowest: dict[TopicPartition, int] = {}
        with self._lock:
            for positions in self._read.values():
                for (topic, number), position in positions.items():
                    partition = TopicPartition(TopicName(topic), number)
                    slowest[partition] = min(position, slowest.get(partition, position))
        return slowest

    def _have_grown(self, read: Mapping[TopicPartition, int]) -> bool:
        async def look(cluster: Cluster) -> bool:
            for topic in {partition.topic for partition in read}:
                await cluster.refresh((topic,))
                info = await cluster.topic(topic)
                if any(TopicPartition(topic, number) not in read for number in info.partitions):
                    return True
            ends = await Admin(cluster).list_offsets(dict.fromkeys(read, End()))
            return any(found.offset > read[partition] for partition, found in ends.done.items())

        cluster = worker_loop.cluster(self._bootstrap, ClientConfig(client_id="dohle-pipeline"))
        return worker_loop.run(look(cluster))
