"""The request of a client in an Envelope (58), from its broker to the controller (A10, A11).

The envelope holds header and body of the request as the client has sent them, who the client is and
where it comes from. The answer holds header and body of the response, or an error of the envelope.
The request is encoded anew from what was decoded, which keeps tagged fields that this release does
not know: the same bytes, but for the correlation id, which is only between broker and controller.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TypeVar

from dohle.core.errors import ErrorCode
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.framing import SIZE_BYTES, encode_request, parse_response_header
from dohle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from dohle.protocol.messages.principal import DefaultPrincipalData
from dohle.protocol.schema import Request, Response
from dohle.server.channel import Client

R = TypeVar("R", bound=Response)

#: The version of a principal's encoding, which comes before it.
_PRINCIPAL_VERSION = bytes(2)
_CORRELATION_ID = 0


def wrap(client: Client, request: Request) -> EnvelopeRequest:
    """Put a client's request into an envelope."""
    frame = b"".join(encode_request(request, client.version, _CORRELATION_ID, client.client_id))
    principal = DefaultPrincipalData(type=client.principal.type, name=client.principal.name)
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:],
        request_principal=_PRINCIPAL_VERSION + principal.encode(0),
        client_host_address=ip_address(client.host).packed,
    )


def unwrap(client: Client, reply: EnvelopeResponse, answer: type[R]) -> R | ErrorCode:
    """Return the response to a client, or the error of the envelope."""
    if reply.error_code:
        try:
            return ErrorCode(reply.error_code)
        except ValueError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    data = reply.response_data or b""
    try:
        correlation_id, body = parse_response_header(answer.API_KEY, client.version, data)
        if correlation_id != _CORRELATION_ID:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        response, _ = answer.decode(client.version, data, body)
    except MalformedMessage:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return response
