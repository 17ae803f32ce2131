"""Logins by frames that are so long that they are decoded in slices (facts: security.md, 3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dohle.core.config.authorizer import STANDARD_AUTHORIZER
from dohle.core.errors import ErrorCode
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from dohle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dohle.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dohle.protocol.schema import Request
from dohle.security.plain import plain_token
from dohle.testing.broker import Broker
from tests.server.security.raw import Raw
from tests.server.security.secured import peers_of, sasl_listener

_LONG_CLIENT_ID = "x" * 10_000
_ALL_ACLS = DescribeAclsRequest(
    resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    more = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with Broker(sasl_listener("SASL_PLAINTEXT", **more)) as running:
        yield running


def _send_long(raw: Raw, request: Request, version: int) -> None:
    raw.socket.sendall(b"".join(encode_request(request, version, 7, _LONG_CLIENT_ID)))


def test_who_logs_in_by_a_long_frame_is_nobody_else_in_the_next_request(broker: Broker) -> None:
    """Rule 9: "Principal = `User:` + authorization id", from the first request on."""
    with Raw(broker) as raw:
        assert raw.handshake() is not None
        _send_long(raw, SaslAuthenticateRequest(auth_bytes=plain_token("alice", "alice-secret")), 2)
        assert raw.receive() is not None
        raw.send(_ALL_ACLS, 1)
        frame = raw.receive()
        assert frame is not None
        _, body = parse_response_header(29, 1, frame)
        answer, _ = DescribeAclsResponse.decode(1, frame, body)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "User:alice" in peers_of(broker)


def test_who_fails_by_a_long_frame_is_told_and_cut_off(broker: Broker) -> None:
    """Rule 6."""
    (listener,) = broker.node.listeners
    failed = listener.failed_count
    with Raw(broker) as raw:
        assert raw.handshake() is not None
        _send_long(raw, SaslAuthenticateRequest(auth_bytes=plain_token("alice", "wrong")), 2)
        assert raw.receive() is not None
        assert raw.receive() is None
    assert listener.failed_count == failed + 1


def test_a_mechanism_that_is_not_enabled_is_refused_in_a_long_frame_too(broker: Broker) -> None:
    """Rules 3 and 6."""
    with Raw(broker) as raw:
        _send_long(raw, SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert raw.receive() is not None
        assert raw.receive() is None
