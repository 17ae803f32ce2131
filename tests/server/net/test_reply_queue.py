"""Replies leave a queue in the order of their requests, as far as they are known, and no further.

The model is a list of all replies ever added: what was taken out is always its longest prefix of
known ones.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dohle.core.errors import ErrorCode
from dohle.server.net.outcome import CloseConnection, Frame, Gate, LateFrame, PendingFrame
from dohle.server.net.reply_queue import (
    REPLIES_MAX,
    REPLY_BYTES_MAX,
    ReplyQueue,
    frame_size,
)


def nothing() -> None:
    """Nobody wants to know."""


def later(reply: Frame | PendingFrame) -> LateFrame:
    return lambda: reply


def closing(reason: str) -> LateFrame:
    def late() -> Frame:
        raise CloseConnection(reason)

    return late


class QueueModel(RuleBasedStateMachine):
    """A queue beside a list of everything that was added to it."""

    def __init__(self) -> None:
        super().__init__()
        #: How often since the last take.
        self.told = 0
        self.queue = ReplyQueue(self.on_ready)
        #: The text of each reply, and whether it is known what to reply.
        self.texts: list[bytes] = []
        self.known: list[bool] = []
        self.pending: dict[int, PendingFrame] = {}
        self.unmade: list[int] = []
        self.taken: list[bytes] = []

    def on_ready(self) -> None:
        self.told += 1

    def _next(self) -> tuple[int, Frame]:
        number = len(self.texts)
        self.texts.append(b"%d" % number)
        self.known.append(False)
        self.unmade.append(number)
        return number, [self.texts[number]]

    @rule()
    def add(self) -> None:
        self.queue.add(self._next()[1])

    @rule()
    def add_late(self) -> None:
        self.queue.add_late(later(self._next()[1]))

    @rule()
    def add_pending(self) -> None:
        number, _ = self._next()
        self.pending[number] = PendingFrame()
        self.queue.add_late(later(self.pending[number]))

    @rule()
    def make(self) -> None:
        self.queue.make()
        for number in self.unmade:
            pending = self.pending.get(number)
            self.known[number] = pending is None or pending.frame is not None
            if self.known[number]:
                self.pending.pop(number, None)
        self.unmade.clear()

    @precondition(lambda self: any(one.frame is None for one in self.pending.values()))
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        waiting = sorted(number for number, one in self.pending.items() if one.frame is None)
        number = data.draw(st.sampled_from(waiting))
        is_first = self.known.index(False) == number
        self.pending[number].fill([self.texts[number]])
        if number not in self.unmade:
            self.known[number] = True
            del self.pending[number]
            assert self.told or not is_first

    @rule()
    def take(self) -> None:
        self.told = 0
        self.taken += [b"".join(frame) for frame in self.queue.take()]  # type: ignore[arg-type]
        known = self.known.index(False) if False in self.known else len(self.known)
        assert self.taken == self.texts[:known]
        assert self.queue.is_waiting == (known < len(self.texts) - len(self.unmade))

    @invariant()
    def open_while_something_is_not_known(self) -> None:
        if self.pending:
            assert self.queue.is_open


QueueModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestQueueModel = QueueModel.TestCase


def test_those_who_wait_for_room_are_told_once_half_of_it_is_free() -> None:
    queue = ReplyQueue(nothing)
    pending = [PendingFrame() for _ in range(REPLIES_MAX)]
    for number, one in enumerate(pending):
        assert not queue.is_full
        queue.add_late(later(one))
        queue.make()
        assert queue.is_full == (number == REPLIES_MAX - 1)
    for one in pending[: REPLIES_MAX // 2 - 1]:
        one.fill([b"x"])
    assert len(queue.take()) == REPLIES_MAX // 2 - 1
    assert not queue.is_full
    assert not queue.has_room
    pending[REPLIES_MAX // 2 - 1].fill([b"x"])
    queue.take()
    assert queue.has_room


def test_bytes_behind_a_reply_that_waits_fill_the_queue_too() -> None:
    queue, pending = ReplyQueue(nothing), PendingFrame()
    large: Frame = [bytes(REPLY_BYTES_MAX)]
    queue.add(large)
    queue.make()
    assert (queue.is_full, queue.take()) == (False, [large])
    queue.add_late(later(pending))
    queue.add(large)
    queue.make()
    assert (queue.is_full, queue.has_room) == (True, False)
    pending.fill([b"x"])
    assert queue.take() == [[b"x"], large]
    assert (queue.is_full, queue.has_room) == (False, True)


def test_what_was_added_before_the_end_is_taken_before_it() -> None:
    queue, pending = ReplyQueue(nothing), PendingFrame()
    queue.add([b"1"])
    queue.add_late(later(pending))
    queue.end("no more")
    queue.make()
    assert queue.take() == [[b"1"]]
    assert queue.end_reason is None
    pending.fill([b"2"])
    assert queue.take() == [[b"2"]]
    assert queue.end_reason == "no more"


def test_a_late_reply_that_closes_the_connection_leaves_out_those_behind_it() -> None:
    made: list[int] = []

    def counted(number: int) -> LateFrame:
        def late() -> Frame:
            made.append(number)
            return [b"%d" % number]

        return late

    queue = ReplyQueue(nothing)
    for late in (counted(1), closing("refused"), counted(2)):
        queue.add_late(late)
    queue.make()
    assert queue.take() == [[b"1"]]
    assert (made, queue.end_reason) == ([1], "refused")


def test_a_pending_reply_that_fails_ends_the_queue_when_its_turn_has_come() -> None:
    told: list[None] = []
    queue = ReplyQueue(lambda: told.append(None))
    first, second, third = (PendingFrame() for _ in range(3))
    for one in (first, second, third):
        queue.add_late(later(one))
    queue.make()
    second.fail("gone")
    third.fill([b"3"])
    assert (queue.take(), queue.end_reason, len(told)) == ([], None, 0)
    first.fill([b"1"])
    assert (queue.take(), queue.end_reason, len(told)) == ([[b"1"]], "gone", 1)


def test_a_failure_while_replies_are_made_leaves_out_the_rest_and_keeps_what_was_made() -> None:
    def broken() -> Frame:
        raise RuntimeError("nobody thought of this")

    queue = ReplyQueue(nothing)
    queue.add([b"1"])
    queue.add_late(broken)
    queue.add([b"2"])
    with pytest.raises(RuntimeError):
        queue.make()
    queue.fail("a request failed")
    assert queue.take() == [[b"1"]]
    assert queue.end_reason == "a request failed"


def test_replies_behind_a_gate_are_made_when_it_is_open_and_told_how_that_ended() -> None:
    told: list[None] = []
    queue, gate, other = ReplyQueue(lambda: told.append(None)), Gate(), Gate()

    def behind(number: int, gate: Gate) -> LateFrame:
        def late(code: ErrorCode | None = None) -> Frame | Gate:
            return gate if code is None else [b"%d %d" % (number, code)]

        return late

    for number, each in enumerate((gate, gate, other, gate)):
        queue.add_late(behind(number, each))
    queue.make()
    assert (queue.take(), queue.waiting_count, queue.is_open) == ([], 4, True)
    gate.open(ErrorCode.NONE)
    assert queue.take() == [[b"0 0"], [b"1 0"]]
    assert len(told) >= 1
    other.open(ErrorCode.REQUEST_TIMED_OUT)
    assert queue.take() == [[b"2 7"], [b"3 0"]]
    assert (queue.waiting_count, queue.is_open) == (0, False)


def test_nobody_is_told_of_a_reply_whose_queue_was_dropped() -> None:
    def unwanted() -> None:
        raise AssertionError("the client has gone")

    queue, pending = ReplyQueue(unwanted), PendingFrame()
    queue.add_late(later(pending))
    queue.make()
    queue.drop()
    pending.fill([b"late"])
    assert queue.take() == []


def test_the_size_of_a_frame_is_that_of_its_chunks() -> None:
    assert frame_size([b"abc"]) == 3
    assert frame_size([b"abc", memoryview(b"de"), b""]) == 5
    assert frame_size([]) == 0
