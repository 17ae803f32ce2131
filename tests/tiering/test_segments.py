"""The records of the metadata topic, and which state follows which (T4, T9)."""

from __future__ import annotations

import pytest

from dohle.client.producer.partitioner import murmur2
from dohle.core.uuid import uuid_from_text
from dohle.protocol.record_framing import decode_remote_log_metadata_record
from dohle.tiering.segments import (
    RemoteSegment,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    event_of,
    may_follow,
    metadata_key,
)
from tests.tiering.values import DELETED, DELETING, FINISHED, STARTED, TOPIC_ID

_SEGMENT = RemoteSegment(
    SegmentId("t", TOPIC_ID, 0, uuid_from_text("adh9f8BMS4anaUnD8KWfWg")),
    start_offset=0,
    end_offset=999,
    max_timestamp_ms=10**9,
    broker_id=1,
    event_timestamp_ms=2 * 10**9,
    epochs=((0, 0),),
    size=100_500,
    txn_index_empty=True,
)
_BYTES = bytes.fromhex(
    "01 00 00 0274 959eafbe66a34d62830544d5e92400b5 00000000 00"
    "69d87d7fc04c4b86a76949c3f0a59f5a 00 0000000000000000 00000000000003e7 00000001"
    "000000003b9aca00 0000000077359400 02 00000000 0000000000000000 00 00018894 00 00 01000101"
)
_UPDATE = SegmentUpdate(_SEGMENT.segment_id, FINISHED, 1, 2 * 10**9 + 500)
_UPDATE_BYTES = bytes.fromhex(
    "01 01 00 0274 959eafbe66a34d62830544d5e92400b5 00000000 00"
    "69d87d7fc04c4b86a76949c3f0a59f5a 00 00000001 00000000773595f4 00 01 00"
)


@pytest.mark.parametrize(("event", "data"), [(_SEGMENT, _BYTES), (_UPDATE, _UPDATE_BYTES)])
def test_records_are_those_of_kafka_byte_for_byte(
    event: RemoteSegment | SegmentUpdate, data: bytes
) -> None:
    """T9: the examples of the facts."""
    assert event.encode() == data
    assert event_of(decode_remote_log_metadata_record(data)) == event


def test_an_update_changes_the_state_and_who_tells_of_it() -> None:
    """T4."""
    found = _SEGMENT.updated(_UPDATE)
    assert (found.state, found.event_timestamp_ms) == (FINISHED, 2 * 10**9 + 500)
    assert found.segment_id == _SEGMENT.segment_id


@pytest.mark.parametrize(("partition", "wanted"), [(0, 9), (1, 49), (42, 33)])
def test_a_partition_has_the_metadata_partition_that_kafka_gives_it(
    partition: int, wanted: int
) -> None:
    """T9: the vectors of the facts, of 50 partitions."""
    hashed = murmur2(metadata_key(TOPIC_ID, partition)) & 0x7FFFFFFF
    assert hashed % 50 == wanted


def test_only_these_states_follow_each_other() -> None:
    """T4."""
    allowed = {
        (None, STARTED),
        (STARTED, FINISHED),
        (STARTED, DELETING),
        (FINISHED, DELETING),
        (DELETING, DELETED),
        *((state, state) for state in SegmentState),
    }
    found = {
        (before, after)
        for before in (None, *SegmentState)
        for after in SegmentState
        if may_follow(before, after)
    }
    assert found == allowed
