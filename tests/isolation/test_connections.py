"""Attacks by how a client uses its connections."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from time import monotonic

import pytest

from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.metadata import MetadataRequest
from tests.interop.wire import Wire, batch_of, fetch_request, frame_of
from tests.isolation.harness import assert_harmless

MANY = 40

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


def test_clients_that_never_read_their_answers() -> None:
    frames = memoryview(frame_of(MetadataRequest(topics=None), 12) * 200_000)

    def prepare(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            wire.create_topic("wide", 200)

    def attack(bootstrap: str) -> int:
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(bootstrap)) for _ in range(MANY)]
            return sum(send_all_it_takes(wire, frames) for wire in wires)

    assert_harmless(attack, prepare=prepare)


def send_all_it_takes(wire: Wire, data: memoryview) -> int:
    """Send until the broker reads no more; return how much it took."""
    sent = 0
    wire.socket.settimeout(0.05)
    with suppress(TimeoutError):
        while sent < len(data):
            sent += wire.socket.send(data[sent:])
    return sent


def test_clients_that_read_a_lot() -> None:
    request = memoryview(frame_of(fetch_request("much", bytes_max=50_000_000), 12) * 20)

    def prepare(bootstrap: str) -> None:
        batch = batch_of(*[bytes(100_000)] * 9)
        with Wire(bootstrap) as wire:
            wire.create_topic("much")
            for _ in range(64):
                assert wire.produce("much", batch).error_code == 0

    def attack(bootstrap: str) -> int:
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(bootstrap)) for _ in range(MANY)]
            sent = sum(send_all_it_takes(wire, request) for wire in wires)
            end = monotonic() + 3
            buffer = bytearray(1 << 20)
            while monotonic() < end:
                for wire in wires:
                    with suppress(TimeoutError):
                        wire.socket.recv_into(buffer)
            return sent

    assert_harmless(attack, prepare=prepare)
