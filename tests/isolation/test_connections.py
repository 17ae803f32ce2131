"""Attacks by how a client uses its connections."""

from __future__ import annotations

import pytest

from dohle.protocol.messages.api_versions import ApiVersionsRequest
from tests.interop.wire import Wire, frame_of
from tests.isolation.harness import assert_harmless

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(300)]


def test_connections_that_come_and_go() -> None:
    def attack(bootstrap: str) -> int:
        for _ in range(2_000):
            Wire(bootstrap).socket.close()
        return 0

    assert_harmless(attack)


def test_small_requests_as_fast_as_they_can_be_sent() -> None:
    frame = frame_of(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)

    def attack(bootstrap: str) -> int:
        sent = 0
        with Wire(bootstrap) as wire:
            for _ in range(200):
                wire.socket.sendall(frame * 500)
                sent += len(frame) * 500
                for _ in range(500):
                    wire.receive_frame()
        return sent

    assert_harmless(attack)
