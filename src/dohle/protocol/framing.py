"""How requests and responses travel on a connection: size, header, body. Bytes only, no sockets.

A frame is an int32 size, a header and a body. The API and its version determine the header
(:class:`~dohle.protocol.apis.Api`); the client id keeps its two-byte length in all of them, so that
the head of any request can be read. Frames are encoded as chunks, so that record batches reach the
socket without a copy.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from dohle.core.steps import PlainSteps, finish
from dohle.protocol.apis import find_api
from dohle.protocol.codec.unsigned_varint import STRING_BYTES_MAX, read_unknown_tags
from dohle.protocol.errors import MalformedMessage, UnencodableMessage
from dohle.protocol.fitting_texts import with_fitting_texts
from dohle.protocol.schema import Buffer, Records, Request, Response

_SIZE = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">hhi")
_REQUEST_HEAD_V1 = struct.Struct(">hhih")
_FRAMED_REQUEST_HEAD = struct.Struct(">ihhi")
_FRAMED_RESPONSE_HEAD = struct.Struct(">ii")

SIZE_BYTES = _SIZE.size
# Clients ask for few kinds of requests in one version each, but may name any version.
_HEADERS_MAX = 1_024
#: A header is read at once, also that of a client who has not logged in: so it may not have as many
#: tagged fields as there is room for in a frame. (Their number is a varint; this is one byte.)
_TAGS_MAX = 0x7F
# To make a named tuple this way takes half of the time.
_new = tuple.__new__


class RequestHead(NamedTuple):
    """A parsed request header, and the offset of the body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def frame_size(buffer: Buffer, offset: int, size_max: int) -> int:
    """Return the size of the frame whose size field is at the offset, without that field."""
    try:
        size: int = _SIZE.unpack_from(buffer, offset)[0]
    except struct.error:
        raise MalformedMessage("a frame without its size") from None
    if not 0 <= size <= size_max:
        raise MalformedMessage(f"a frame of {size} bytes; {size_max} are allowed")
    return size


def parse_request_header(frame: Buffer, offset: int = 0) -> RequestHead:
    """Parse the header of a request; the offset is that of the api key, after the size.

    The version is not checked: an ApiVersions request must be answered whatever its version, and
    every later version has the flexible header. An unknown key raises
    :class:`~dohle.protocol.errors.UnsupportedVersion`, since its header is unknown.
    """
    view = frame if type(frame) is bytes else memoryview(frame)
    try:
        api_key, version, correlation_id = _REQUEST_HEAD.unpack_from(view, offset)
        header_version = _request_header_version(api_key, version)
        if not header_version:
            return RequestHead(api_key, version, correlation_id, None, offset + 8)
        length = _REQUEST_HEAD_V1.unpack_from(view, offset)[3]
        end = offset + 10
        client_id = None
        if length >= 0:
            end += length
            client_id = str(view[offset + 10 : end], "utf-8")
        elif length < -1:
            raise struct.error(f"a client id of length {length}")
        if header_version == 2:
            end = _after_tags(view, end)
    except (struct.error, IndexError, UnicodeDecodeError) as reason:
        raise MalformedMessage(f"request header: {reason}") from None
    if end > len(view):
        raise MalformedMessage("request header: it ends too early")
    return _new(RequestHead, (api_key, version, correlation_id, client_id, end))


@lru_cache(_HEADERS_MAX)
def _request_header_version(api_key: int, version: int) -> int:
    return find_api(api_key).request_header_version(version)


@lru_cache(_HEADERS_MAX)
def _response_tags(api_key: int, version: int) -> bytes:
    """Return what stands behind the correlation id in a response's header."""
    return b"\0" if find_api(api_key).response_header_version(version) else b""


def _after_tags(view: bytes | memoryview, pos: int) -> int:
    count = view[pos]
    if not count:
        return pos + 1
    if count > _TAGS_MAX:
        raise struct.error("very many tagged fields")
    return finish(read_unknown_tags(view, pos))[1]


def parse_response_header(
    api_key: int, version: int, frame: Buffer, offset: int = 0
) -> tuple[int, int]:
    """Parse the header of a response to a request of this version: correlation id, body offset."""
    view = frame if type(frame) is bytes else memoryview(frame)
    try:
        correlation_id: int = _SIZE.unpack_from(view, offset)[0]
        end = offset + 4
        if _response_tags(api_key, version):
            end = _after_tags(view, end)
    except (struct.error, IndexError) as reason:
        raise MalformedMessage(f"response header: {reason}") from None
    return correlation_id, end


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> list[Records]:
    """Return the chunks of a frame that holds the request."""
    chunks = request.encode_chunks(version)
    header_version = find_api(request.API_KEY).request_header_version(version)
    client = _encode_client_id(client_id) if header_version else b""
    if header_version == 2:
        client += b"\0"
    size = 8 + len(client) + sum(map(len, chunks))
    try:
        head = _FRAMED_REQUEST_HEAD.pack(size, request.API_KEY, version, correlation_id)
    except struct.error as reason:
        raise _unencodable_head("request", size, correlation_id, reason) from None
    return _with_head(head + client, chunks)


def _encode_client_id(client_id: str | None) -> bytes:
    if client_id is None:
        return b"\xff\xff"
    try:
        text = client_id.encode()
    except (AttributeError, UnicodeEncodeError) as reason:
        raise UnencodableMessage(f"request header: client id: {reason}") from None
    if len(text) > STRING_BYTES_MAX:
        raise UnencodableMessage(f"request header: a client id of {len(text)} bytes")
    return len(text).to_bytes(2, "big") + text


def encode_response(response: Response, version: int, correlation_id: int) -> list[Records]:
    """Return the chunks of a frame that holds the response, with texts cut that do not fit."""
    try:
        chunks = response.encode_chunks(version)
    except UnencodableMessage:
        chunks = with_fitting_texts(response).encode_chunks(version)
    return _framed_response(response, version, correlation_id, chunks)


def encode_response_in_steps(
    response: Response, version: int, correlation_id: int
) -> PlainSteps[list[Records]]:
    """Return the same, in steps that are short however long the response is."""
    try:
        chunks = yield from response.encode_chunks_in_steps(version)
    except UnencodableMessage:
        chunks = yield from with_fitting_texts(response).encode_chunks_in_steps(version)
    return _framed_response(response, version, correlation_id, chunks)


def frame_body(api_key: int, version: int, correlation_id: int, body: bytes) -> list[Records]:
    """Return the chunks of a frame that holds an encoded response, of which no copy is made."""
    return [_response_head(api_key, version, correlation_id, len(body)), body]


def _framed_response(
    response: Response, version: int, correlation_id: int, chunks: list[Records]
) -> list[Records]:
    size = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
    return _with_head(_response_head(response.API_KEY, version, correlation_id, size), chunks)


def _response_head(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    tags = _response_tags(api_key, version)
    size = 4 + len(tags) + body_size
    try:
        return _FRAMED_RESPONSE_HEAD.pack(size, correlation_id) + tags
    except struct.error as reason:
        raise _unencodable_head("response", size, correlation_id, reason) from None


def _unencodable_head(
    what: str, size: int, correlation_id: int, reason: struct.error
) -> UnencodableMessage:
    return UnencodableMessage(
        f"{what} header: {reason} (size {size}, correlation id {correlation_id!r})"
    )


def _with_head(head: bytes, chunks: list[Records]) -> list[Records]:
    """Put the head before the chunks, joined to the first chunk unless that holds records."""
    if chunks and type(chunks[0]) is bytes:
        chunks[0] = head + chunks[0]
    else:
        chunks.insert(0, head)
    return chunks
