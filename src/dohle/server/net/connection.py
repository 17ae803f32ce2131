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
from asyncio import AbstractEventLoop, CancelledError, Future, TimerHandle
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dohle.core.host import StreamSocket
from dohle.core.principal import ANONYMOUS
from dohle.protocol.errors import MalformedMessage
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.receive_buffer import ReceiveBuffer
from dohle.server.net.reply_queue import ReplyQueue, frame_size, memory_size
from dohle.server.net.request_memory import RequestMemory
from dohle.server.net.sending import Sender
from dohle.server.net.service import Service
from dohle.server.net.timing import ConnectionTimes
from dohle.server.net.turns import AWAITED_USED_S, SLICE_S, Turns, Usage

if TYPE_CHECKING:
    from dohle.security.login import SaslLogin
    from dohle.server.net.shortcut import Shortcut

logger = logging.getLogger("dohle.server")

_REQUEST_FAILED = "a request from %s failed: its connection is closed. Please report this."

FRAMES_PER_EVENT = 256
#: Of replies that are sent from files, and of those that are in memory: a client that does not read
#: them keeps no more of it.
REPLY_BYTES_PER_EVENT = 8 * 1024 * 1024
REPLY_MEMORY_PER_EVENT = 256 * 1024


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
    #: None is handled until the client has waited, as its quota demands.
    MUTED = "muted"
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
_HELD, _FULL, _MUTED = State.HELD, State.FULL, State.MUTED
_ENDING, _CLOSED = State.ENDING, State.CLOSED


