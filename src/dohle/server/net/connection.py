"""One client connection: frames in, replies out, in order, with few system calls and no copies.

- One ``recv_into`` per read event into a reused buffer (``ReceiveBuffer``). Every complete frame in
  it is handled before anything is sent, so that all appends to one partition become one write and
  all replies one ``send``.
- One request at a time, as in Kafka: while an answer is awaited (a long poll), or the client does
  not read what it was sent, the frames behind it stay in the buffer. What arrives meanwhile is read
  until the buffer is full; then the client has to wait.
- There is one exception. A request that is carried out and waits only for its answer (a produce
  request whose records are not committed yet) does not hold up requests that may join it (other
  produce requests). Their replies wait in a queue (``ReplyQueue``), and are sent in order as they
  become ready. A request that may not join is handled when all before it are answered.
- A handler may keep views of its frame until it has answered, or until its appends are written: the
  buffer is in use until then.
- If many clients send at the same time, their appends are written together too: see
  ``GroupCommit``. Until then a connection does not read into its buffer, which holds the records.
- At most ``FRAMES_PER_EVENT`` frames are handled, for about ``SLICE_S``, and replies of about
  ``REPLY_BYTES_PER_EVENT`` gathered, before they are sent and other connections are served: see
  ``Turns``.
- Record batches go from file to socket by ``sendfile``; what precedes them is sent with MSG_MORE.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop, CancelledError, Future
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from dohle.core.host import StreamSocket
from dohle.protocol.errors import MalformedMessage
from dohle.server.net.outcome import Chunk, CloseConnection, Frame, LateFrame
from dohle.server.net.receive_buffer import ReceiveBuffer
from dohle.server.net.reply_queue import ReplyQueue, frame_size, memory_size
from dohle.server.net.request_memory import RequestMemory
from dohle.server.net.sending import joined, send_chunks
from dohle.server.net.timing import ConnectionTimes
from dohle.server.net.turns import SLICE_S, Turns, Usage

if TYPE_CHECKING:
    from dohle.server.net.shortcut import Shortcut

logger = logging.getLogger("dohle.server")

_REQUEST_FAILED = "a request from %s failed: its connection is closed. Please report this."

FRAMES_PER_EVENT = 256
#: Of replies that are sent from files, and of those that are in memory: a client that does not read
#: them keeps no more of it.
REPLY_BYTES_PER_EVENT = 8 * 1024 * 1024
REPLY_MEMORY_PER_EVENT = 256 * 1024


class Service(Protocol):
    """What a connection needs from the broker."""

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        """Handle one request.

        A callable that is returned must be called after ``settle``. None means that the request
        cannot be handled until those before it are answered: it is handed over again then.
        """

    def settle(self) -> None:
        """Write what the requests handled so far have appended."""

    def may_settle_later(self, connection: Connection) -> bool:
        """Tell whether a connection must wait for others; its ``settle`` is called then."""

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode the answer that a future has returned."""

    def forget(self, future: Future[Any]) -> None:
        """Give up waiting for the answer to a request whose client has gone."""


class State(Enum):
    """What happens to the frames in the buffer."""

    #: They are handled as they arrive.
    READY = "ready"
    #: Some are left, and wait until other connections are served.
    RESUMING = "resuming"
    #: The appends of those that were handled are not written yet: the frames are in use.
    UNSETTLED = "unsettled"
    #: The answer to the last one is awaited: that frame is in use.
    AWAITING = "awaiting"
    #: The next one is handled when all before it are answered.
    HELD = "held"
    #: None is handled until the queue of replies is shorter.
    FULL = "full"
    #: None is handled any more: the connection is closed when the last reply is sent.
    ENDING = "ending"
    CLOSED = "closed"


# Looking up a member of an enum is slow.
_READY, _RESUMING, _UNSETTLED, _AWAITING = (
    State.READY,
    State.RESUMING,
    State.UNSETTLED,
    State.AWAITING,
)
_HELD, _FULL, _ENDING, _CLOSED = State.HELD, State.FULL, State.ENDING, State.CLOSED


