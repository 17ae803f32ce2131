"""Answers to produce requests that get lost: what was written is written again, or rather not.

Between client and broker stands a proxy that takes produce requests through to the broker but, the
first few times, not their answers back: it hangs up instead. An idempotent producer must end with
every record once, at the offset it was told.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dohle.protocol.apis import ApiKey
from dohle.testing import Broker
from tests.interop.clients import CLIENTS, Client, Sample, Writing
from tests.interop.wire import Wire

RECORDS = 300
#: How many connections end with a lost answer before one is let through.
LOSSES = 4


class Proxy:
    """Passes frames on both ways; loses the first answers to produce requests."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.broker: tuple[str, int]
        self.losses = 0
        self._open: list[socket.socket] = [self._listening]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.create_connection(self.broker)
            self._open += [client, broker]
            produced: set[int] = set()
            for thread in (
                threading.Thread(target=self._requests, args=(client, broker, produced)),
                threading.Thread(target=self._answers, args=(broker, client, produced)),
            ):
                self._threads.append(thread)
                thread.start()

    def _requests(self, client: socket.socket, broker: socket.socket, produced: set[int]) -> None:
        for frame in frames(client):
            api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
            if api_key == ApiKey.PRODUCE:
                produced.add(correlation_id)
            broker.sendall(frame)
        hang_up(broker)

    def _answers(self, broker: socket.socket, client: socket.socket, produced: set[int]) -> None:
        for frame in frames(broker):
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            if correlation_id in produced and self.losses < LOSSES:
                self.losses += 1
                break
            client.sendall(frame)
        hang_up(client)

    def close(self) -> None:
        for each in self._open:
            hang_up(each)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()


def hang_up(sock: socket.socket) -> None:
    with suppress(OSError):  # the other side may have been quicker
        sock.shutdown(socket.SHUT_RDWR)


def frames(sock: socket.socket) -> Iterator[bytes]:
    """Give out whole frames, sizes included, until the connection ends."""
    held = b""
    while True:
        try:
            piece = sock.recv(1 << 16)
        except OSError:
            return
        if not piece:
            return
        held += piece
        while len(held) >= 4 and len(held) >= (end := 4 + struct.unpack_from(">i", held)[0]):
            yield held[:end]
            held = held[end:]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_an_idempotent_producer_writes_each_record_once(client: Client) -> None:
    proxy = Proxy()
    try:
        with Broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker:
            address = broker.node.listeners[0]
            proxy.broker = (address.host, address.port)
            direct = f"{address.host}:{address.port}"
            with Wire(direct) as wire:
                wire.create_topic("t")
            # Large enough that they do not all fit into one batch.
            written = [Sample(None, b"%d " % n + bytes(500)) for n in range(RECORDS)]

            offsets = client.write(
                f"127.0.0.1:{proxy.port}", "t", written, Writing(idempotent=True)
            )

            assert proxy.losses == LOSSES
            assert offsets == list(range(RECORDS))
            with Wire(direct) as wire:
                stored = [record.value for batch in wire.stored_batches("t") for record in batch]
            assert stored == [sample.value for sample in written]
    finally:
        proxy.close()
