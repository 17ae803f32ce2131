"""A client of a listener with SASL that goes by no rules."""

from __future__ import annotations

import socket
import struct

from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from dohle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from dohle.protocol.schema import Request
from dohle.testing.broker import Broker


class Raw:
    """A client that sends what it likes."""

    def __init__(self, broker: Broker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Request, version: int) -> None:
        self.socket.sendall(b"".join(encode_request(request, version, 7, "raw")))

    def send_bare(self, token: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(token)) + token)

    def receive(self) -> bytes | None:
        """Return the next frame; None if the broker has closed the connection."""
        head = self._exactly(4)
        return None if head is None else self._exactly(*struct.unpack(">i", head))

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data

    def versions(self) -> int | None:
        """Ask for the versions, and return the error code of the answer."""
        self.send(ApiVersionsRequest(), 0)
        frame = self.receive()
        return None if frame is None else int.from_bytes(frame[4:6], "big")

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse | None:
        self.send(SaslHandshakeRequest(mechanism=mechanism), version)
        frame = self.receive()
        if frame is None:
            return None
        _, body = parse_response_header(17, version, frame)
        return SaslHandshakeResponse.decode(version, frame, body)[0]

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        self.send(SaslAuthenticateRequest(auth_bytes=token), version)
        frame = self.receive()
        if frame is None:
            return None
        _, body = parse_response_header(36, version, frame)
        return SaslAuthenticateResponse.decode(version, frame, body)[0]
