"""TLS for one connection: what arrives, however it is cut, and who sends no data."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.host import StreamSocket
from dohle.server.net.tls_stream import PIECE_BYTES, TlsSession, TlsStream
from tests.security.authority import Authority

_HASH = "sha384"


class Line:
    """A socket whose other end is the test."""

    def __init__(self) -> None:
        self.arriving = b""
        self.sent = b""

    def recv_into(self, buffer: memoryview) -> int:
        if not self.arriving:
            raise BlockingIOError
        count = min(len(buffer), len(self.arriving))
        buffer[:count], self.arriving = self.arriving[:count], self.arriving[count:]
        return count

    def send(self, data: bytes | memoryview) -> int:
        self.sent += data
        return len(data)


class Client:
    """The other side, and the stream that it is connected to."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(authority.issue().path)
        context = ssl.create_default_context(cafile=authority.path)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        keys = folder / "keys"
        keys.unlink(missing_ok=True)
        context.keylog_filename = str(keys)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        session = TlsSession.begin(server)
        self._go_on(self.engine.do_handshake)
        session.incoming.write(self._out.read())
        self._go_on(session.engine.do_handshake)
        self._in.write(session.outgoing.read())
        self.engine.do_handshake()
        session.incoming.write(self._out.read())
        session.engine.do_handshake()
        assert self.engine.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        self.line = Line()
        self.line.sent = session.outgoing.read()
        scratch = memoryview(bytearray(PIECE_BYTES))
        self.stream = TlsStream(cast("StreamSocket", self.line), session, scratch)
        (logged,) = (
            line for line in keys.read_text().splitlines() if line[:23] == "CLIENT_TRAFFIC_SECRET_0"
        )
        self._secret = bytes.fromhex(logged.split()[2])

    @staticmethod
    def _go_on(step: Callable[[], Any]) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            step()

    def record(self, data: bytes) -> bytes:
        """Return a record with data."""
        self.engine.write(data)
        return self._out.read()

    def asks_for_keys(self) -> bytes:
        """Return a record that has the other side renew its keys; OpenSSL is not asked."""
        key = self._expanded(b"key", 32)
        # Each key is used for one record, the first.
        nonce = self._expanded(b"iv", 12)
        head = b"\x17\x03\x03" + struct.pack(">H", 6 + 16)
        # KeyUpdate, three bytes of length, update_requested; and that it is of the handshake.
        sealed = AESGCM(key).encrypt(nonce, b"\x18\x00\x00\x01\x01\x16", head)
        self._secret = self._expanded(b"traffic upd", 48)
        return head + sealed

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of RFC 8446; no more than one block is asked for."""
        label = b"tls13 " + label
        info = struct.pack(">HB", size, len(label)) + label + b"\0\1"
        return hmac.new(self._secret, info, getattr(hashlib, _HASH)).digest()[:size]

    def received(self, size: int = PIECE_BYTES) -> bytes:
        """Return what the stream has, as long as there is any."""
        found, buffer = b"", memoryview(bytearray(size))
        while True:
            try:
                count = self.stream.recv_into(buffer)
            except BlockingIOError:
                if not self.stream.has_more and not self.line.arriving:
                    return found
            else:
                found += buffer[:count]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@given(
    st.lists(st.sampled_from([1, 20, 500, 16_384]), min_size=1, max_size=150),
    st.lists(st.integers(1, 70_000), max_size=20),
    st.sampled_from([7, 1000, PIECE_BYTES]),
)
@settings(max_examples=50, deadline=None)
def test_records_come_out_as_they_went_in_however_they_are_cut(
    authority: Authority, folder: Path, sizes: list[int], cuts: list[int], room: int
) -> None:
    client = Client(authority, folder)
    sent = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(client.record, sent))
    found = b""
    for cut in cuts:
        client.line.arriving, data = data[:cut], data[cut:]
        found += client.received(room)
    client.line.arriving = data
    assert found + client.received(room) == b"".join(sent)


def test_many_small_records_are_read_a_few_at_a_time(authority: Authority, folder: Path) -> None:
    """Nobody keeps the loop for long, however small the records are in what has arrived."""
    client = Client(authority, folder)
    client.line.arriving = b"".join(client.record(b"x") for _ in range(1000))
    count = client.stream.recv_into(memoryview(bytearray(PIECE_BYTES)))
    assert 0 < count < 100
    assert client.stream.has_more
    assert len(client.received()) == 1000 - count


def test_new_keys_may_be_asked_for_between_data(authority: Authority, folder: Path) -> None:
    """Section 2: "TLS 1.3 key update allowed"."""
    client = Client(authority, folder)
    client.line.arriving, told = client.asks_for_keys() + client.asks_for_keys(), client.line.sent
    assert client.received() == b""
    assert len(client.line.sent) > len(told)


def test_a_client_that_asks_for_new_keys_only_is_cut_off(
    authority: Authority, folder: Path
) -> None:
    """Section 8, model: "unauthenticated ones must cost next to nothing"."""
    client = Client(authority, folder)
    asked = [client.asks_for_keys() for _ in range(5000)]
    client.line.arriving = b"".join(asked)
    with pytest.raises(ConnectionAbortedError, match="without data"):
        client.received()
