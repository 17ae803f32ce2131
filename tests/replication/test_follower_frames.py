"""The short ways from a follower's fetch to bytes, and back, mean what the general codec means."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from dohle.replication.follower_frames import (
    COMMON_VERSIONS,
    Asked,
    CommonRequests,
    pack_answer_head,
    pack_told,
    pack_topic_head,
    parts_of,
    read_answer,
    read_asked,
)

_INT32, _INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_VERSIONS = st.sampled_from(COMMON_VERSIONS)
_IDS = st.sampled_from([Uuid(bytes([number]) * 16) for number in (1, 2, 3)])
_WISHES = st.builds(
    FetchPartition,
    partition=_INT32,
    current_leader_epoch=_INT32,
    fetch_offset=_INT64,
    last_fetched_epoch=_INT32,
    log_start_offset=_INT64,
    partition_max_bytes=_INT32,
)
_NAMED = st.lists(st.tuples(_IDS, _WISHES), max_size=8)
_MUTATIONS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3)


def request_of(version: int, session_id: int, epoch: int) -> FetchRequest:
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch
    )
    if version < 15:
        return request.replace(replica_id=BrokerId(3))
    return request.replace(replica_state=ReplicaState(replica_id=BrokerId(3), replica_epoch=77))


def mutated(data: bytes, mutations: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for at, byte in mutations:
        changed[at % len(changed)] = byte
    return bytes(changed)


@given(version=_VERSIONS, epoch=_INT32, correlation_id=_INT32, named=_NAMED)
def test_a_request_is_framed_as_by_the_encoder(
    version: int, epoch: int, correlation_id: int, named: list[tuple[Uuid, FetchPartition]]
) -> None:
    by_key = {(topic_id, asked.partition): asked for topic_id, asked in named}
    by_topic: dict[Uuid, list[FetchPartition]] = {}
    for (topic_id, _), asked in by_key.items():
        by_topic.setdefault(topic_id, []).append(asked)
    topics = tuple(
        FetchTopic(topic_id=topic_id, partitions=tuple(asked))
        for topic_id, asked in by_topic.items()
    )
    common = CommonRequests(request_of(version, 9, 1), version, "follower")
    whole = request_of(version, 9, epoch).replace(topics=topics)
    expected = b"".join(encode_request(whole, version, correlation_id, "follower"))
    assert common.frame(epoch, by_key, correlation_id) == expected


@given(version=_VERSIONS, named=_NAMED, mutations=_MUTATIONS)
def test_what_is_read_off_a_request_is_what_the_decoder_finds(
    version: int, named: list[tuple[Uuid, FetchPartition]], mutations: list[tuple[int, int]]
) -> None:
    topics = tuple(FetchTopic(topic_id=topic_id, partitions=(asked,)) for topic_id, asked in named)
    request = request_of(version, 9, 5).replace(topics=topics)
    prefix, suffix = parts_of(request, version)
    start = len(prefix) + 4
    data = request.encode(version)
    assert read_asked(data[start:], suffix) == [Asked(*each) for each in named]
    data = data[:start] + mutated(data[start:], mutations)
    found = read_asked(data[start:], suffix)
    if found is not None:
        decoded, end = FetchRequest.decode(version, data)
        assert end == len(data)
        assert decoded.replace(topics=()) == request.replace(topics=())
        assert found == [
            Asked(topic.topic_id, asked) for topic in decoded.topics for asked in topic.partitions
        ]


_TOLD = st.builds(
    PartitionData,
    partition_index=_INT32,
    high_watermark=_INT64,
    last_stable_offset=_INT64,
    log_start_offset=_INT64,
    aborted_transactions=st.none(),
    records=st.sampled_from([b"", b"r", b"r" * 127, b"r" * 40_000]),
)


@given(version=_VERSIONS, told=st.lists(st.tuples(_IDS, _TOLD), max_size=6))
def test_an_answer_is_packed_as_by_the_encoder(
    version: int, told: list[tuple[Uuid, PartitionData]]
) -> None:
    topics = tuple(
        FetchableTopicResponse(topic_id=topic_id, partitions=(data,)) for topic_id, data in told
    )
    packed = [pack_answer_head(9, len(told))]
    for topic_id, data in told:
        head = pack_told(
            data.partition_index,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            len(data.records or b""),
        )
        packed += (pack_topic_head(topic_id, 1), head, bytes(data.records or b""), b"\0\0")
    expected = FetchResponse(session_id=9, responses=topics).encode(version)
    assert b"".join([*packed, b"\0"]) == expected


_ODDITIES: list[dict[str, Any]] = [
    {},
    {},
    {"error_code": 6},
    {"records": None},
    {"aborted_transactions": ()},
    {"preferred_read_replica": BrokerId(2)},
    {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
]


@given(
    version=_VERSIONS,
    told=st.lists(st.tuples(_IDS, _TOLD), max_size=4),
    oddity=st.sampled_from(_ODDITIES),
    mutations=_MUTATIONS,
    cut=st.integers(0, 3),
)
def test_what_is_read_off_an_answer_is_what_the_decoder_finds(
    version: int,
    told: list[tuple[Uuid, PartitionData]],
    oddity: dict[str, Any],
    mutations: list[tuple[int, int]],
    cut: int,
) -> None:
    """An error, a diverging epoch or the like is never overlooked."""
    topics = tuple(
        FetchableTopicResponse(topic_id=topic_id, partitions=(data.replace(**oddity),))
        for topic_id, data in told
    )
    whole = FetchResponse(session_id=9, responses=topics).encode(version)
    found = read_answer(b"head" + whole, 4, 9)
    assert (found is not None) == (not oddity or not told)
    data = b"head" + mutated(whole, mutations)[: len(whole) - cut]
    found = read_answer(data, 4, 9)
    if found is not None:
        decoded, _ = FetchResponse.decode(version, data, 4)
        assert (decoded.error_code, decoded.session_id) == (0, 9)
        parts = [(topic.topic_id, one) for topic in decoded.responses for one in topic.partitions]
        assert [tuple(each) for each in found] == [
            (topic_id, one.partition_index, one.high_watermark, one.log_start_offset, one.records)
            for topic_id, one in parts
        ]
        for _, one in parts:
            assert (one.error_code, one.preferred_read_replica) == (0, -1)
            assert one.diverging_epoch.epoch == -1
