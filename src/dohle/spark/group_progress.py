"""Progress of a stream under ``kafka.group.id``, so that Kafka's tools show its lag.

The checkpoint alone decides where a stream goes on; what is committed here is to look at. So a
commit that fails is told, once, and fails nothing; nor does a coordinator that cannot be reached
hold the stream up for longer than ``TIME_LIMIT_S``, and not again before ``PAUSE_S`` have passed.
Committed is only what a finished batch has read: a group never seems further than the stream's
results are.
"""

from __future__ import annotations

import asyncio
import logging

from dohle.client import Admin, Cluster, OffsetAndMetadata
from dohle.core.errors import KafkaError
from dohle.spark.source.offsets import Positions

_log = logging.getLogger("dohle.spark")

TIME_LIMIT_S, PAUSE_S = 5.0, 60.0


class GroupProgress:
    """Commits how far a stream has come."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        time_limit_s: float = TIME_LIMIT_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._admin = Admin(cluster)
        self._group_id = group_id
        self.time_limit_s = time_limit_s
        self._pause_s = pause_s
        self._not_before = 0.0
        self._committed: Positions = {}
        self._last_warning = ""

    async def commit(self, positions: Positions) -> None:
        """Commit what was not committed before."""
        news = {
            partition: OffsetAndMetadata(offset)
            for partition, offset in positions.items()
            if self._committed.get(partition) != offset
        }
        loop = asyncio.get_running_loop()
        if not news or loop.time() < self._not_before:
            return
        try:
            async with asyncio.timeout(self.time_limit_s):
                (await self._admin.alter_group_offsets(self._group_id, news)).ok()
        except TimeoutError:
            self._not_before = loop.time() + self._pause_s
            self._warn(f"no coordinator has taken it within {self.time_limit_s:g} s")
        except KafkaError as error:
            self._warn(str(error))
        else:
            self._committed = dict(positions)

    def _warn(self, reason: str) -> None:
        if reason != self._last_warning:
            self._last_warning = reason
            _log.warning("progress is not visible under kafka.group.id: %s", reason)
