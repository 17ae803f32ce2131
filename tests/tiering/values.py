"""Remote segments for tests."""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_from_text
from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.segments import (
    Epochs,
    RemoteSegment,
    SegmentId,
    SegmentState,
    SegmentUpdate,
)

TOPIC_ID = uuid_from_text("lZ6vvmajTWKDBUTV6SQAtQ")
STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED


def segment(
    number: int,
    start: int,
    end: int,
    epochs: Epochs | None = None,
    *,
    size: int = 100,
    max_timestamp_ms: int = 0,
    event_ms: int = 0,
) -> RemoteSegment:
    """Return a segment whose copy has begun; its id is the number."""
    return RemoteSegment(
        SegmentId("t", TOPIC_ID, 0, Uuid(number.to_bytes(16, "big"))),
        start,
        end,
        max_timestamp_ms,
        1,
        event_ms,
        ((0, start),) if epochs is None else epochs,
        size,
    )


def update(of: RemoteSegment, state: SegmentState) -> SegmentUpdate:
    """Return that a segment has come to a state."""
    return SegmentUpdate(of.segment_id, state, 1, of.event_timestamp_ms)


def copied(*segments: RemoteSegment) -> RemoteLogMetadataCache:
    """Return a cache that has these, all of them copied in this order."""
    cache = RemoteLogMetadataCache()
    for each in segments:
        assert cache.apply(each)
        assert cache.apply(update(each, FINISHED))
    return cache
