"""Fetch requests and results in a few words."""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from dohle.replication.fetch_sessions import FetchContext, Result

#: Versions of Fetch that name topics, and that give their ids.
BY_NAME, BY_ID = 12, 17


def topic_id(topic: str) -> Uuid:
    return Uuid(topic.encode().ljust(16, b"\x01"))


def fetch(
    *partitions: tuple[str, int] | tuple[str, int, int],
    session_id: int = 0,
    epoch: int = 0,
    forget: tuple[tuple[str, int], ...] = (),
    follower: int = -1,
) -> FetchRequest:
    """Ask for partitions, each with the offset 0 or the one given."""
    return FetchRequest(
        replica_id=BrokerId(follower),
        replica_state=ReplicaState(replica_id=BrokerId(follower)),
        session_id=session_id,
        session_epoch=epoch,
        topics=tuple(
            FetchTopic(
                topic=TopicName(topic),
                topic_id=topic_id(topic),
                partitions=(FetchPartition(partition=index, fetch_offset=rest[0] if rest else 0),),
            )
            for topic, index, *rest in partitions
        ),
        forgotten_topics_data=tuple(
            ForgottenTopic(topic=TopicName(topic), topic_id=topic_id(topic), partitions=(index,))
            for topic, index in forget
        ),
    )


def data(
    index: int,
    *,
    high_watermark: int = 10,
    log_start_offset: int = 0,
    records: bytes | None = None,
    error: int = 0,
    preferred_read_replica: int = -1,
    diverging_epoch: int = -1,
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1 if error else high_watermark,
        log_start_offset=-1 if error else log_start_offset,
        records=records,
        preferred_read_replica=BrokerId(preferred_read_replica),
        diverging_epoch=EpochEndOffset(epoch=diverging_epoch, end_offset=0),
    )


def nothing_new(context: FetchContext) -> list[Result]:
    """The same high watermark and log start for each partition, and no records."""
    return [(part, data(part.partition)) for part in context.partitions]


def names(context: FetchContext) -> list[tuple[str | None, int]]:
    return [(part.topic, part.partition) for part in context.partitions]


def named(results: list[Result]) -> list[tuple[str | None, int]]:
    return [(part.topic, part.partition) for part, _ in results]
