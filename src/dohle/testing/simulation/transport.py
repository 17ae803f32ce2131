"""A transport over a simulated socket, as asyncio's selector loop has one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dohle.testing.simulation.loop import SimulatedLoop
    from dohle.testing.simulation.sockets import SimulatedSocket

_READ_BYTES_MAX = 256 * 1024
_HIGH_WATER_BYTES = 64 * 1024
_LOW_WATER_BYTES = 16 * 1024


class SimulatedTransport(asyncio.Transport):
    """Moves bytes between a socket and a protocol."""

    def __init__(
        self, loop: SimulatedLoop, sock: SimulatedSocket, protocol: asyncio.BaseProtocol
    ) -> None:
        super().__init__({"sockname": sock.getsockname(), "peername": sock.getpeername()})
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._unsent = bytearray()
        self._is_closing = False
        self._is_lost = False
        self._is_paused = False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._start_reading)

    def _start_reading(self) -> None:
        if not self._is_closing:
            self._loop.add_reader(self._fd, self._on_readable)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who gets the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another one have them."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Tell whether it is closed or about to be."""
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return an address."""
        return super().get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Leave what arrives in the socket."""
        self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Go on."""
        self._start_reading()

    def is_reading(self) -> bool:
        """Tell whether bytes are taken."""
        return not self._is_closing

    def _on_readable(self) -> None:
        protocol = self._protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                count = self._socket.recv_into(memoryview(protocol.get_buffer(-1)))
                if count:
                    protocol.buffer_updated(count)
                    return
            else:
                data = self._socket.recv(_READ_BYTES_MAX)
                if data:
                    assert isinstance(protocol, asyncio.Protocol)
                    protocol.data_received(data)
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if protocol.eof_received():
            self._loop.remove_reader(self._fd)
        else:
            self.close()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send, now or when there is room."""
        if self._is_lost or not data:
            return
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._lose(error)
                return
            data = memoryview(data)[sent:]
            if not data:
                return
            self._loop.add_writer(self._fd, self._on_writable)
        self._unsent += data
        if len(self._unsent) > _HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Send pieces as one."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return how much was not sent yet."""
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        """Say no: nobody here does."""
        return False

    def _on_writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        del self._unsent[:sent]
        if self._is_paused and len(self._unsent) <= _LOW_WATER_BYTES:
            self._is_paused = False
            self._protocol.resume_writing()
        if not self._unsent:
            self._loop.remove_writer(self._fd)
            if self._is_closing:
                self._end(None)

    def close(self) -> None:
        """Close when everything is sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.remove_reader(self._fd)
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        """Close at once."""
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._unsent.clear()
        self._loop.remove_writer(self._fd)
        self._loop.remove_reader(self._fd)
        self._is_closing = True
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._loop.call_soon(self._tell, error)

    def _tell(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()