class Connection:
    """A connected client."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: StreamSocket,
        service: Service,
        turns: Turns,
        memory: RequestMemory | None = None,
        *,
        listener: str,
        peer: str,
        request_bytes_max: int,
        on_closed: Callable[[Connection], None],
        now: Callable[[], float] | None = None,
    ) -> None:
        """Serve a socket; ``now`` is the loop's time, as finely as the machine knows it."""
        self.listener = listener
        self.peer = peer
        #: The shortcuts that the dispatcher has learnt from the last requests, by API key.
        self.shortcuts: dict[int, Shortcut] = {}
        #: What was received, and what was sent or is about to be.
        self.bytes_in = self.bytes_out = 0
        self._now = now or loop.time
        self.times = ConnectionTimes(self._now)
        self.last_active = self._now()
        self.replies = ReplyQueue(self._send_soon)
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._service = service
        self._turns = turns
        self._usage = Usage(self.last_active)
        self._memory = memory
        #: What was taken out of the memory for large requests.
        self._reserved = 0
        self._on_closed = on_closed
        self._buffer = ReceiveBuffer(request_bytes_max)
        self._state = _READY
        #: The state that comes after UNSETTLED.
        self._following = _READY
        self._awaited: Future[Any] | None = None
        self._out: deque[Chunk] = deque()
        #: Whether the socket's send buffer is full, and the loop watches for room in it.
        self._is_blocked = False
        #: Whether the loop watches for something to read.
        self._is_reading = False
        #: Whether the client has closed its side: it sends no more.
        self._has_ended = False
        self._is_send_due = False
        #: Whether it waits for its turn to send on.
        self._is_send_in_queue = False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read_more()

    @property
    def is_closed(self) -> bool:
        """Tell whether the connection is closed."""
        return self._state is _CLOSED

    # In

    def _read_more(self) -> None:
        if not self._is_reading and self._state is not _CLOSED:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _read_no_more(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        state = self._state
        if state is _UNSETTLED:
            return
        if self._turns.is_full:
            self._read_no_more()
            self._turns.call_when_not_full(self._read_more)
            return
        if self._memory is not None and not self._may_receive(self._memory):
            return
        buffer = self._buffer
        room = buffer.room(in_use=state is _AWAITING, may_grow=not self._is_blocked)
        if room is None:
            self._read_no_more()
            return
        try:
            count = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(str(error))
            return
        if count == 0:
            self._on_end()
            return
        buffer.received(count)
        self.bytes_in += count
        self.last_active = self._now()
        if state is _READY and not self._is_blocked:
            self._process_in_turn()

    def _may_receive(self, memory: RequestMemory) -> bool:
        """Reserve memory for a large request before it is received, or read no more."""
        size = 0 if self._reserved else self._buffer.large_frame_size
        if size:
            if not memory.take(size, self._read_more):
                self._read_no_more()
                return False
            self._reserved = size
        return True

    def _release(self) -> None:
        """Give back the memory of a large request that was handled."""
        reserved = self._reserved
        if self._memory is not None and self._buffer.large_frame_size != reserved:
            self._reserved = 0
            self._memory.give(reserved)

    def _on_end(self) -> None:
        """The client sends no more: serve what it has sent, then close.

        As in Kafka that includes requests behind one that waits: one may be a LeaveGroup. But if
        only the last request is still waiting to be carried out, its answer is not awaited.
        """
        self._has_ended = True
        self._read_no_more()
        if self._state is _READY:
            self._go_on()
        else:
            self._close_if_done()

    def _close_if_done(self) -> None:
        """Close if the client sends no more and nothing is left to handle or to send."""
        if self._is_blocked or self.replies.is_waiting:
            return
        if self._state is _READY or (self._state is _AWAITING and not self._buffer):
            self.close()

    def _process_in_turn(self) -> None:
        """Handle the frames that have arrived, now or when others have had their turn."""
        if self._turns.is_crowded:
            self._state = _RESUMING
            self._wait_for_turn()
        else:
            self._process()

    def _wait_for_turn(self) -> None:
        self._turns.wait(self._usage.used_s, self._resume)

    def _process(self) -> None:
        """Handle the frames that have arrived, until one has to wait or others must be served."""
        service, replies = self._service, self.replies
        next_frame, handle, time = self._buffer.next_frame, service.handle, self._turns.time
        handled = reply_bytes = reply_memory = 0
        following, has_late = _RESUMING, False
        if replies.is_full:
            self._state = _FULL
            return
        begun = now = time()
        end = begun + SLICE_S
        counts: dict[int, int] | None = None
        times, buffered = self.times, len(self._buffer)
        if times.untimed_events:
            times.untimed_events -= 1
        else:
            counts = times.begin_event()
        try:
            while (
                now < end
                and handled < FRAMES_PER_EVENT
                and reply_bytes < REPLY_BYTES_PER_EVENT
                and reply_memory < REPLY_MEMORY_PER_EVENT
            ):
                if (frame := next_frame()) is None:
                    following = _READY
                    break
                handled += 1
                reply = handle(frame, self)
                now = time()
                if isinstance(reply, list):
                    if reply:
                        replies.add(reply)
                        if len(reply) == 1:
                            reply_memory += len(reply[0])
                        else:
                            reply_bytes += frame_size(reply)
                            reply_memory += memory_size(reply)
                elif reply is None:
                    self._buffer.put_back(frame)
                    following = _HELD
                    break
                elif isinstance(reply, Future):
                    self._awaited = reply
                    following = _AWAITING
                    break
                else:
                    replies.add_late(reply)
                    has_late = True
        except (MalformedMessage, CloseConnection) as error:
            replies.end(str(error))
            has_late, following = False, _ENDING
        except Exception:
            logger.exception(_REQUEST_FAILED, self.peer)
            replies.end("a request failed")
            has_late, following = False, _ENDING
        if counts and handled:
            times.end_event(counts, self.last_active, handled, buffered - len(self._buffer))
        if has_late and service.may_settle_later(self):
            self._state, self._following = _UNSETTLED, following
        else:
            self._conclude(following)
            now = time()
        self._note_use(begun, now)

    def _note_use(self, begun: float, now: float) -> None:
        """Take note that this connection has had the loop."""
        self._usage.add(begun, now)
        self._turns.spend(now - begun)

    def catch_up(self) -> bool:
        """Make the replies that can be made before the next request is handled.

        The service calls this after settling, for a request that may not overtake others. Returns
        False if that request has to wait.
        """
        self.replies.make()
        return not (self.replies.is_waiting or self.replies.is_ended)

    def settle(self) -> None:
        """Write the appends of this connection and others, and go on."""
        if self._state is _CLOSED:
            # The client has gone, but what it has sent is still written.
            self._service.settle()
        elif self._state is _UNSETTLED:
            self._conclude(self._following)
            if self._has_ended:
                self._close_if_done()

    def _conclude(self, following: State) -> None:
        """Answer the frames that were handled, and arrange for the next ones."""
        self._state = following
        try:
            self._service.settle()
            self.replies.make()
        except Exception:
            logger.exception(_REQUEST_FAILED, self.peer)
            self.replies.fail("a request failed")
        self.times.answered()
        if self.replies.is_ended:
            self._handle_no_more()
        elif following is _AWAITING and self._awaited is not None:
            self._awaited.add_done_callback(self._on_answer)
        elif following is _RESUMING:
            self._wait_for_turn()
        self._send_replies()
        self._buffer.shrink()
        if self._reserved and following is not _AWAITING:
            self._release()

    def _handle_no_more(self) -> None:
        """Handle no further frame: the connection is closed when the replies are sent."""
        if self._state is not _CLOSED:
            self._state = _ENDING
        # Reading would also overwrite the frame of a request that is carried out to its end.
        self._read_no_more()
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            self._service.forget(awaited)

    def _on_answer(self, answered: Future[Any]) -> None:
        if self._awaited is not answered:
            return
        self._awaited = None
        self.last_active = self._now()
        following = _READY
        try:
            self.replies.add(self._service.complete(answered))
            self.replies.make()
        except CloseConnection as error:
            self.replies.end(str(error))
            following = _ENDING
        except (Exception, CancelledError):
            logger.exception(_REQUEST_FAILED, self.peer)
            self.replies.end("a request failed")
            following = _ENDING
        self._state = following
        if self._reserved:
            self._release()
        self._send_replies()
        self._go_on()

    def _resume(self) -> None:
        if self._state is _RESUMING:
            self._state = _READY
            self._go_on(in_turn=True)

    def _go_on(self, *, in_turn: bool = False) -> None:
        """Handle what waits in the buffer, and read on."""
        if self._state is not _READY or self._is_blocked:
            return
        if self._buffer:
            self._process() if in_turn else self._process_in_turn()
        if not self._has_ended:
            self._read_more()
        else:
            self._close_if_done()

    # Out

    def _send_soon(self) -> None:
        """Send ready replies at the end of this turn, when more may have become ready."""
        if not self._is_send_due:
            self._is_send_due = True
            self._loop.call_soon(self._send_ready)

    def _send_ready(self) -> None:
        self._is_send_due = False
        if self._state is _CLOSED or self._state is _UNSETTLED:
            return
        self.last_active = self._now()
        self._send_replies()
        if self._has_ended:
            self._close_if_done()

    def _send_replies(self) -> None:
        """Send the replies that are ready, and go on with frames that had to wait for that."""
        replies = self.replies
        if frames := replies.take():
            for piece in joined(frames):
                self.bytes_out += len(piece)
                self._out.append(piece)
            if self._out and not self._is_blocked:
                self._send()
        if not self._out:
            self.times.sent()
        if self._state is _CLOSED:
            return
        if replies.is_ended:
            self._handle_no_more()
            self._close_if_ended()
        elif (self._state is _HELD and not replies.is_waiting) or (
            self._state is _FULL and replies.has_room
        ):
            self._state = _RESUMING
            self._wait_for_turn()

    def _close_if_ended(self) -> None:
        """Close a connection that is ending, once the last reply is sent."""
        if not self._is_blocked and (reason := self.replies.end_reason) is not None:
            self._fail(reason)

    def _send(self) -> None:
        """Send as much as the socket takes; the rest follows when it has room."""
        try:
            is_full = send_chunks(self._socket, self._out)
        except (OSError, CloseConnection) as error:
            self._fail(str(error))
            return
        if is_full != self._is_blocked:
            self._is_blocked = is_full
            if is_full:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        if self._turns.is_crowded:
            if not self._is_send_in_queue:
                self._is_send_in_queue = True
                self._turns.wait(self._usage.used_s, self._send_in_turn)
            return
        self._send_on()

    def _send_in_turn(self) -> None:
        self._is_send_in_queue = False
        if self._is_blocked and self._state is not _CLOSED:
            self._send_on()

    def _send_on(self) -> None:
        """Send more of what the socket did not take before, and go on."""
        self.last_active = self._now()
        begun = self._loop.time()
        self._send()
        self._note_use(begun, self._loop.time())
        if not self._out:
            self.times.sent()
        if self._state is _ENDING:
            self._close_if_ended()
        self._go_on()
        if self._has_ended:
            self._close_if_done()

    # End

    def _fail(self, reason: str) -> None:
        logger.debug("closing the connection of %s: %s", self.peer, reason)
        self.close()

    def close(self) -> None:
        """Close at once; an answer that is still awaited is dropped."""
        if self._state is _CLOSED:
            return
        self._state = _CLOSED
        if self._is_blocked:
            self._loop.remove_writer(self._fd)
        self._handle_no_more()
        self.replies.drop()
        self._out.clear()
        self._socket.close()
        if self._memory is not None:
            self._memory.give(self._reserved)
            self._reserved = 0
        self._on_closed(self)
