"""One client connection: frames in, answers out, in order, with few system calls and no copies.

- One ``recv_into`` per read event into a buffer that is used again; every complete frame in it is
  handled before anything is sent, so that appends to one partition become one write and answers one
  ``send``. The buffer grows such that this holds for large frames too.
- One request at a time, as in Kafka: while an answer is being waited for (a long poll), or the
  client does not read what it was sent, the frames behind it stay in the buffer. What arrives
  meanwhile is read until the buffer is full; then the client has to wait.
- A handler may keep views of its frame until it has answered. So while an answer is being waited
  for, no byte before ``_start`` is moved or written over: if there is no room, what has arrived
  behind that frame goes on in a new buffer, and the old one lives as long as its views.
- If many clients send at the same time, what is appended for them is written together too: see
  ``GroupCommit``. Until then a connection reads nothing into its buffer, of which that is a part.
- At most ``FRAMES_PER_EVENT`` frames are handled, and answers of about ``REPLY_BYTES_PER_EVENT``
  gathered, before they are sent and others get their turn.
- Record batches go from file to socket by ``sendfile``; what stands before them is sent with
  MSG_MORE.
"""

from __future__ import annotations

import logging
import socket
import struct
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from dohle.core.host import StreamSocket
from dohle.protocol.errors import MalformedMessage
from dohle.server.net.outcome import Chunk, CloseConnection, FileRecords, Frame

if TYPE_CHECKING:
    from dohle.server.net.shortcut import Shortcut

logger = logging.getLogger("dohle.server")

BUFFER_BYTES_AT_FIRST = 16 * 1024
BUFFER_BYTES = 256 * 1024
BUFFER_BYTES_KEPT = 2 * 1024 * 1024
FRAMES_PER_EVENT = 256
REPLY_BYTES_PER_EVENT = 8 * 1024 * 1024

# What is joined for one send; larger pieces are sent as they are.
_JOIN_BYTES_MAX = 64 * 1024
# With less room than this behind an incomplete frame, it is moved to the front before reading on.
_ROOM_BYTES_MIN = 64 * 1024
# Of frames above this size as many as this should fit the buffer, if it may be that large.
_LARGE_FRAME_BYTES = 64 * 1024
_LARGE_FRAMES = 4
_SENDFILE_BYTES_MAX = 4 * 1024 * 1024
# A plain number: members of an enum are slow to get at, and slow to combine.
_MSG_MORE = int(socket.MSG_MORE)
_SIZE = struct.Struct(">i")
_unpack_size = _SIZE.unpack_from


