"""What a scripted broker answers when it is asked for offsets."""

from __future__ import annotations

from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.scripted_broker import Reply


def offsets_answer(request: ListOffsetsRequest, version: int) -> Reply:
    """Answer 1000 and the timestamp that stands for a place, or is one."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        offset=1000 + each.timestamp,
                        leader_epoch=each.current_leader_epoch,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
