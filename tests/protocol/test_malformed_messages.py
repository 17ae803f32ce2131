"""Whatever the bytes are, decoding gives a message or a MalformedMessage, soon and in bounds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import Uuid
from dohle.core.steps import finish
from dohle.protocol.codec.unsigned_varint import RecordsElsewhere, uvarint
from dohle.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from dohle.protocol.fields import array, int8, int16, int32, string, uuid
from dohle.protocol.messages.api_versions import ApiVersionsResponse
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest
from dohle.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dohle.protocol.messages.produce import ProduceRequest
from dohle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dohle.protocol.schema import Data, Message, Struct
from tests.protocol.random_messages import MESSAGES, PAIRS, messages


def decodes(cls: type[Message], version: int, data: bytes) -> bool:
    """Tell whether it is well-formed; anything but a MalformedMessage fails the test."""

    def decodes_from(buffer: bytes | memoryview) -> bool:
        try:
            cls.from_bytes(version, buffer)
        except MalformedMessage:
            return False
        return True

    def decodes_in_steps() -> bool:
        try:
            _, end = finish(cls.decode_in_steps(version, memoryview(data)))
        except MalformedMessage:
            return False
        return end == len(data)

    outcome = decodes_from(data)
    assert decodes_from(memoryview(data)) is outcome
    assert decodes_in_steps() is outcome
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=2)
@given(data=st.data())
def test_a_message_cut_at_any_byte_is_refused(name: str, data: st.DataObject) -> None:
    cls = MESSAGES[name]
    for version in sorted({cls.VERSIONS.lowest, cls.VERSIONS.highest}):
        encoded = data.draw(messages(cls, version)).encode(version)
        assert decodes(cls, version, encoded)
        step = 1 + len(encoded) // 200
        for end in range(0, len(encoded), step):
            assert not decodes(cls, version, encoded[:end])
        assert not decodes(cls, version, encoded + b"\0")


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.sampled_from(PAIRS), st.data())
def test_changed_bytes_give_a_message_or_one_error(
    pair: tuple[str, int], data: st.DataObject
) -> None:
    name, version = pair
    cls = MESSAGES[name]
    encoded = bytearray(data.draw(messages(cls, version)).encode(version))
    values = st.one_of(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), st.integers(0, 255))
    for _ in range(data.draw(st.integers(1, 4))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(values)
    decodes(cls, version, bytes(encoded))


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.sampled_from(PAIRS), st.binary(max_size=40))
def test_any_bytes_give_a_message_or_one_error(pair: tuple[str, int], data: bytes) -> None:
    name, version = pair
    decodes(MESSAGES[name], version, data)


class Arrays(Data, versions="0", flexible="0+"):
    ids: tuple[Uuid, ...] = array(uuid, "0+")
    numbers: tuple[int, ...] = array(int32, "0+")
    maybe_ids: tuple[Uuid, ...] | None = array(uuid, "0+", nullable=True)
    maybe_numbers: tuple[int, ...] | None = array(int16, "0+", nullable=True)


class Pair(Struct):
    number: int = int8("0+")
    text: str = string("0+")


class Pairs(Data, versions="0-1", flexible="1+"):
    pairs: tuple[Pair, ...] = array(Pair, "0+")
    end: int = int8("0+")


#: A Produce request of version 12 up to the records of its only partition.
PRODUCE_HEAD = b"\0" + bytes(6) + b"\2\1" + b"\2" + bytes(4)
HUGE = b"\xff\xff\xff\xff\x07"  # 2^31 - 1 as a varint


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (HeartbeatRequest, 0, b"\xff\xff"),  # null string
        (HeartbeatRequest, 0, b"\x80\x00"),  # length -32768
        (HeartbeatRequest, 0, b"\x7f\xff"),  # longer than the rest
        (HeartbeatRequest, 0, b"\x00\x01\xff" + bytes(12)),  # not UTF-8
        (HeartbeatRequest, 4, b"\x02\xc3" + bytes(12)),  # cut in the middle of a character
        (HeartbeatRequest, 4, b"\x00" + bytes(12)),  # null compact string
        (HeartbeatRequest, 4, HUGE + bytes(12)),
        (HeartbeatRequest, 4, b"\x82\x80\x02" + bytes(32769)),  # a string above 32767 bytes
        (HeartbeatRequest, 4, b"\x80\x80\x80\x80\x80\x01" + bytes(12)),  # varint of six bytes
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\xff" + bytes(12)),  # varint that never ends
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0f" + bytes(12)),  # more than 31 bits
        (MetadataRequest, 0, b"\xff\xff\xff\xff"),  # null array where null is not allowed
        (MetadataRequest, 1, b"\xff\xff\xff\xfe"),  # count -2
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 12, HUGE + bytes(12)),
        (MetadataResponse, 1, b"\x00\x00\x10\x00"),
        (DeleteGroupsRequest, 0, b"\x7f\xff\xff\xff"),
        (DeleteGroupsRequest, 2, HUGE),
        (DeleteGroupsRequest, 2, b"\x00\x00"),
        (HeartbeatRequest, 4, b"\x80\x00" + bytes(12)),  # null in more bytes than it needs
        (DeleteGroupsRequest, 2, b"\x80\x00\x00"),
        (SaslAuthenticateRequest, 2, b"\x80\x00\x00"),
        (MetadataResponse, 12, bytes(4) + b"\x80\x00" + bytes(12)),
        (Arrays, 0, b"\x80\x00" + b"\0\0\0\1" + bytes(32)),  # of uuids: would step back
        (Arrays, 0, b"\1" + b"\x80\x80\x00" + b"\0\0\1" + bytes(32)),  # of numbers
        (ProduceRequest, 12, PRODUCE_HEAD + b"\x80\x00" + bytes(3)),
        (ProduceRequest, 12, PRODUCE_HEAD + b"\x80\x80\x00" + bytes(3)),
        (SaslAuthenticateRequest, 0, b"\x7f\xff\xff\xff"),
        (SaslAuthenticateRequest, 0, b"\xff\xff\xff\xff"),
        (SaslAuthenticateRequest, 2, HUGE),
        (SaslAuthenticateRequest, 2, b"\x00\x00"),
        (FetchResponse, 4, bytes(4) + b"\x00\x00\x00\x01\x00\x00" + b"\x7f\xff\xff\xff"),
        (ProduceRequest, 13, b"\x00\x00\x01\x00\x00\x00\x01" + HUGE),
    ],
)
def test_impossible_lengths_are_refused(cls: type[Message], version: int, data: bytes) -> None:
    assert not decodes(cls, version, data)


def test_a_length_in_more_bytes_than_it_needs_is_read_as_kafka_reads_it() -> None:
    for length in (b"\3", b"\x83\0", b"\x83\x80\0", b"\x83\x80\x80\0", b"\x83\x80\x80\x80\0"):
        request = ProduceRequest.from_bytes(12, PRODUCE_HEAD + length + b"ab" + bytes(3))
        assert request.topic_data[0].partition_data[0].records == b"ab"
        member = HeartbeatRequest.from_bytes(4, b"\1" + bytes(4) + length + b"ab\0\0")
        assert member == HeartbeatRequest(member_id="ab")


def test_null_in_more_bytes_than_it_needs_is_null_where_it_is_allowed() -> None:
    for null in (b"\0", b"\x80\0", b"\x80\x80\0"):
        for data in (b"\1\1" + null + null + b"\0", b"\1\1" + null + b"\1\0"):
            for buffer in (data, memoryview(data)):
                arrays = Arrays.from_bytes(0, buffer)
                assert arrays.maybe_ids is None
                assert arrays.maybe_numbers == (() if data.endswith(b"\1\0") else None)
    assert Arrays.from_bytes(0, b"\x81\0\x81\0\x81\0\x81\0\0") == Arrays()


@pytest.mark.parametrize("count", [126, 127, 128, 1000])
def test_arrays_of_any_length_are_read_back(count: int) -> None:
    ids = tuple(Uuid(i.to_bytes(16, "big")) for i in range(count))
    numbers = tuple(range(-5, count - 5))
    arrays = Arrays(ids=ids, numbers=numbers, maybe_ids=ids, maybe_numbers=numbers)
    encoded = arrays.encode(0)
    assert encoded.count(b"".join(ids)) == 2
    for data in (encoded, memoryview(encoded)):
        decoded = Arrays.from_bytes(0, data)
        assert decoded == arrays
        assert {type(value) for value in (*decoded.ids, *(decoded.maybe_ids or ()))} == {bytes}
    assert not decodes(Arrays, 0, encoded[: count * 8])
    with pytest.raises(UnencodableMessage):
        arrays.replace(numbers=(*numbers, 1 << 31)).encode(0)
    with pytest.raises(UnencodableMessage):
        arrays.replace(ids=(*ids, "a uuid? not yet!")).encode(0)


def test_no_memory_is_kept_for_long_arrays() -> None:
    def use(count: int) -> None:
        arrays = Arrays(ids=(Uuid(bytes(16)),) * count, numbers=(7,) * count)
        assert Arrays.from_bytes(0, arrays.encode(0)) == arrays

    use(200)
    tracemalloc.start()
    for count in range(4000, 4010):
        use(count)
    # Whatever other threads allocate meanwhile does not count.
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/protocol/*")])
    tracemalloc.stop()
    assert sum(trace.size for trace in ours.traces) < 20_000


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1024, 1025, 1026, 5000])
def test_long_arrays_of_structs_are_read_back(version: int, count: int) -> None:
    pairs = Pairs(pairs=tuple(Pair(number=i % 100, text=str(i)) for i in range(count)), end=9)
    encoded = pairs.encode(version)
    for data in (encoded, memoryview(encoded)):
        decoded = Pairs.from_bytes(version, data)
        assert decoded == pairs
        assert type(decoded.pairs) is tuple
    assert not decodes(Pairs, version, encoded[:-1])


@pytest.mark.parametrize("version", [0, 1])
def test_an_array_that_is_broken_early_takes_little_memory(version: int) -> None:
    count = 300_000
    claim = uvarint(count + 1) if version else count.to_bytes(4, "big")
    data = claim + b"\0\xff\xff\xff\xff\xff" + bytes(3 * count)
    assert not decodes(Pairs, version, data)
    tracemalloc.start()
    assert not decodes(Pairs, version, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize(
    ("tags", "valid"),
    [
        (b"\x00", True),
        (b"\x01\x07\x02ab", True),
        (b"\x02\x07\x00\x08\x01a", True),
        (b"\x02\x07\x00\x07\x00", False),  # the same tag twice
        (b"\x02\x08\x00\x07\x00", False),  # falling
        (b"\x01\x07\x02a", False),  # value cut
        (b"\x01\x07" + HUGE, False),
        (b"\x01" + HUGE, False),
        (HUGE, False),
        (b"\x01\x03\x01\x01", True),  # a known tag: a boolean
        (b"\x01\x03\x02\x01\x01", False),  # larger than its value
        (b"\x01\x03\x00", False),  # smaller than its value
        (b"\x01\x01\x08" + bytes(8), True),  # a known tag: an int64
        (b"\x01\x01\x07" + bytes(7), False),
    ],
)
def test_tagged_sections_are_checked(tags: bytes, valid: bool) -> None:
    head = ApiVersionsResponse().encode(3)[:-1]
    assert decodes(ApiVersionsResponse, 3, head + tags) is valid


def test_a_claimed_count_takes_no_memory() -> None:
    count = (1 << 31) - 1
    claims: list[tuple[type[Message], int, bytes]] = [
        (MetadataResponse, 12, bytes(4) + HUGE),
        (MetadataResponse, 1, count.to_bytes(4, "big")),
        (DeleteGroupsRequest, 1, count.to_bytes(4, "big")),
        (MESSAGES["ListTransactionsRequest"], 0, b"\x01" + HUGE),
        (MESSAGES["StopReplicaRequest"], 0, bytes(9) + count.to_bytes(4, "big")),
    ]
    for cls, version, data in claims:
        assert not decodes(cls, version, data)
    tracemalloc.start()
    for cls, version, data in claims:
        assert not decodes(cls, version, data + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_version_that_does_not_exist_is_not_the_inputs_fault() -> None:
    for version in (-1, 5, 99):
        with pytest.raises(UnsupportedVersion, match="versions 0-4"):
            HeartbeatRequest.decode(version, b"")
        with pytest.raises(UnsupportedVersion, match="versions 0-4"):
            HeartbeatRequest().encode(version)


@pytest.mark.parametrize(
    ("cls", "version", "values"),
    [
        ("HeartbeatRequest", 0, {"generation_id": 1 << 31}),
        ("HeartbeatRequest", 0, {"generation_id": "1"}),
        ("HeartbeatRequest", 0, {"generation_id": None}),
        ("HeartbeatRequest", 0, {"group_id": None}),
        ("HeartbeatRequest", 4, {"group_id": None}),
        ("HeartbeatRequest", 0, {"group_id": b"bytes"}),
        ("HeartbeatRequest", 0, {"group_id": "x" * 32768}),
        ("HeartbeatRequest", 4, {"group_id": "x" * 32768}),
        ("HeartbeatRequest", 4, {"group_id": "\ud800"}),
        ("SaslAuthenticateRequest", 2, {"auth_bytes": "text"}),
        ("SaslAuthenticateRequest", 2, {"auth_bytes": None}),
        ("DeleteGroupsRequest", 2, {"groups_names": None}),
        ("DeleteGroupsRequest", 2, {"groups_names": (None,)}),
        ("MetadataRequest", 0, {"topics": None}),
        ("MetadataRequest", 12, {"topics": ("not a struct",)}),
        ("FetchSnapshotResponse", 0, {"topics": (None,)}),
        ("ConsumerGroupHeartbeatRequest", 0, {"unknown_tags": ((7, b""), (7, b""))}),
        ("ConsumerGroupHeartbeatRequest", 0, {"unknown_tags": ((-1, b""),)}),
        ("ApiVersionsResponse", 3, {"unknown_tags": ((1, b""),)}),
        ("AssignReplicasToDirsRequest", 0, {"broker_id": 1 << 40}),
    ],
)
def test_what_cannot_be_encoded_gives_one_error(
    cls: str, version: int, values: dict[str, object]
) -> None:
    message = MESSAGES[cls](**values)
    with pytest.raises(UnencodableMessage, match=cls):
        message.encode(version)
    with pytest.raises(UnencodableMessage, match=cls):
        message.encode_chunks(version)


@pytest.mark.parametrize("size", [4, 4000])
@pytest.mark.parametrize("kind", [str, list, "i", "strided", "square"])
def test_bytes_of_another_kind_are_refused(kind: object, size: int) -> None:
    values = {
        str: "x" * size,
        list: [0] * size,
        "i": memoryview(bytes(4 * size)).cast("i"),
        "strided": memoryview(bytes(2 * size))[::2],
        "square": memoryview(bytes(2 * size)).cast("B", (2, size)),
    }
    request: Any = SaslAuthenticateRequest
    partition: Any = PartitionData
    for version in (0, 2):
        with pytest.raises(UnencodableMessage, match="SaslAuthenticateRequest"):
            request(auth_bytes=values[kind]).encode(version)
        with pytest.raises(UnencodableMessage, match="SaslAuthenticateRequest"):
            request(auth_bytes=values[kind]).encode_chunks(version)
    topic = FetchableTopicResponse(partitions=(partition(records=values[kind]),))
    for version in (4, 12):
        with pytest.raises(UnencodableMessage, match="FetchResponse"):
            FetchResponse(responses=(topic,)).encode(version)
        with pytest.raises(UnencodableMessage, match="FetchResponse"):
            FetchResponse(responses=(topic,)).encode_chunks(version)


@pytest.mark.parametrize("size", [0, 4, 4000])
def test_bytes_may_come_in_any_buffer_of_bytes(size: int) -> None:
    data = bytes(size)
    request: Any = SaslAuthenticateRequest
    expected = request(auth_bytes=data).encode(2)
    for value in (bytearray(data), memoryview(data), memoryview(data).cast("c")):
        assert request(auth_bytes=value).encode(2) == expected
        assert b"".join(request(auth_bytes=value).encode_chunks(2)) == expected


class Elsewhere(RecordsElsewhere):
    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def test_records_elsewhere_are_handed_on_but_cannot_be_joined() -> None:
    partition: Any = PartitionData

    def response(records: object) -> FetchResponse:
        topic = FetchableTopicResponse(partitions=(partition(records=records),))
        return FetchResponse(responses=(topic,))

    records: Any = Elsewhere(5000)
    _, found, _ = response(records).encode_chunks(12)
    assert found is records
    with pytest.raises(UnencodableMessage, match="FetchResponse"):
        response(records).encode(12)
    with pytest.raises(UnencodableMessage, match="FetchResponse"):
        response(Elsewhere(5)).encode_chunks(12)


@pytest.mark.parametrize("uuid", [b"", bytes(15), bytes(17), None])
def test_a_uuid_of_another_size_is_refused(uuid: bytes | None) -> None:
    with pytest.raises(UnencodableMessage):
        MESSAGES["TopicRecord"](topic_id=uuid).encode(0)
    with pytest.raises(UnencodableMessage):
        MESSAGES["PartitionRecord"](directories=(uuid,)).encode(1)
