"""The replies of one connection, in the order of its requests. Pure: it knows no socket.

A reply is one of:

- a frame;
- late: it is made when the appends of the read event are written;
- pending or gated: it then still has to wait for something else, such as a commit, alone (pending)
  or together with others of the same write (gated).

Replies that are ready at the front can be sent; a ready one behind one that waits stays here. While
replies wait, a connection may go on with further requests, but not for ever: the queue says when it
is full. The replies of the current read event are still accepted then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from dohle.server.net.outcome import (
    CloseConnection,
    FileRecords,
    Frame,
    Gate,
    LateFrame,
    PendingFrame,
)

#: How many replies may be in the queue because the first of them waits.
REPLIES_MAX = 2_048
#: And how many bytes the ready ones among them may have.
REPLY_BYTES_MAX = 8 * 1024 * 1024


class ReplyQueue:
    """The replies of a connection that are not sent yet."""

    __slots__ = (
        "_behind",
        "_bytes",
        "_end_reason",
        "_on_ready",
        "_ready",
        "_unmade",
        "is_ended",
        "is_open",
    )

    def __init__(self, on_ready: Callable[[], None]) -> None:
        """Make a queue that calls ``on_ready`` when the first waiting reply becomes ready."""
        self._on_ready = on_ready
        #: The replies to the requests of this read event.
        self._unmade: list[Frame | LateFrame] = []
        self._ready: list[Frame] = []
        #: Earlier replies: the first of these waits, or all are ready but not taken out yet.
        self._behind: deque[Frame | PendingFrame | tuple[Gate, LateFrame]] = deque()
        self._bytes = 0
        self._end_reason = ""
        #: Whether no further replies follow those in the queue.
        self.is_ended = False
        #: Whether some reply is not known yet: late or pending.
        self.is_open = False

    # In

    def add(self, frame: Frame) -> None:
        """Reply with a frame."""
        self._unmade.append(frame)

    def add_late(self, late: LateFrame) -> None:
        """Reply with a frame that is made when everything is written."""
        self._unmade.append(late)
        self.is_open = True

    def make(self) -> None:
        """Make the late replies, now that everything is written.

        If one fails, none behind it is made: those clients are not told that all went well.
        """
        unmade, self._unmade = self._unmade, []
        ready, behind = self._ready, self._behind
        if not self.is_open:
            # All are frames, and none waits.
            ready += cast("list[Frame]", unmade)
            return
        gate: Gate | None = None
        try:
            for reply in unmade:
                made = reply if isinstance(reply, list) else reply()
                if isinstance(made, list):
                    if behind:
                        self._put_behind(made)
                    else:
                        ready.append(made)
                elif isinstance(made, Gate) and not isinstance(reply, list):
                    behind.append((made, reply))
                    if made is not gate:
                        # Most replies of a read event wait for the same gate.
                        gate = made
                        gate.on_open.append(self._opened)
                elif isinstance(made, PendingFrame):
                    made.on_filled = self._filled
                    behind.append(made)
                    if made.frame is not None or made.failure is not None:
                        self._filled(made)
        except CloseConnection as error:
            self.end(str(error))
        self.is_open = bool(behind)

    def _put_behind(self, frame: Frame) -> None:
        self._behind.append(frame)
        self._bytes += frame_size(frame)

    def _filled(self, pending: PendingFrame) -> None:
        if pending.frame is not None:
            self._bytes += frame_size(pending.frame)
        if self._behind and self._behind[0] is pending:
            self._on_ready()

    def _opened(self) -> None:
        if self._behind:
            self._on_ready()

    def end(self, reason: str) -> None:
        """Reply no more: once what was added so far is sent, the connection is closed."""
        if not self.is_ended:
            self.is_ended, self._end_reason = True, reason

    def fail(self, reason: str) -> None:
        """End, and drop the replies that are not made yet."""
        self._unmade.clear()
        self.is_open = bool(self._behind)
        self.end(reason)

    # Out

    def take(self) -> list[Frame]:
        """Take out what can be sent now."""
        ready, self._ready = self._ready, []
        behind = self._behind
        if not behind:
            return ready
        while behind:
            reply = behind[0]
            if isinstance(reply, tuple):
                gate, late = reply
                if gate.code is None:
                    break
                behind.popleft()
                ready.append(cast("Frame", late(gate.code)))
                continue
            if isinstance(reply, PendingFrame):
                if reply.failure is not None:
                    self.drop()
                    self.end(reply.failure)
                    break
                if reply.frame is None:
                    break
                reply = reply.frame
            behind.popleft()
            self._bytes -= frame_size(reply)
            ready.append(reply)
        if not behind and not self._unmade:
            self.is_open = False
        return ready

    @property
    def waiting_count(self) -> int:
        """How many replies wait, or are behind one that does."""
        return len(self._behind)

    @property
    def is_waiting(self) -> bool:
        """Tell whether a reply waits; others may be ready behind it."""
        return bool(self._behind)

    @property
    def end_reason(self) -> str | None:
        """Why to close the connection, once everything was taken out; None if not to close it."""
        if self.is_ended and not (self._behind or self._unmade or self._ready):
            return self._end_reason
        return None

    @property
    def is_full(self) -> bool:
        """Tell whether no more requests should be handled until some reply is taken out."""
        return len(self._behind) >= REPLIES_MAX or self._bytes >= REPLY_BYTES_MAX

    @property
    def has_room(self) -> bool:
        """Tell whether a queue that was full has enough room again to make going on worthwhile."""
        return len(self._behind) <= REPLIES_MAX // 2 and self._bytes <= REPLY_BYTES_MAX // 2

    def drop(self) -> None:
        """Forget everything: the client has gone."""
        for reply in self._behind:
            if isinstance(reply, PendingFrame):
                reply.on_filled = None
        self._behind.clear()
        self._unmade.clear()
        self._ready.clear()
        self._bytes = 0
        self.is_open = False
        # The callback refers to this queue: neither would be freed before the next full collection.
        self._on_ready = _tell_nobody


def _tell_nobody() -> None:
    """Nobody waits for a reply any more."""


def frame_size(frame: Frame) -> int:
    """Return how many bytes a frame has."""
    return len(frame[0]) if len(frame) == 1 else sum(map(len, frame))


def memory_size(frame: Frame) -> int:
    """Return how many bytes of a frame are in memory."""
    return sum(len(chunk) for chunk in frame if not isinstance(chunk, FileRecords))
