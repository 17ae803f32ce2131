"""The bytes of committed offsets: what is put together is what the schemas would have encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import Uuid
from dohle.core.uuid import ZERO_UUID
from dohle.groups.offsets.records import CommitRecords
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
)
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
    for topic, topic_id, partitions in topics:
        commit.add(topic, Uuid(topic_id), partitions, OffsetCommitResponsePartition)
    assert commit.encoded == [encoded(record) for record in commit.records]
