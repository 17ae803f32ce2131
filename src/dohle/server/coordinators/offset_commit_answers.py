"""Answers to OffsetCommit in which every partition, or every partition of a topic, is the same."""

from __future__ import annotations

from collections.abc import Iterable

from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dohle.server.coordinators.errors import coordinator_error_code


def commit_refused(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    """Return the answer to a commit that the coordinator refuses as a whole."""
    return commit_answer(request, coordinator_error_code(error))


def commit_answer(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return an answer with the same code for every partition."""
    return OffsetCommitResponse(
        topics=tuple(
            commit_topic(topic, [each.partition_index for each in topic.partitions], code)
            for topic in request.topics
        )
    )


def commit_topic(
    topic: OffsetCommitRequestTopic, indexes: Iterable[int], code: ErrorCode
) -> OffsetCommitResponseTopic:
    """Return the part of an answer that gives some partitions of a topic the same code."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index in indexes
        ),
    )
