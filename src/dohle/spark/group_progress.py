"""Commits a stream's progress under ``kafka.group.id``, so that Kafka's tools show its lag.

The checkpoint alone decides where a stream continues; what is committed here is for display. So a
failed commit is logged, once, and fails nothing; and an unreachable coordinator does not delay the
stream for longer than ``TIME_LIMIT_S``, and not again before ``PAUSE_S`` have passed. Only what a
finished batch has read is committed: a group never seems to be ahead of the stream's results.
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
            self._warn(f"no coordinator accepted it within {self.time_limit_s:g} s")
        except KafkaError as error:
            self._warn(str(error))
        else:
            self._committed = dict(positions)

    def _warn(self, reason: str) -> None:
        if reason != self._last_warning:
            self._last_warning = reason
            _log.warning(
                "the progress of this stream is not visible under kafka.group.id, but "
                "the stream goes on: %s",
                reason,
            )