class Connection:
    """A connected client."""

    _SENDER: ClassVar[type[Sender]] = Sender

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
        self.principal = ANONYMOUS
        #: How the client says who it is, on a listener with SASL.
        self.login: SaslLogin | None = None
        #: The shortcuts that the dispatcher has learnt from the last requests, by API key.
        self.shortcuts: dict[int, Shortcut] = {}
        #: How many of the next requests are not learnt from, by API key.
        self.unlearnt: dict[int, int] = {}
        #: The rules about quotas that do not concern this client.
        self.unmetered_by: object | None = None
        #: Whether another broker copies replicas by it: quotas do not concern what it fetches.
        self.is_follower = False
        #: Called with the time that the loop has worked for it, if that is limited.
        self.on_used: Callable[[float], None] | None = None
        #: Ends the time in which it has to wait.
        self._muting: TimerHandle | None = None
        #: What was received.
        self.bytes_in = 0
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
        self._sender = self._SENDER(loop, sock, turns, self._usage, self._sent_more, self._fail)
        #: Whether the loop watches for something to read.
        self._is_reading = False
        #: Whether the client has closed its side: it sends no more.
        self._has_ended = False
        self._is_send_due = False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read_more()

    @property
    def bytes_out(self) -> int:
        """What was sent, or is about to be."""
        return self._sender.bytes_out

    @property
    def is_closed(self) -> bool:
        """Tell whether the connection is closed."""
        return self._state is _CLOSED

    def serve_by(self, service: Service) -> None:
        """Hand the next requests to this service."""
        self._service = service

    @property
    def is_muted(self) -> bool:
        """Tell whether the client has to wait before it is served again."""
        return self._muting is not None

    def mute(self, seconds: float) -> None:
        """Handle no further frame for some time (KIP-219). What is answered is sent."""
        if self._state is _CLOSED:
            return
        until = self._loop.time() + seconds
        if self._muting is not None:
            if self._muting.when() >= until:
                return
            self._muting.cancel()
        self._muting = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._muting = None
        self.last_active = self._now()
        if self._state is _MUTED:
            self._state = _READY
            self._go_on()

    def limit_frames(self, bytes_max: int) -> None:
        """Refuse requests that are larger, from now on."""
        self._buffer.frame_bytes_max = bytes_max

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
        state, turns = self._state, self._turns
        if state is _UNSETTLED:
            return
        if turns.is_full:
            self._read_no_more()
            turns.call_when_not_full(self._read_more)
            return
        buffer = self._buffer
        room = buffer.empty_room() if state is _READY else None
        if room is None and (room := self._room_behind()) is None:
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
            self._read_no_more()
            if turns.is_crowded:
                turns.wait(AWAITED_USED_S, self._on_end)
            else:
                self._on_end()
            return
        buffer.received(count)
        self.bytes_in += count
        self.last_active = self._now()
        if state is _READY and not self._sender.is_blocked:
            if turns.is_crowded:
                self._process_in_turn()
            else:
                self._process()

    def _room_behind(self) -> memoryview | None:
        """Return where to put what follows what has arrived; None to read no more for now.

        Memory for a large request is reserved before it is received.
        """
        if self._memory is not None and not self._reserved:
            size = self._buffer.large_frame_size
            if size:
                if not self._memory.take(size, self._read_more):
                    return None
                self._reserved = size
        is_in_use = self._state is _AWAITING
        return self._buffer.room(in_use=is_in_use, may_grow=not self._sender.is_blocked)

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
        Very many clients may go at once: that is shared out over turns of the loop as well.
        """
        begun = self._turns.time()
        self._has_ended = True
        if self._state is _READY:
            self._go_on()
        elif self._state is not _CLOSED:
            self._close_if_done()
        self._turns.spend(self._turns.time() - begun)

    def _close_if_done(self) -> None:
        """Close if the client sends no more and nothing is left to handle or to send."""
        if self._sender.is_blocked or self.replies.is_waiting:
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
        used_s = self._usage.of_late(self._turns.time())
        if self._service.is_patient(self._buffer.api_key):
            used_s += AWAITED_USED_S
        self._turns.wait(used_s, self._resume)

    def _process(self) -> None:
        """Handle the frames that have arrived, until one has to wait or others must be served."""
        service, replies, buffer = self._service, self.replies, self._buffer
        if replies.is_open and replies.is_full:
            self._state = _FULL
            return
        if self._muting is not None:
            self._state = _MUTED
            return
        next_frame, handle, time = buffer.next_frame, service.handle, self._turns.time
        handled = reply_bytes = reply_memory = 0
        following, has_late = _READY, False
        begun = time()
        counts: dict[int, int] | None = None
        times, buffered = self.times, 0
        if times.untimed_events:
            times.untimed_events -= 1
        else:
            counts, buffered = times.begin_event(), len(buffer)
        try:
            while (frame := next_frame()) is not None:
                handled += 1
                reply = handle(frame, self)
                if isinstance(reply, list):
                    if reply:
                        replies.add(reply)
                        if len(reply) == 1:
                            reply_memory += len(reply[0])
                        else:
                            reply_bytes += frame_size(reply)
                            reply_memory += memory_size(reply)
                elif reply is None:
                    buffer.put_back(frame)
                    following = _HELD
                    break
                elif isinstance(reply, Future):
                    self._awaited = reply
                    following = _AWAITING
                    break
                else:
                    replies.add_late(reply)
                    has_late = True
                if buffer.start == buffer.end:
                    # Most events bring one frame: it takes no look at the limits.
                    break
                if (
                    time() - begun >= SLICE_S
                    or handled >= FRAMES_PER_EVENT
                    or reply_bytes >= REPLY_BYTES_PER_EVENT
                    or reply_memory >= REPLY_MEMORY_PER_EVENT
                ):
                    following = _RESUMING
                    break
        except (MalformedMessage, CloseConnection) as error:
            replies.end(str(error))
            has_late, following = False, _ENDING
        except Exception:
            logger.exception(_REQUEST_FAILED, self.peer)
            replies.end("a request failed")
            has_late, following = False, _ENDING
        if counts and handled and following is not _AWAITING:
            # (What is waited for is timed by itself.)
            times.end_event(counts, self.last_active, handled, buffered - len(buffer))
        if has_late and service.may_settle_later(self):
            self._state, self._following = _UNSETTLED, following
        else:
            self._conclude(following)
        if (now := time()) > begun:
            self._note_use(begun, now)

    def _note_use(self, begun: float, now: float) -> None:
        """Take note that this connection has had the loop."""
        self._usage.add(self._turns.used_s(begun, now), now)
        self._turns.spend(now - begun)
        if self.on_used is not None:
            self.on_used(now - begun)

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
        if self.times.is_due:
            self.times.answered()
        if self.replies.is_ended:
            self._handle_no_more()
        elif following is _AWAITING and self._awaited is not None:
            self._awaited.add_done_callback(self._on_answer)
        elif following is _RESUMING:
            self._wait_for_turn()
        self._send_replies()
        if self._buffer.is_large:
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
        """Send an answer that was awaited; of very many that come at once, in turn."""
        turns = self._turns
        if turns.is_crowded:
            used_s = self._usage.of_late(turns.time()) + AWAITED_USED_S
            turns.wait(used_s, partial(self._send_answer, answered))
        else:
            self._send_answer(answered)

    def _send_answer(self, answered: Future[Any]) -> None:
        if self._awaited is not answered:
            return
        begun = self._turns.time()
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
        if (now := self._turns.time()) > begun:
            self._note_use(begun, now)
        self._go_on()

    def _resume(self) -> None:
        if self._state is _RESUMING:
            self._state = _READY
            self._go_on(in_turn=True)

    def _go_on(self, *, in_turn: bool = False) -> None:
        """Handle what waits in the buffer, and read on."""
        if self._state is not _READY or self._sender.is_blocked:
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
            self._sender.send(frames)
        if self.times.is_due and not self._sender:
            self.times.sent()
        state = self._state
        if state is _CLOSED:
            return
        if replies.is_ended:
            self._handle_no_more()
            self._close_if_ended()
        elif (state is _HELD and not replies.is_waiting) or (state is _FULL and replies.has_room):
            self._state = _RESUMING
            self._wait_for_turn()

    def _close_if_ended(self) -> None:
        """Close a connection that is ending, once the last reply is sent."""
        if not self._sender.is_blocked and (reason := self.replies.end_reason) is not None:
            self._fail(reason)

    def _sent_more(self, begun: float, now: float) -> None:
        """Go on, when more was sent of what the socket did not take before."""
        self.last_active = self._now()
        self._note_use(begun, now)
        if not self._sender:
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
        if self._muting is not None:
            self._muting.cancel()
        self._sender.close()
        self._handle_no_more()
        self.replies.drop()
        self._buffer.drop()
        self._socket.close()
        if self._memory is not None:
            self._memory.give(self._reserved)
            self._reserved = 0
        self._on_closed(self)
