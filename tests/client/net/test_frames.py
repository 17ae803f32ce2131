"""Frames are the same however the stream is cut, and a frame that is too large ends it."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.client.net.frames import FrameProtocol
from dohle.protocol.schema import Buffer


class Sink(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def feed(protocol: FrameProtocol, data: bytes, sizes: list[int]) -> None:
    """Let the stream arrive in pieces of these sizes, over and over."""
    position = turn = 0
    while position < len(data):
        buffer = protocol.get_buffer(-1)
        assert len(buffer) > 0
        size = min(len(buffer), sizes[turn % len(sizes)], len(data) - position)
        buffer[:size] = data[position : position + size]
        protocol.buffer_updated(size)
        position += size
        turn += 1


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(0, 50), st.sampled_from([65_535, 65_536, 262_143, 300_000])),
        max_size=8,
    ),
    st.lists(st.sampled_from([1, 3, 4, 5, 1000, 65_536, 400_000]), min_size=1, max_size=5).filter(
        lambda sizes: max(sizes) >= 1000
    ),
)
def test_frames_are_the_same_however_the_stream_is_cut(
    frame_sizes: list[int], piece_sizes: list[int]
) -> None:
    rng = random.Random(7)
    frames = [rng.randbytes(size) for size in frame_sizes]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    seen: list[bytes] = []
    protocol = FrameProtocol(lambda frame: seen.append(bytes(frame)), lambda error: None, 1 << 20)
    feed(protocol, stream, piece_sizes)
    assert seen == frames


def test_frames_keep_their_bytes_when_more_arrive() -> None:
    kept: list[Buffer] = []
    protocol = FrameProtocol(kept.append, lambda error: None, 1 << 20)
    large = bytes(range(256)) * 300
    feed(protocol, b"\0\0\0\x03one" + len(large).to_bytes(4, "big") + large, [50_000])
    feed(protocol, b"\0\0\0\x03two", [50_000])
    assert [bytes(frame) for frame in kept] == [b"one", large, b"two"]


def take_large(protocol: FrameProtocol, seen: list[Buffer], number: int, size: int) -> memoryview:
    """Have a frame arrive that is full of a number, and take it out."""
    feed(protocol, size.to_bytes(4, "big") + bytes([number]) * size, [50_000])
    frame = seen.pop()
    assert isinstance(frame, memoryview)
    assert frame == bytes([number]) * size
    return frame


def test_the_memory_of_a_large_frame_is_used_again_once_nobody_looks_at_it() -> None:
    seen: list[Buffer] = []
    protocol = FrameProtocol(seen.append, lambda error: None, 1 << 24)
    first = take_large(protocol, seen, 1, 300_000)
    memory, part = first.obj, first[100_000:100_010]
    del first
    second = take_large(protocol, seen, 2, 200_000)
    assert second.obj is not memory
    assert part == bytes([1]) * 10
    del second
    third = take_large(protocol, seen, 3, 180_000)
    memory = third.obj
    del third
    fourth = take_large(protocol, seen, 4, 200_000)
    assert fourth.obj is memory


@given(st.lists(st.tuples(st.integers(65_536, 100_000), st.booleans()), max_size=6))
def test_large_frames_that_are_kept_are_never_written_to(frames: list[tuple[int, bool]]) -> None:
    seen: list[Buffer] = []
    protocol = FrameProtocol(seen.append, lambda error: None, 1 << 24)
    kept: dict[int, memoryview] = {}
    for number, (size, is_kept) in enumerate(frames):
        frame = take_large(protocol, seen, number, size)
        if is_kept:
            kept[number] = frame[size // 3 : size // 2]
        del frame
    for number, part in kept.items():
        assert part == bytes([number]) * len(part)


def test_memory_of_very_large_frames_is_not_kept() -> None:
    seen: list[Buffer] = []
    protocol = FrameProtocol(seen.append, lambda error: None, 1 << 24)
    memory = take_large(protocol, seen, 1, 3_000_000).obj
    assert take_large(protocol, seen, 2, 3_000_000).obj is not memory


def test_a_frame_larger_than_allowed_is_refused_before_it_arrives() -> None:
    seen: list[object] = []
    errors: list[Exception | None] = []
    protocol = FrameProtocol(seen.append, errors.append, 1000)
    transport = Sink()
    protocol.connection_made(transport)
    feed(protocol, b"\0\0\x03\xe9", [4])
    assert "1001 bytes; 1000 are allowed" in str(errors[0])
    assert transport.aborted
    assert seen == []
