"""Envelope (58) v0: what a broker sends on to the controller in the name of a client (A10, A11).

- The request within is handled like one that came by itself, and its answer goes back within.
- Errors of the envelope: an API that may not be forwarded, or an address that is none: 42. A
  request within that cannot be read, or of a version that is not served: 35. A principal that
  cannot be read: 97.
- An answer that says in any of its parts that this is not the active controller is not sent at all:
  the envelope's error is 41, and the broker asks whoever is.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from ipaddress import ip_address
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.principal import Principal
from dohle.core.steps import let_go
from dohle.protocol.apis import FORWARDABLE, ApiKey, find_api
from dohle.protocol.entries import entries_of
from dohle.protocol.errors import MalformedMessage, UnsupportedVersion
from dohle.protocol.framing import (
    SIZE_BYTES,
    RequestHead,
    encode_response_in_steps,
    parse_request_header,
)
from dohle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from dohle.protocol.messages.principal import DefaultPrincipalData
from dohle.protocol.schema import Request, Response
from dohle.server.channel import is_not_controllers
from dohle.server.net.handler import Handler, RequestContext, serves
from dohle.server.net.request_entries import Entries, LargeRequest
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.connection import Connection

_PRINCIPAL_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True)
class ForwardedClient:
    """The client behind a broker; it takes the place of its connection."""

    listener: str
    peer: str
    principal: Principal


def with_envelope(handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
    """Add a handler that opens envelopes for those of these handlers that may be forwarded."""
    within = {key: handlers[key] for key in sorted(FORWARDABLE & handlers.keys())}
    lock = Lock()

    async def handle(
        server: Frontend, context: RequestContext, envelope: EnvelopeRequest
    ) -> EnvelopeResponse:
        slices, large = Slices(server.turns), LargeRequest(lock)
        try:
            client = _client(context, envelope)
            head = _head(envelope, within)
            request = await _request(slices, large, envelope, head, client.peer)
            inner = RequestContext(cast("Connection", client), head.version, head.client_id or "")
            handler = within[ApiKey(head.api_key)]
            response = await _conclude(slices, handler.function(server, inner, request))
            await slices.run(let_go(await slices.run(entries_of(request))))
            return await _seal(slices, response, head)
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)
        finally:
            large.end()

    return {**handlers, **dict([serves(ApiKey.ENVELOPE, handle, is_secret=True)])}


def _client(context: RequestContext, envelope: EnvelopeRequest) -> ForwardedClient:
    try:
        data = envelope.request_principal or b""
        if int.from_bytes(data[:_PRINCIPAL_VERSION_BYTES]) != 0:
            raise MalformedMessage("a principal of an unknown version")
        principal, _ = DefaultPrincipalData.decode(0, data, _PRINCIPAL_VERSION_BYTES)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    try:
        host = ip_address(bytes(envelope.client_host_address))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return ForwardedClient(
        context.connection.listener, f"{host}:0", Principal(principal.type, principal.name)
    )


def _head(envelope: EnvelopeRequest, within: Mapping[ApiKey, Handler]) -> RequestHead:
    try:
        head = parse_request_header(envelope.request_data)
    except (MalformedMessage, UnsupportedVersion) as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
    if head.api_key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API key {head.api_key} is not forwarded")
    handler = within.get(ApiKey(head.api_key))
    if handler is None or not handler.lowest <= head.version <= handler.highest:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"version {head.version} is not served")
    return head


async def _request(
    slices: Slices, large: LargeRequest, envelope: EnvelopeRequest, head: RequestHead, peer: str
) -> Request:
    decode = find_api(head.api_key).request().decode_in_steps
    data = memoryview(envelope.request_data)
    entries: Entries[Request] = Entries(partial(decode, head.version, data, head.body_offset))
    try:
        return await large.decode(slices, entries, peer)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None


async def _conclude(slices: Slices, returned: Any) -> Response:
    """Return the response, whichever way its handler makes it."""
    if isinstance(returned, GeneratorType):
        returned = await slices.run(returned)
    if isawaitable(returned):
        returned = await returned
    assert isinstance(returned, Response), "what may be forwarded is answered at once or awaited"
    return returned


async def _seal(slices: Slices, response: Response, head: RequestHead) -> EnvelopeResponse:
    """Put a response into an envelope, unless the broker must ask somebody else."""
    if is_not_controllers(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    steps = encode_response_in_steps(response, head.version, head.correlation_id)
    frame = b"".join(cast("list[bytes]", await slices.run(steps)))
    return EnvelopeResponse(response_data=frame[SIZE_BYTES:])
