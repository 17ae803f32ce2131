"""How a follower finds out where to begin, if the leader has the rest in the remote tier (T14).

It copies no more than what is on the leader's disk: what is before that is remote, and stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.metadata.metadata_version import list_offsets_version
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.producers.entry import ProducerEntry

if TYPE_CHECKING:
    from dohle.server.partitions.partitions import Partition
    from dohle.server.replicas.context import FetcherContext

_EARLIEST_LOCAL: Final = -4


class FromTier(NamedTuple):
    """Remove everything, and go on behind what is remote."""

    log_start_offset: int
    offset: int
    epochs: list[EpochEntry]
    producers: list[ProducerEntry]


class TierPlace(NamedTuple):
    """The last offset that the leader has in the remote tier only, and its epoch."""

    epoch: int
    offset: int


async def find_tier_place(
    connection: Connection, partition: Partition, context: FetcherContext, leader_epoch: int
) -> TierPlace:
    """Ask the leader where its disk begins, and of which epoch the offset before that is."""
    asked = ListOffsetsPartition(
        partition_index=partition.key.partition,
        current_leader_epoch=leader_epoch,
        timestamp=_EARLIEST_LOCAL,
    )
    topic = ListOffsetsTopic(name=partition.key.topic, partitions=(asked,))
    response = await connection.request(
        ListOffsetsRequest(replica_id=context.node_id, topics=(topic,)),
        ListOffsetsResponse,
        version_max=list_offsets_version(context.images.image.metadata_version),
    )
    found = response.topics[0].partitions[0]
    if found.error_code:
        text = f"{partition.key}: the leader does not tell where its disk begins"
        raise answered_error(found.error_code, text)
    epoch, last = found.leader_epoch, found.offset - 1
    if epoch > 0:
        end_epoch, end_offset = await _epoch_end(
            connection, partition, context, leader_epoch, epoch - 1
        )
        if end_offset > last:
            epoch = end_epoch
    return TierPlace(epoch, last)


async def _epoch_end(
    connection: Connection,
    partition: Partition,
    context: FetcherContext,
    leader_epoch: int,
    epoch: int,
) -> tuple[int, int]:
    asked = OffsetForLeaderPartition(
        partition=partition.key.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    topic = OffsetForLeaderTopic(topic=partition.key.topic, partitions=(asked,))
    response = await connection.request(
        OffsetForLeaderEpochRequest(replica_id=context.node_id, topics=(topic,)),
        OffsetForLeaderEpochResponse,
    )
    found = response.topics[0].partitions[0]
    if found.error_code:
        text = f"{partition.key}: the leader does not tell where epoch {epoch} ends"
        raise answered_error(found.error_code, text)
    return found.leader_epoch, found.end_offset
