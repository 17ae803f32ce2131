"""The bytes that a client has sent, cut into frames without copying them. Pure: it knows no socket.

- A frame is a view of the buffer. As long as frames that were taken may still be read (the buffer
  is in use), no byte before the next frame is moved or overwritten. If there is no room, what has
  arrived behind them moves to a new buffer, and the old one lives as long as its views.
- It begins small, for a connection that is idle, and grows for large frames so that several of them
  fit: so many bytes evict the processor's caches, and work done once per read event is then
  expensive. After a large frame it shrinks again.
- It never grows because of a size that a client merely claims: apart from a first part, as many
  bytes must have arrived as are reserved.
"""

from __future__ import annotations

import struct

from dohle.protocol.errors import MalformedMessage

BUFFER_BYTES_AT_FIRST = 16 * 1024
BUFFER_BYTES = 256 * 1024
BUFFER_BYTES_KEPT = 2 * 1024 * 1024

# If there is less room than this behind an incomplete frame, the frame is first moved to the front.
_ROOM_BYTES_MIN = 64 * 1024
# For frames above this size, the buffer should hold this many of them, if it may be that large.
_LARGE_FRAME_BYTES = 64 * 1024
_LARGE_FRAMES = 4
# The memory of a large frame grows by this much at a time.
_GROWTH_BYTES = 4 * 1024 * 1024
_SIZE = struct.Struct(">i")
#: How the first bytes of a client look that takes this for a listener with TLS.
_TLS_HANDSHAKE = 0x1603
_unpack_size = _SIZE.unpack_from


class ReceiveBuffer:
    """What was received and not taken yet: the bytes from ``start`` to ``end``."""

    __slots__ = ("_bytes", "_view", "end", "frame_bytes_max", "is_large", "start")

    def __init__(self, frame_bytes_max: int) -> None:
        #: A larger frame is refused.
        self.frame_bytes_max = frame_bytes_max
        self._bytes = bytearray(BUFFER_BYTES_AT_FIRST)
        self._view = memoryview(self._bytes)
        self.start = 0
        self.end = 0
        #: Whether it is larger than what is kept.
        self.is_large = False

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def capacity(self) -> int:
        """How many bytes it has reserved."""
        return len(self._view)

    def empty_room(self) -> memoryview | None:
        """Return where to put what is received next if nothing is held; None if something is.

        Frames that were taken must not be in use any more.
        """
        if self.start != self.end:
            return None
        self.start = self.end = 0
        return self._view

    def room(self, *, in_use: bool, may_grow: bool = True) -> memoryview | None:
        """Return where to put what is received next; None if the client has to wait.

        ``in_use`` means that frames that were taken may still be read. Without ``may_grow`` no
        memory is reserved for a large frame, since it is not going to be handled soon.
        """
        if self.start == self.end and not in_use:
            self.start = self.end = 0
        room = len(self._view) - self.end
        if (
            room < _ROOM_BYTES_MIN
            and (room == 0 or (self.start > 0 and not in_use))
            and not self._make_room(in_use=in_use, may_grow=may_grow)
        ):
            return None
        return self._view[self.end :]

    def received(self, count: int) -> None:
        """Note that so many bytes were put into the view that ``room`` returned."""
        is_full = self.end + count == len(self._view)
        self.end += count
        if is_full and len(self._view) < BUFFER_BYTES:
            # The client sends more than the buffer of an idle connection holds.
            self._take_buffer(BUFFER_BYTES)

    def next_frame(self) -> memoryview | None:
        """Take the next frame, without its size field; None if it has not arrived completely."""
        start = self.start + 4
        if start > self.end:
            return None
        (size,) = _unpack_size(self._view, start - 4)
        if not 0 <= size <= self.frame_bytes_max:
            hint = " (this looks like TLS)" if size >> 16 == _TLS_HANDSHAKE else ""
            raise MalformedMessage(
                f"a frame of {size} bytes; {self.frame_bytes_max} are allowed{hint}"
            )
        end: int = start + size
        if end > self.end:
            return None
        self.start = end
        return self._view[start:end]

    @property
    def api_key(self) -> int:
        """The API key of the next frame; -1 if that has not arrived yet."""
        # Only the second byte of it is in use.
        at = self.start + _SIZE.size + 1
        return self._view[at] if at < self.end else -1

    @property
    def large_frame_size(self) -> int:
        """The size of a frame that is being received; 0 if a buffer that may be kept holds it."""
        held = self.end - self.start
        if held < _SIZE.size:
            return 0
        size: int = _unpack_size(self._view, self.start)[0]
        return size if size > BUFFER_BYTES_KEPT and held < _SIZE.size + size else 0

    def put_back(self, frame: memoryview) -> None:
        """Put back the frame that was taken last: it is the next again."""
        self.start -= _SIZE.size + len(frame)

    def shrink(self) -> None:
        """Release the memory of large frames, if nothing is left to be handled."""
        if self.start == self.end and self.is_large:
            self._take_buffer(BUFFER_BYTES)

    def drop(self) -> None:
        """Forget everything, since nothing more is received."""
        self._bytes = bytearray()
        self._view, self.start, self.end = memoryview(self._bytes), 0, 0
        self.is_large = False

    def _make_room(self, *, in_use: bool, may_grow: bool) -> bool:
        """Make room behind what has arrived: move it to the front, or to a larger buffer."""
        held = self.end - self.start
        if in_use:
            if self.start == 0:
                return False
            self._take_buffer(max(BUFFER_BYTES, held + _ROOM_BYTES_MIN))
        elif may_grow and (size := self._larger_size()):
            if held < BUFFER_BYTES_KEPT or not self._grow(size):
                self._take_buffer(size)
        elif self.start == 0:
            return False
        else:
            self._view[:held] = self._view[self.start : self.end]
            self.start, self.end = 0, held
        return True

    def _larger_size(self) -> int:
        """Return the size of the buffer that a large frame calls for; 0 if this one will do."""
        held, length = self.end - self.start, len(self._view)
        if held < _SIZE.size:
            return 0
        need = _SIZE.size + _unpack_size(self._view, self.start)[0]
        if need <= held or need <= min(length, _LARGE_FRAME_BYTES):
            return 0
        # A client that has not logged in may send small frames only: no room for several of them.
        several = min(_LARGE_FRAMES * need, BUFFER_BYTES_KEPT, _SIZE.size + self.frame_bytes_max)
        wanted = max(need, several)
        size = min(wanted, max(length + min(length, _GROWTH_BYTES), BUFFER_BYTES_KEPT))
        # A producer's frames differ a little in size: the next should fit as well.
        size = -(-size // BUFFER_BYTES) * BUFFER_BYTES
        return size if size > length else 0

    def _take_buffer(self, size: int) -> None:
        held = self.end - self.start
        self._bytes = bytearray(size)
        view = memoryview(self._bytes)
        view[:held] = self._view[self.start : self.end]
        self._view, self.start, self.end = view, 0, held
        self.is_large = size > BUFFER_BYTES_KEPT

    def _grow(self, size: int) -> bool:
        """Make a large buffer larger without copying it: its pages move, not what is in them."""
        if self.start:
            return False
        self._view.release()
        try:
            self._bytes += bytes(size - len(self._bytes))
        except BufferError:
            # Somebody still reads a frame that was taken before.
            return False
        finally:
            self._view = memoryview(self._bytes)
        self.is_large = True
        return True
