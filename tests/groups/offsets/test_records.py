"""The bytes of committed offsets: what is put together is what the schemas would have encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import KafkaError
from dohle.core.ids import Uuid
from dohle.core.steps import finish
from dohle.core.uuid import ZERO_UUID
from dohle.groups.offsets.records import CommitRecords, is_too_long
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP, CommittedOffset, GroupOffsets
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
)
from dohle.protocol.messages.records.classic_group import OffsetCommitKey, OffsetCommitValue
from dohle.protocol.record_framing import CoordinatorRecord
from dohle.records.builder import BatchBuilder
from tests.coordination.driver import encoded

_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_NAMES = st.text(st.characters(codec="utf-8"), max_size=300)
_PARTITIONS = st.lists(
    st.builds(
        OffsetCommitRequestPartition,
        partition_index=_INT32,
        committed_offset=_INT64,
        committed_leader_epoch=_INT32,
        committed_metadata=st.none() | st.just("") | _NAMES,
    ),
    max_size=5,
)
_TOPICS = st.lists(
    st.tuples(_NAMES, st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16), _PARTITIONS),
    max_size=3,
)


@given(
    group_id=_NAMES,
    now_ms=st.integers(0, 2**63 - 1),
    expire_ms=st.just(NO_EXPIRE_TIMESTAMP) | st.integers(0, 2**63 - 1),
    topics=_TOPICS,
)
def test_a_commit_is_encoded_as_its_records_are(
    group_id: str,
    now_ms: int,
    expire_ms: int,
    topics: list[tuple[str, bytes, list[OffsetCommitRequestPartition]]],
) -> None:
    commit = CommitRecords(group_id, now_ms, expire_ms, length_max=200)
    expected = BatchBuilder()
    offsets: GroupOffsets = {}
    for topic, topic_id, partitions in topics:
        finish(commit.add(topic, Uuid(topic_id), partitions, OffsetCommitResponsePartition))
        for each in partitions:
            metadata = each.committed_metadata or ""
            if is_too_long(metadata, 200):
                continue
            value = OffsetCommitValue(
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expire_ms,
                topic_id=Uuid(topic_id),
            )
            key = OffsetCommitKey(group=group_id, topic=topic, partition=each.partition_index)
            version = 4 if expire_ms == NO_EXPIRE_TIMESTAMP else 1
            expected.append_all(now_ms, [encoded(CoordinatorRecord(key, value, version))])
            offsets.setdefault(topic, {})[each.partition_index] = CommittedOffset(
                each.committed_offset,
                each.committed_leader_epoch,
                metadata,
                now_ms,
                expire_ms,
                Uuid(topic_id),
            )
    assert commit.offsets == offsets
    assert commit.builder.record_count == expected.record_count
    if offsets:
        assert commit.builder.build() == expected.build()


@pytest.mark.parametrize("group_id", ["g" * 40_000, "g"])
def test_what_does_not_fit_into_a_record_is_refused(group_id: str) -> None:
    commit = CommitRecords(group_id, 1, NO_EXPIRE_TIMESTAMP, length_max=100_000)
    metadata = "m" * 40_000
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata=metadata)
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        finish(commit.add("t", ZERO_UUID, [partition], OffsetCommitResponsePartition))
