"""Links that are cut: what is sent waits, comes late, or is lost with its connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from os import getpid

import pytest

from dohle.protocol.apis import ApiKey
from dohle.testing.check.links import CLIENTS, LinkError, Links
from dohle.testing.check.socket_owner import owner_of
from tests.interop.waiting import wait_until

NODE, OTHER = 1, 2
DEADLINE_S = 30.0


class Echo:
    """A server that sends back what it is sent, and remembers it."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.received = b""
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._connections.append(connection)
        with connection:
            try:
                while piece := connection.recv(65_536):
                    self.received += piece
                    connection.sendall(piece)
            except OSError:
                pass

    def hang_up(self) -> None:
        for connection in self._connections:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as running:
        yield running


@pytest.fixture
def links() -> Iterator[Links]:
    with closing(Links(lambda port: owner_of(port, {OTHER: getpid()}))) as running:
        yield running


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    connection.settimeout(DEADLINE_S)
    return connection


def frame(key: int, client_id: bytes = b"me") -> bytes:
    body = key.to_bytes(2) + bytes(6) + len(client_id).to_bytes(2) + client_id
    return len(body).to_bytes(4) + body


def test_what_is_sent_while_a_link_is_cut_comes_late(echo: Echo, links: Links) -> None:
    port = links.add(NODE, echo.port, is_for_clients=False)
    with connect(port) as near:
        near.sendall(b"before")
        assert near.recv(100) == b"before"
        links.cut([(OTHER, NODE)])
        near.sendall(b"late")
        with connect(links.add(NODE, echo.port, is_for_clients=True)) as client:
            client.sendall(frame(18))
            assert client.recv(100) == frame(18), "other links are as they were"
        assert b"late" not in echo.received
        links.mend(reset=False)
        assert near.recv(100) == b"late"


def test_an_answer_can_be_cut_alone(echo: Echo, links: Links) -> None:
    port = links.add(NODE, echo.port, is_for_clients=False)
    links.cut([(NODE, OTHER)])
    with connect(port) as near:
        near.sendall(b"one way")
        wait_until(lambda: echo.received == b"one way")
        links.mend(reset=False)
        assert near.recv(100) == b"one way"


def test_what_is_sent_is_lost_with_a_connection_that_goes(echo: Echo, links: Links) -> None:
    port = links.add(NODE, echo.port, is_for_clients=True)
    with connect(port) as near:
        near.sendall(frame(18))
        assert near.recv(100) == frame(18)
        links.cut([(CLIENTS, NODE)])
        near.sendall(frame(19))
    wait_until(lambda: links.connection_count == 0)
    links.mend(reset=False)
    with connect(port) as near:
        near.sendall(frame(20))
        assert near.recv(100) == frame(20)
    assert echo.received == frame(18) + frame(20)


def test_a_reset_breaks_what_was_cut(echo: Echo, links: Links) -> None:
    port = links.add(NODE, echo.port, is_for_clients=False)
    with connect(port) as near:
        near.sendall(b"before")
        assert near.recv(100) == b"before"
        links.cut([(OTHER, NODE)])
        near.sendall(b"lost")
        links.mend(reset=True)
        with pytest.raises(ConnectionError):
            near.recv(100)
    assert echo.received == b"before"


def test_a_connection_that_its_server_has_ended_can_be_reset(echo: Echo, links: Links) -> None:
    port = links.add(NODE, echo.port, is_for_clients=False)
    with connect(port) as near:
        near.sendall(b"before")
        assert near.recv(100) == b"before"
        links.cut([(OTHER, NODE)])
        near.sendall(b"held")
        echo.hang_up()
        assert near.recv(100) == b""
        links.mend(reset=True)
    wait_until(lambda: links.connection_count == 0)


def test_a_request_is_held_back_and_comes_after_its_client_has_gone(
    echo: Echo, links: Links
) -> None:
    port = links.add(NODE, echo.port, is_for_clients=True)
    with pytest.raises(LinkError):
        links.release(DEADLINE_S)
    held = links.hold("me", ApiKey.END_TXN)
    with connect(port) as near:
        near.sendall(frame(ApiKey.END_TXN, b"somebody else"))
        assert near.recv(100) == frame(ApiKey.END_TXN, b"somebody else")
        near.sendall(frame(ApiKey.END_TXN))
        wait_until(lambda: held.is_held)
    with connect(port) as again:
        again.sendall(frame(ApiKey.END_TXN))
        assert again.recv(100) == frame(ApiKey.END_TXN), "the next one is not held back"
    before = echo.received
    links.release(DEADLINE_S)
    assert echo.received == before + frame(ApiKey.END_TXN)
