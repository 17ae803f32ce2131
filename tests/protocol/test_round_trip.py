"""Every message in every version, with random values in all fields, against the plain rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import BrokerId, GroupId, TopicName
from dohle.core.steps import finish
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dohle.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dohle.protocol.schema import Message
from tests.protocol.random_messages import MESSAGES, PAIRS, messages
from tests.protocol.reference_codec import reference_encode


def versions_of(cls: type[Message]) -> range:
    return range(cls.VERSIONS.lowest, cls.VERSIONS.highest + 1)


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=8)
@given(data=st.data())
def test_what_was_encoded_decodes_to_the_same(name: str, data: st.DataObject) -> None:
    cls = MESSAGES[name]
    for version in versions_of(cls):
        message = data.draw(messages(cls, version))
        encoded = message.encode(version)
        assert encoded == reference_encode(message, version)
        assert cls.from_bytes(version, encoded) == message
        assert cls.from_bytes(version, memoryview(bytearray(encoded))) == message
        assert b"".join(message.encode_chunks(version)) == encoded
        # The same work, told in steps.
        assert b"".join(finish(message.encode_chunks_in_steps(version))) == encoded
        assert finish(cls.decode_in_steps(version, memoryview(encoded))) == (
            message,
            len(encoded),
        )


@pytest.mark.parametrize("name", MESSAGES)
def test_defaults_round_trip_in_every_version(name: str) -> None:
    cls = MESSAGES[name]
    for version in versions_of(cls):
        message = cls()
        encoded = message.encode(version)
        assert encoded == reference_encode(message, version)
        assert cls.from_bytes(version, encoded) == message


def test_all_of_kafka_is_declared() -> None:
    requests = [name for name in MESSAGES if name.endswith("Request")]
    responses = [name for name in MESSAGES if name.endswith("Response")]
    assert len(requests) == len(responses) == 93
    assert len(MESSAGES) == 279
    assert len(PAIRS) == 832


def test_a_message_is_decoded_from_the_middle_of_a_buffer() -> None:
    message = HeartbeatRequest(generation_id=3, member_id="m")
    encoded = message.encode(4)
    end = 3 + len(encoded)
    assert HeartbeatRequest.decode(4, b"abc" + encoded + b"def", 3) == (message, end)
    assert HeartbeatRequest.decode(4, bytearray(b"abc" + encoded), 3) == (message, end)


def test_a_buffer_of_other_items_than_bytes_is_read_as_bytes() -> None:
    message = HeartbeatRequest(member_id="member")
    encoded = message.encode(0)
    assert len(encoded) % 2 == 0
    view = memoryview(encoded).cast("h")
    assert HeartbeatRequest.from_bytes(0, view) == message
    signed = memoryview(HeartbeatRequest(member_id="ä" * 99).encode(4)).cast("b")
    assert HeartbeatRequest.from_bytes(4, signed).member_id == "ä" * 99


def test_record_batches_are_never_copied() -> None:
    batch = bytes(range(256)) * 10
    partitions = (PartitionProduceData(index=1, records=batch), PartitionProduceData(records=None))
    request = ProduceRequest(topic_data=(TopicProduceData(partition_data=partitions),))
    chunks = request.encode_chunks(13)
    assert any(chunk is batch for chunk in chunks)
    assert len(chunks) == 3

    received = bytearray(request.encode(13))
    decoded = ProduceRequest.from_bytes(13, received)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is received
    assert records == batch
    assert decoded.topic_data[0].partition_data[1].records is None

    from_bytes = ProduceRequest.from_bytes(13, bytes(received)).topic_data[0].partition_data[0]
    assert isinstance(from_bytes.records, memoryview)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16382, 16383, 16384, 2097151, 2097152])
def test_batches_of_every_length_of_length_are_read(size: int) -> None:
    partition = PartitionProduceData(index=1, records=bytes(size))
    request = ProduceRequest(topic_data=(TopicProduceData(partition_data=(partition,)),))
    for version in (8, 13):
        assert ProduceRequest.from_bytes(version, request.encode(version)) == request


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 300, 16383, 16384])
@pytest.mark.parametrize("version", [1, 2])
def test_arrays_of_strings_of_every_length_of_count_are_read(size: int, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=tuple(GroupId(str(n)) for n in range(size)))
    encoded = request.encode(version)
    assert encoded == reference_encode(request, version)
    assert DeleteGroupsRequest.from_bytes(version, encoded) == request


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 300])
@pytest.mark.parametrize("version", [8, 12])
def test_arrays_of_structs_and_numbers_of_every_length_of_count_are_read(
    size: int, version: int
) -> None:
    partition = MetadataResponsePartition(replica_nodes=tuple(map(BrokerId, range(size))))
    topic = MetadataResponseTopic(name=TopicName("t"), partitions=(partition,) * size)
    response = MetadataResponse(topics=(topic,))
    encoded = response.encode(version)
    assert encoded == reference_encode(response, version)
    assert MetadataResponse.from_bytes(version, encoded) == response


@pytest.mark.parametrize("count", [1, 127, 1_024, 1_025, 8_192, 8_193, 20_000])
@pytest.mark.parametrize("version", [1, 9])
def test_a_long_message_is_the_same_in_steps_and_the_steps_are_many(
    count: int, version: int
) -> None:
    name = TopicName("t")
    topics = tuple(
        OffsetFetchRequestTopic(name=name, partition_indexes=(index,)) for index in range(count)
    )
    long_topic = OffsetFetchRequestTopic(name=name, partition_indexes=tuple(range(count)))
    request = OffsetFetchRequest(group_id=GroupId("g"), topics=(long_topic, *topics))
    if version == 9:
        group = OffsetFetchRequestGroup(
            topics=tuple(
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics or ()
            )
        )
        request = OffsetFetchRequest(groups=(group,))
    encoded = request.encode(version)
    assert b"".join(finish(request.encode_chunks_in_steps(version))) == encoded
    assert sum(1 for _ in request.encode_chunks_in_steps(version)) >= count
    assert finish(OffsetFetchRequest.decode_in_steps(version, memoryview(encoded))) == (
        request,
        len(encoded),
    )
    steps = list(OffsetFetchRequest.decode_in_steps(version, memoryview(encoded)))
    assert len(steps) >= count
    # They tell how many elements were read: the topics, their partitions, and the group.
    assert sum(steps) == (count + 1) + 2 * count + (version == 9)


def test_an_array_that_is_in_many_elements_is_encoded_once_in_steps() -> None:
    def results(count: int, first: int) -> tuple[DescribeConfigsResourceResult, ...]:
        return tuple(
            DescribeConfigsResourceResult(
                name=f"config {number}", value="v" * 50, read_only=False, is_sensitive=False
            )
            for number in range(first, first + count)
        )

    shared = [results(count, count) for count in (0, 1, 30, 40, 700)]
    response = DescribeConfigsResponse(
        results=tuple(
            DescribeConfigsResult(
                error_message="",
                resource_type=2,
                resource_name=f"topic {number}",
                configs=shared[number % len(shared)],
            )
            for number in range(50)
        )
    )
    for version in (1, 4):
        chunks = finish(response.encode_chunks_in_steps(version))
        assert b"".join(chunks) == response.encode(version)
        assert len({id(chunk) for chunk in chunks}) < len(chunks)
