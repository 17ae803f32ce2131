"""Progress of a stream under ``kafka.group.id``, so that Kafka's tools show its lag.

The checkpoint alone decides where a stream goes on; what is committed here is to look at. So a
commit that fails is told, once, and fails nothing. Committed is only what a finished batch has
read: a group never seems further than the stream's results are.
"""

from __future__ import annotations

import logging

from dohle.client import Admin, Cluster, OffsetAndMetadata
from dohle.core.errors import KafkaError
from dohle.spark.offsets import Positions

_log = logging.getLogger("dohle.spark")


class GroupProgress:
    """Commits how far a stream has come."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._admin = Admin(cluster)
        self._group_id = group_id
        self._committed: Positions = {}
        self._last_warning = ""

    async def commit(self, positions: Positions) -> None:
        """Commit what was not committed before."""
        news = {
            partition: OffsetAndMetadata(offset)
            for partition, offset in positions.items()
            if self._committed.get(partition) != offset
        }
        if not news:
            return
        try:
            (await self._admin.alter_group_offsets(self._group_id, news)).ok()
        except KafkaError as error:
            if str(error) != self._last_warning:
                self._last_warning = str(error)
                _log.warning("progress is not visible under kafka.group.id: %s", error)
        else:
            self._committed = dict(positions)
