"""Answers to old consumers (Fetch before version 4), whose records have to be converted first.

That takes long, so it is done in steps, in later turns of the loop if need be, and nothing else of
the connection is handled before. A client that goes meanwhile is forgotten.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, NamedTuple, cast

from dohle.core.errors import KafkaError
from dohle.core.steps import Steps
from dohle.protocol.messages.fetch import FetchResponse, PartitionData
from dohle.protocol.schema import Records
from dohle.records.down_conversion import converting_down
from dohle.server.net.slices import Slices, in_slices, work_for
from dohle.server.partitions.partitions import Partition
from dohle.storage.segment.segment_file import LogSlice

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

#: The first version that gets records as they are in the log.
UNCONVERTED = 4
#: An answer has no more than this of each partition.
_BYTES_MAX = 1024 * 1024


class Unconverted(NamedTuple):
    """Records that stand in an answer until they are converted."""

    partition: Partition
    piece: LogSlice
    to_magic: int
    first_offset: int


def unconverted(partition: Partition, piece: LogSlice, version: int, first_offset: int) -> Records:
    """Note what a consumer of an old version is to get."""
    piece = piece._replace(size=min(piece.size, _BYTES_MAX))
    return cast("Records", Unconverted(partition, piece, 0 if version < 2 else 1, first_offset))


def converted(
    broker: BrokerServer, answer: FetchResponse | Future[FetchResponse]
) -> FetchResponse | Future[FetchResponse]:
    """Convert the records of an answer, or of one that is waited for."""
    if isinstance(answer, FetchResponse):
        return in_slices(broker.turns, _converting(answer))
    future: Future[FetchResponse] = broker.loop.create_future()
    work_for(broker.loop, future, _convert_later(broker, answer))
    return future


async def _convert_later(broker: BrokerServer, answer: Future[FetchResponse]) -> FetchResponse:
    return await Slices(broker.turns).run(_converting(await answer))


def _converting(answer: FetchResponse) -> Steps[FetchResponse]:
    topics = []
    for topic in answer.responses:
        partitions = []
        for data in topic.partitions:
            found: object = data.records
            if isinstance(found, Unconverted):
                data = yield from _converting_partition(data, found)
            partitions.append(data)
        topics.append(topic.replace(partitions=tuple(partitions)))
    return answer.replace(responses=tuple(topics))


def _converting_partition(data: PartitionData, found: Unconverted) -> Steps[PartitionData]:
    try:
        try:
            stored = found.piece.read()
        except OSError as error:
            log = found.partition.log
            raise log.disk.failed(f"reading {found.partition.key}", error) from error
        records = yield from converting_down(
            stored, found.to_magic, first_offset=found.first_offset, max_bytes=_BYTES_MAX
        )
    except KafkaError as error:
        found.partition.traffic.failed_fetch_requests += 1
        return PartitionData(
            partition_index=data.partition_index,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
    found.partition.traffic.fetch_conversions += 1
    found.partition.traffic.bytes_out += len(records)
    return data.replace(records=records)