class Service(Protocol):
    """What a connection asks of the broker."""

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | Callable[[], Frame] | Future[Any]:
        """Handle one request; a callable is to be called after ``settle``."""

    def settle(self) -> None:
        """Write what the requests handled so far have appended."""

    def may_settle_later(self, connection: Connection) -> bool:
        """Tell whether it waits for other connections before it settles; then it is called."""

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode the answer that a future has brought."""

    def forget(self, future: Future[Any]) -> None:
        """Let go of a request whose client has gone."""


class Connection:
    """A connected client."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: StreamSocket,
        service: Service,
        *,
        listener: str,
        peer: str,
        request_bytes_max: int,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.listener = listener
        self.peer = peer
        self.is_closed = False
        #: What the dispatcher has learnt from the last requests, by API key.
        self.shortcuts: dict[int, Shortcut] = {}
        self.last_active = loop.time()
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._service = service
        self._request_bytes_max = request_bytes_max
        self._on_closed = on_closed
        self._view = memoryview(bytearray(BUFFER_BYTES_AT_FIRST))
        self._start = 0
        self._end = 0
        self._out: deque[Chunk] = deque()
        self._blocked = False
        self._reading = False
        self._resuming = False
        self._ended = False
        #: Replies that wait for what they tell of to be written, and whether frames are left.
        self._unsettled: tuple[list[Frame | Callable[[], Frame]], bool] | None = None
        self._awaited: Future[Any] | None = None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read_more()

    # In

    def _read_more(self) -> None:
        if not self._reading and not self.is_closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _read_no_more(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        if self._unsettled is not None:
            return
        is_free = self._awaited is None
        if is_free and self._start == self._end:
            self._start = self._end = 0
        room = len(self._view) - self._end
        if room < _ROOM_BYTES_MIN and (room == 0 or (is_free and self._start > 0)):
            if not self._make_room():
                self._read_no_more()
                return
            room = len(self._view) - self._end
        try:
            count = self._socket.recv_into(self._view[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(str(error))
            return
        if count == 0:
            self._on_end()
            return
        self._end += count
        if count == room and len(self._view) < BUFFER_BYTES:
            # It has more to say than fits the buffer of an idle connection.
            self._take_buffer(BUFFER_BYTES)
        self.last_active = self._loop.time()
        if is_free and not self._blocked and not self._resuming:
            self._process()

    def _on_end(self) -> None:
        """The client sends no more: what it has sent is served.

        Also what stands behind a request that waits, as in Kafka: it may be a LeaveGroup. The
        answer to the last request is not waited for.
        """
        self._ended = True
        self._read_no_more()
        if self._awaited is not None:
            self._close_if_done()
        elif not self._blocked and not self._resuming:
            self._go_on()

    def _close_if_done(self) -> None:
        """Close after the client's end, unless there is something left to handle or to send."""
        is_waiting = self._awaited is not None and self._end > self._start
        if not (is_waiting or self._blocked or self._resuming or self._unsettled):
            self.close()

    def _make_room(self) -> bool:
        """Make room behind what has arrived: by moving it to the front, or for a large frame."""
        held = self._end - self._start
        if self._awaited is not None:
            if self._start == 0:
                return False
            self._take_buffer(max(BUFFER_BYTES, held + _ROOM_BYTES_MIN))
        elif size := self._larger_size():
            self._take_buffer(size)
        elif self._start == 0:
            return False
        else:
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        return True

    def _larger_size(self) -> int:
        """Return the size of the buffer that a large frame calls for; 0 if this one will do.

        Several should fit, for whatever is done once for all frames of a read event is dear after
        so many bytes have gone through the processor's caches.
        """
        held, length = self._end - self._start, len(self._view)
        if held < _SIZE.size or self._blocked:
            return 0
        need = _SIZE.size + _unpack_size(self._view, self._start)[0]
        if need <= held or need <= min(length, _LARGE_FRAME_BYTES):
            return 0
        wanted = max(need, min(_LARGE_FRAMES * need, BUFFER_BYTES_KEPT))
        # A client must send as much as it makes us reserve, but for the first part.
        size = min(wanted, max(2 * length, BUFFER_BYTES_KEPT))
        # Frames of a producer differ a little: the next should fit as well.
        size = -(-size // BUFFER_BYTES) * BUFFER_BYTES
        return size if size > length else 0

    def _take_buffer(self, size: int) -> None:
        held = self._end - self._start
        view = memoryview(bytearray(size))
        view[:held] = self._view[self._start : self._end]
        self._view, self._start, self._end = view, 0, held

    def _next_frame(self) -> memoryview | None:
        start = self._start + 4
        if start > self._end:
            return None
        (size,) = _unpack_size(self._view, start - 4)
        if not 0 <= size <= self._request_bytes_max:
            raise MalformedMessage(
                f"a frame of {size} bytes; {self._request_bytes_max} are allowed"
            )
        end: int = start + size
        if end > self._end:
            return None
        self._start = end
        return self._view[start:end]

    def _process(self) -> None:
        """Handle the frames that have arrived, until one has to wait or others have a turn."""
        service = self._service
        replies: list[Frame | Callable[[], Frame]] = []
        handled = reply_bytes = 0
        has_more, has_late = True, False
        try:
            while handled < FRAMES_PER_EVENT and reply_bytes < REPLY_BYTES_PER_EVENT:
                if self._start == self._end or (frame := self._next_frame()) is None:
                    has_more = False
                    break
                handled += 1
                reply = service.handle(frame, self)
                if isinstance(reply, list):
                    if reply:
                        replies.append(reply)
                        for chunk in reply:
                            reply_bytes += (
                                chunk.size if isinstance(chunk, FileRecords) else len(chunk)
                            )
                elif isinstance(reply, Future):
                    self._awaited = reply
                    break
                else:
                    replies.append(reply)
                    has_late = True
        except (MalformedMessage, CloseConnection) as error:
            self._finish_and_close(replies, str(error))
            return
        except Exception:
            logger.exception("a request of %s failed", self.peer)
            self._finish_and_close(replies, "a request failed")
            return
        if has_late and service.may_settle_later(self):
            self._unsettled = replies, has_more
        else:
            self._conclude(replies, has_more)

    def settle(self) -> None:
        """Have written what was appended for this connection and others, and go on."""
        unsettled, self._unsettled = self._unsettled, None
        if self.is_closed:
            # What it has sent counts, though it has gone.
            self._service.settle()
        elif unsettled is not None:
            self._conclude(*unsettled)
            if self._ended:
                self._close_if_done()

    def _conclude(self, replies: list[Frame | Callable[[], Frame]], has_more: bool) -> None:
        """Answer the frames that were handled, and see to it that others are."""
        try:
            self._finish(replies)
        except Exception:
            logger.exception("a request of %s failed", self.peer)
            self._finish_and_close(replies, "a request failed")
            return
        if self._start == self._end and len(self._view) > BUFFER_BYTES_KEPT:
            self._take_buffer(BUFFER_BYTES)
        if self._awaited is not None:
            self._awaited.add_done_callback(self._on_answer)
        elif has_more:
            self._resume_soon()

    def _finish_and_close(self, replies: list[Frame | Callable[[], Frame]], reason: str) -> None:
        """Send what came before the request that failed, if that can be done, and close."""
        try:
            self._finish(replies)
        except Exception:
            logger.exception("the requests of %s before that failed too", self.peer)
        finally:
            self._fail(reason)

    def _finish(self, replies: list[Frame | Callable[[], Frame]]) -> None:
        # Should anything fail, those that are left are not told that it has not.
        answered, replies[:] = list(replies), []
        self._service.settle()
        refused = None
        frames: list[Frame] = []
        for reply in answered:
            try:
                frames.append(reply if isinstance(reply, list) else reply())
            except CloseConnection as error:
                refused = error
                break
        if frames:
            self._queue(frames)
            if self._out and not self._blocked and not self.is_closed:
                self._send()
        if refused is not None:
            self._fail(str(refused))

    def _queue(self, frames: list[Frame]) -> None:
        """Put frames behind what is to be sent, joined to pieces that are worth a system call."""
        out = self._out
        pieces: list[bytes | memoryview] = []
        size = 0
        for frame in frames:
            for chunk in frame:
                if isinstance(chunk, FileRecords):
                    if pieces:
                        out.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                        pieces, size = [], 0
                    out.append(chunk)
                    continue
                size += len(chunk)
                if size > _JOIN_BYTES_MAX and pieces:
                    out.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                    pieces, size = [], len(chunk)
                pieces.append(chunk)
        if pieces:
            out.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _on_answer(self, answered: Future[Any]) -> None:
        if self.is_closed or self._awaited is not answered:
            return
        self._awaited = None
        try:
            frame = self._service.complete(answered)
        except CloseConnection as error:
            self._fail(str(error))
            return
        except Exception:
            logger.exception("a request of %s failed", self.peer)
            self.close()
            return
        self.last_active = self._loop.time()
        self._queue([frame])
        if self._out:
            self._send()
        self._go_on()

    def _resume_soon(self) -> None:
        if not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        self._go_on()

    def _go_on(self) -> None:
        """Handle what waited in the buffer, and read on."""
        if self.is_closed or self._blocked or self._awaited or self._unsettled:
            return
        if self._end > self._start:
            self._process()
        if not self._ended:
            self._read_more()
        else:
            self._close_if_done()

    # Out

    def _send(self) -> None:
        """Send as much as the socket takes; the rest when it takes more."""
        out = self._out
        is_full = False
        try:
            while out and not is_full:
                chunk = out[0]
                if isinstance(chunk, FileRecords):
                    size = chunk.size
                    asked = size if size < _SENDFILE_BYTES_MAX else _SENDFILE_BYTES_MAX
                    sent = chunk.file.send_to(self._socket, chunk.position, asked)
                    if sent < size:
                        if sent == 0:
                            raise CloseConnection("a segment ended while it was being sent")
                        chunk.advance(sent)
                        # It takes no more now: asking again would only be told so.
                        is_full = sent < asked
                        continue
                else:
                    # Pieces are joined before: what follows can only be in a file, or long.
                    sent = self._socket.send(chunk, _MSG_MORE if len(out) > 1 else 0)
                    if sent < len(chunk):
                        out[0], is_full = memoryview(chunk)[sent:], True
                        continue
                out.popleft()
        except (BlockingIOError, InterruptedError):
            is_full = True
        except (OSError, CloseConnection) as error:
            self._fail(str(error))
            return
        if is_full != self._blocked:
            self._blocked = is_full
            if is_full:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self.last_active = self._loop.time()
        self._send()
        self._go_on()

    # End

    def _fail(self, reason: str) -> None:
        logger.debug("closing the connection of %s: %s", self.peer, reason)
        self.close()

    def close(self) -> None:
        """Close at once; an answer that is still being waited for is dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._read_no_more()
        if self._blocked:
            self._loop.remove_writer(self._fd)
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            self._service.forget(awaited)
        self._out.clear()
        self._socket.close()
        self._on_closed(self)
