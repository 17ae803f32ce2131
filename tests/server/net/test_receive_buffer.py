"""A receive buffer gives back what was put in, frame by frame, and moves nothing that is in use."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.protocol.errors import MalformedMessage
from dohle.server.net.receive_buffer import (
    BUFFER_BYTES,
    BUFFER_BYTES_AT_FIRST,
    BUFFER_BYTES_KEPT,
    ReceiveBuffer,
)
from tests.server.net.connected import framed

FRAME_BYTES_MAX = 8 << 20

sizes = st.one_of(
    st.integers(0, 40),
    st.integers(0, 3 * BUFFER_BYTES_AT_FIRST),
    st.sampled_from([BUFFER_BYTES - 4, BUFFER_BYTES - 5, BUFFER_BYTES, 300_000]),
)


def put(buffer: ReceiveBuffer, data: bytes, *, in_use: bool = False) -> int:
    """Receive as much as it takes at once; return how much that was."""
    room = buffer.room(in_use=in_use)
    if room is None:
        return 0
    count = min(len(room), len(data))
    room[:count] = data[:count]
    buffer.received(count)
    return count


def taken(buffer: ReceiveBuffer) -> bytes | None:
    """Take the next frame and copy it."""
    frame = buffer.next_frame()
    return None if frame is None else bytes(frame)


def payload(size: int, number: int) -> bytes:
    return random.Random(number).randbytes(size)


@given(st.lists(sizes, max_size=8), st.integers(0, 2**32))
def test_frames_come_out_as_they_were_sent_and_stay_so_while_in_use(
    frame_sizes: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    sent = [payload(size, number) for number, size in enumerate(frame_sizes)]
    stream = b"".join(map(framed, sent))
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    at = count_taken = 0
    used: list[tuple[memoryview, bytes]] = []
    while count_taken < len(sent):
        piece = stream[at : at + rng.choice([7, 5_000, 20_000, 1 << 20])]
        count = put(buffer, piece, in_use=bool(used))
        at += count
        for view, expected in used:
            assert bytes(view) == expected
        if used and (count == 0 or rng.random() < 0.5):
            used.clear()
        while not used and (frame := buffer.next_frame()) is not None:
            assert bytes(frame) == sent[count_taken]
            if rng.random() < 0.3:
                used.append((frame, sent[count_taken]))
            count_taken += 1
        if not used:
            buffer.shrink()
        assert len(buffer) == at - sum(4 + len(frame) for frame in sent[:count_taken])
    assert buffer.next_frame() is None


def test_a_frame_that_is_put_back_is_the_next() -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    put(buffer, framed(b"first") + framed(b"second") + b"\0")
    first = buffer.next_frame()
    assert first is not None
    buffer.put_back(first)
    assert [taken(buffer) for _ in range(3)] == [b"first", b"second", None]
    assert len(buffer) == 1


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_no_frame_has_is_refused(size: int) -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    put(buffer, size.to_bytes(4, "big", signed=True))
    with pytest.raises(MalformedMessage, match=str(size)):
        buffer.next_frame()


def test_a_client_that_only_claims_a_large_frame_gets_no_more_than_a_first_part() -> None:
    buffer = ReceiveBuffer(1 << 30)
    data = (1 << 30).to_bytes(4, "big") + bytes(200)
    assert put(buffer, data) == len(data)
    assert buffer.next_frame() is None
    left = 2_000_000
    while left:
        left -= put(buffer, bytes(min(left, 100_000)))
        assert buffer.capacity <= BUFFER_BYTES_KEPT
    assert len(buffer) == len(data) + 2_000_000


def test_who_may_send_small_frames_only_gets_no_more_room_than_for_one() -> None:
    """Security.md, section 8: "RSS stays flat", of who has not logged in."""
    frame_max = 2 * BUFFER_BYTES
    buffer = ReceiveBuffer(frame_max)
    data = framed(bytes(frame_max))[:-1]
    at = 0
    while at < len(data):
        at += put(buffer, data[at:])
    assert taken(buffer) is None
    assert buffer.capacity <= 3 * BUFFER_BYTES


def test_a_buffer_that_is_full_of_frames_in_use_makes_the_client_wait() -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    stream = bytes(10 * BUFFER_BYTES)
    received = 0
    while count := put(buffer, stream, in_use=True):
        received += count
    assert received == buffer.capacity == BUFFER_BYTES
    assert buffer.room(in_use=True) is None


def test_what_a_large_frame_has_taken_is_given_back_behind_it() -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    stream = framed(payload(FRAME_BYTES_MAX, 1))
    while stream:
        stream = stream[put(buffer, stream) :]
    assert buffer.capacity > BUFFER_BYTES_KEPT
    buffer.shrink()
    assert buffer.capacity > BUFFER_BYTES_KEPT
    frame = buffer.next_frame()
    assert frame is not None
    buffer.shrink()
    assert buffer.capacity == BUFFER_BYTES
    assert bytes(frame) == payload(FRAME_BYTES_MAX, 1)


def test_nothing_is_reserved_for_a_large_frame_of_a_client_that_does_not_read() -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    stream = framed(bytes(BUFFER_BYTES_KEPT))
    while (room := buffer.room(in_use=False, may_grow=False)) is not None:
        count = min(len(room), len(stream))
        room[:count], stream = stream[:count], stream[count:]
        buffer.received(count)
    assert buffer.capacity == BUFFER_BYTES
    assert put(buffer, stream) > 0
