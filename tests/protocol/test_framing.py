"""Frames and headers, held against the declared headers and the peers' clients."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.texts import encodable
from dohle.protocol.apis import APIS, ApiKey, find_api
from dohle.protocol.codec.unsigned_varint import RecordsElsewhere
from dohle.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from dohle.protocol.framing import (
    RequestHead,
    encode_request,
    encode_response,
    encode_response_in_steps,
    frame_size,
    parse_request_header,
    parse_response_header,
)
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from dohle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from dohle.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dohle.protocol.messages.header import RequestHeader, ResponseHeader
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSIONS = [
    (key, version)
    for key, api in APIS.items()
    for version in range(api.versions.lowest, api.versions.highest + 1)
]


@given(
    st.sampled_from(VERSIONS),
    st.integers(-(2**31), 2**31 - 1),
    st.one_of(st.none(), st.text(max_size=200)),
)
def test_a_request_frame_is_read_back(
    pair: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    key, version = pair
    api = find_api(key)
    request = api.request()()
    frame = b"".join(encode_request(request, version, correlation_id, client_id))
    assert frame_size(frame, 0, 1 << 20) == len(frame) - 4
    header_version = api.request_header_version(version)
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    assert frame[4:] == header.encode(header_version) + request.encode(version)
    for buffer in (frame, memoryview(bytearray(frame))):
        head = parse_request_header(buffer, 4)
        client = client_id if header_version else None
        assert head[:4] == (key, version, correlation_id, client)
        assert api.request().from_bytes(version, frame[head.body_offset :]) == request


@given(st.sampled_from(VERSIONS), st.integers(-(2**31), 2**31 - 1))
def test_a_response_frame_is_read_back(pair: tuple[int, int], correlation_id: int) -> None:
    key, version = pair
    api = find_api(key)
    response = api.response()()
    frame = b"".join(encode_response(response, version, correlation_id))
    assert frame_size(frame, 0, 1 << 20) == len(frame) - 4
    header = ResponseHeader(correlation_id=correlation_id)
    header_version = api.response_header_version(version)
    assert frame[4:] == header.encode(header_version) + response.encode(version)
    found, offset = parse_response_header(key, version, frame, 4)
    assert (found, frame[offset:]) == (correlation_id, response.encode(version))


def test_the_bytes_of_a_request_are_known() -> None:
    request = HeartbeatRequest()
    old = b"".join(encode_request(request, 0, 7, "me"))
    assert old == b"\0\0\0\x14" + b"\0\x0c\0\0\0\0\0\x07\0\2me" + b"\0\0\0\0\0\0\0\0"
    new = b"".join(encode_request(request, 4, 7, None))
    assert new == b"\0\0\0\x13" + b"\0\x0c\0\4\0\0\0\x07\xff\xff\0" + b"\1\0\0\0\0\1\0\0"


def test_the_header_before_api_versions_never_changes() -> None:
    response = ApiVersionsResponse()
    for version in range(5):
        frame = b"".join(encode_response(response, version, 7))
        assert frame[4:8] == b"\0\0\0\x07"
        assert frame[8:] == response.encode(version)


def test_a_request_of_a_version_from_the_future_shows_its_head() -> None:
    frame = b"\0\x12\0\x63\0\0\0\x07\0\2me\0future"
    head = parse_request_header(frame)
    assert head == RequestHead(ApiKey.API_VERSIONS, 99, 7, "me", 13)
    with pytest.raises(UnsupportedVersion):
        ApiVersionsRequest.decode(head.version, frame, head.body_offset)


def test_a_client_id_that_may_be_empty_or_null_is_told_apart() -> None:
    assert parse_request_header(b"\0\x0c\0\0\0\0\0\7\0\0").client_id == ""
    assert parse_request_header(b"\0\x0c\0\0\0\0\0\7\xff\xff").client_id is None


def test_the_first_header_had_no_client_id() -> None:
    frame = b"".join(encode_request(ControlledShutdownRequest(), 0, 7, "me"))
    assert frame == b"\0\0\0\x0c\0\7\0\0\0\0\0\7\0\0\0\0"
    assert parse_request_header(frame, 4) == (7, 0, 7, None, 12)


def test_tags_in_a_header_are_passed_over() -> None:
    assert parse_request_header(b"\0\x0c\0\4\0\0\0\7\0\0\1\5\2ab").body_offset == 15
    assert parse_response_header(12, 4, b"\0\0\0\7\1\5\2abX") == (7, 9)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x0c\0\0\0\0\0",
        b"\0\x0c\0\0\0\0\0\7",
        b"\0\x0c\0\0\0\0\0\7\0\5me",
        b"\0\x0c\0\0\0\0\0\7\xff\xfe",
        b"\0\x0c\0\0\0\0\0\7\0\1\xff",
        b"\0\x0c\0\4\0\0\0\7\0\0",
        b"\0\x0c\0\4\0\0\0\7\0\0\1",
        b"\0\x0c\0\4\0\0\0\7\0\0\2\5\0\5\0",
        b"\0\x0c\0\4\0\0\0\7\0\0\1\5\x09ab",
        b"\0\x0c\0\4\0\0\0\7\0\0\xff\xff\xff\xff\xff\xff",
    ],
)
def test_a_broken_header_is_malformed(frame: bytes) -> None:
    for buffer in (frame, memoryview(frame)):
        with pytest.raises(MalformedMessage, match="request header"):
            parse_request_header(buffer)


def test_a_header_may_not_have_as_many_tags_as_there_is_room_for() -> None:
    """Security.md, section 8: "tagged-field amplification", in what is read before a login."""
    tags = b"".join(bytes([tag, 0]) for tag in range(127))
    head = b"\0\x0c\0\4\0\0\0\7\0\0"
    assert parse_request_header(head + b"\x7f" + tags).body_offset == 11 + len(tags)
    more = b"\x80\x01" + tags + b"\x7f\0"
    with pytest.raises(MalformedMessage, match="very many tagged fields"):
        parse_request_header(head + more)


def test_a_broken_response_header_is_malformed() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\7", b"\0\0\0\7\1"):
        with pytest.raises(MalformedMessage, match="response header"):
            parse_response_header(12, 4, frame)


def test_an_unknown_key_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UnsupportedVersion, match="99"):
        parse_request_header(b"\0\x63\0\0\0\0\0\7")


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0", b""])
def test_an_impossible_frame_size_is_malformed(size: bytes) -> None:
    with pytest.raises(MalformedMessage):
        frame_size(size, 0, 100)


def test_a_client_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(UnencodableMessage):
        encode_request(HeartbeatRequest(), 4, 1, "x" * 40000)


@pytest.mark.parametrize("client_id", ["\ud800", b"bytes", 7])
def test_a_client_id_that_is_no_text_is_refused(client_id: Any) -> None:
    for version in (0, 4):
        with pytest.raises(UnencodableMessage, match="request header: client id"):
            encode_request(HeartbeatRequest(), version, 1, client_id)


@pytest.mark.parametrize("correlation_id", [1 << 31, -(1 << 31) - 1, None, "1"])
def test_a_correlation_id_that_does_not_fit_is_refused(correlation_id: Any) -> None:
    for version in (0, 4):
        with pytest.raises(UnencodableMessage, match=r"request header: .* correlation id"):
            encode_request(HeartbeatRequest(), version, correlation_id, "me")
        with pytest.raises(UnencodableMessage, match=r"response header: .* correlation id"):
            encode_response(HeartbeatResponse(), version, correlation_id)


def sent_log_dirs(*paths: str, version: int = 4) -> list[str]:
    results = tuple(DescribeLogDirsResult(log_dir=path) for path in paths)
    frame = b"".join(encode_response(DescribeLogDirsResponse(results=results), version, 7))
    _, body = parse_response_header(DescribeLogDirsResponse.API_KEY, version, frame, 4)
    response, _ = DescribeLogDirsResponse.decode(version, frame, body)
    return [result.log_dir for result in response.results]


@pytest.mark.parametrize("version", [1, 4])
def test_texts_of_a_response_that_do_not_fit_are_cut_and_the_others_left_alone(
    version: int,
) -> None:
    long = "\N{CROCODILE}" * 10_000
    sent = sent_log_dirs("/data", long, "/a\udcff", "x" * 32767, version=version)
    assert sent[0] == "/data"
    assert sent[1].startswith("\N{CROCODILE}" * 4000 + "...(2000 more characters)...")
    assert sent[2] == r"/a\udcff"
    assert sent[3] == "x" * 32767


@given(st.text(st.characters(), max_size=20), st.integers(1, 4000))
def test_whatever_its_texts_a_response_can_be_sent(text: str, times: int) -> None:
    (sent,) = sent_log_dirs(text * times)
    if len((text * times).encode(errors="backslashreplace")) <= 32767:
        assert sent == encodable(text * times)


def test_what_is_wrong_with_a_response_beside_its_texts_is_still_an_error() -> None:
    wrong = DescribeLogDirsResult(log_dir="x" * 40_000, error_code=1 << 20)
    with pytest.raises(UnencodableMessage):
        encode_response(DescribeLogDirsResponse(results=(wrong,)), 4, 7)


class RecordsInFile(RecordsElsewhere):
    """Records of which nothing but their length is known."""

    def __len__(self) -> int:
        return 20_000


def test_a_long_response_is_framed_in_steps_around_records_that_are_not_in_memory() -> None:
    records: list[Any] = [RecordsInFile(), b"small", memoryview(bytes(2_000)), RecordsInFile()] * 50
    partitions = tuple(
        PartitionData(partition_index=index, records=piece) for index, piece in enumerate(records)
    )
    response = FetchResponse(responses=(FetchableTopicResponse(partitions=partitions),))
    steps = encode_response_in_steps(response, 12, 7)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            framed: list[Any] = end.value
            break
        count += 1
    assert count >= len(records)
    plain: list[Any] = encode_response(response, 12, 7)
    elsewhere = [chunk for chunk in framed if isinstance(chunk, RecordsElsewhere)]
    assert elsewhere == [piece for piece in records if isinstance(piece, RecordsElsewhere)]
    whole = [
        b"".join(
            bytes(len(chunk)) if isinstance(chunk, RecordsElsewhere) else chunk for chunk in chunks
        )
        for chunks in (framed, plain)
    ]
    assert whole[0] == whole[1]


def test_a_frame_with_records_does_not_copy_them() -> None:
    batch = bytes(5000)
    partition = PartitionData(records=batch)
    response = FetchResponse(responses=(FetchableTopicResponse(partitions=(partition,)),))
    chunks = encode_response(response, 12, 7)
    assert [chunk is batch for chunk in chunks] == [False, True, False]
    frame = b"".join(chunks)
    assert frame_size(frame, 0, 10_000) == len(frame) - 4
    assert len(encode_response(HeartbeatResponse(), 4, 7)) == 1
