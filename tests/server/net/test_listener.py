"""What a listener does to the sockets that it accepts."""

from __future__ import annotations

import socket

import pytest

from dohle.server.net.listener import send_at_once

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="this system has one congestion control"
)


def congestion_control(host: str) -> tuple[bytes, bytes]:
    """Return what a socket of a client at this host has before and after."""
    with socket.socket() as sock:
        before = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        send_at_once(sock, host)
        return before, sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_clients_on_this_machine_are_sent_to_without_pacing(host: str) -> None:
    assert congestion_control(host)[1].rstrip(b"\0") == b"reno"


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"])
def test_for_others_the_choice_of_the_system_stands(host: str) -> None:
    before, after = congestion_control(host)
    assert after == before
