from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import Batch, Codec, CorruptBatch, IncompleteBatch, batches
from dohle.storage.files import File
from dohle.storage.segment.batch_scan import (
    SCAN_CHUNK,
    BatchHead,
    find_batch,
    scan_batches,
    scan_checked,
    scan_heads,
)
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.records.message_sets import Message, build_message_set
from tests.storage.logs import NOW_MS, batch, marker, property_test


@dataclass(frozen=True)
class Piece:
    """What is to be put into a log file."""

    kind: str
    count: int
    size: int
    gap: int


PIECES = st.lists(
    st.builds(
        Piece,
        st.sampled_from(["plain", "plain", "gzip", "producer", "marker", "v0", "v1", "wrapped"]),
        st.integers(1, 4),
        st.sampled_from([0, 10, 200, 3000, 9000]),
        st.sampled_from([0, 0, 3]),
    ),
    max_size=12,
)


def build(pieces: list[Piece]) -> bytes:
    """A log file as an old cluster leaves it: entries of all formats, in any order."""
    content = bytearray()
    offset = 0
    for piece in pieces:
        offset += piece.gap
        value, count = bytes(piece.size), piece.count
        times = [NOW_MS + n for n in range(count)]
        messages = [Message(time, b"key", value) for time in times]
        match piece.kind:
            case "v0" | "v1":
                content += build_message_set(int(piece.kind[1]), messages, base_offset=offset)
            case "wrapped":
                content += build_message_set(1, messages, base_offset=offset, codec=Codec.GZIP)
            case "producer":
                content += batch(
                    times, value=value, base_offset=offset, pid=7, epoch=0, sequence=offset
                )
            case "marker":
                built = marker(7, commit=True)
                built[:8] = offset.to_bytes(8, "big")
                content += built
                count = 1
            case kind:
                codec = Codec.GZIP if kind == "gzip" else Codec.NONE
                content += batch(
                    times, value=value, base_offset=offset, leader_epoch=3, codec=codec
                )
        offset += count
    return bytes(content)


def file_of(content: bytes) -> File:
    fs = SimulatedFileSystem()
    fs.put("/log", content)
    return fs.open("/log")


def linear(content: bytes) -> list[tuple[int, Batch]]:
    """The entries with their positions, by a walk through memory."""
    found, position = [], 0
    for one in batches(content):
        found.append((position, one))
        position += one.size
    assert position == len(content)
    return found


def head_of(position: int, one: Batch) -> BatchHead:
    base = one.base_offset if one.magic >= 2 else one.last_offset
    epoch = one.partition_leader_epoch
    return BatchHead(position, base, one.last_offset, one.size, one.magic, one.max_timestamp, epoch)


# Agreement


def check_agreement(content: bytes) -> None:
    file, wanted = file_of(content), linear(content)
    whole = [(at, bytes(one.buffer)) for at, one in scan_batches(file, 0, len(content))]
    assert whole == [(position, bytes(one.buffer)) for position, one in wanted]
    heads = list(scan_heads(file, 0, len(content)))
    assert heads == [head_of(position, one) for position, one in wanted]
    checked = []
    for position, size, base, last, timestamp, epoch, special in scan_checked(
        file, 0, len(content)
    ):
        checked.append((position, base, last, size, timestamp, epoch))
        original = wanted[len(checked) - 1][1]
        assert (special is not None) == (original.producer_id >= 0 or original.is_control)
        if special is not None:
            assert bytes(special.buffer) == bytes(original.buffer)
    assert checked == [
        (
            h.position,
            h.base_offset,
            h.last_offset,
            h.size,
            h.max_timestamp,
            h.partition_leader_epoch,
        )
        for h in heads
    ]


@property_test()
@given(PIECES)
def test_all_ways_to_walk_a_file_find_the_same_batches(pieces: list[Piece]) -> None:
    check_agreement(build(pieces))


def test_batches_larger_than_a_chunk_are_found() -> None:
    sizes = [10, SCAN_CHUNK + 1, 100, 2 * SCAN_CHUNK, SCAN_CHUNK - 61, 3 * SCAN_CHUNK, 5]
    content = bytearray()
    for offset, size in enumerate(sizes):
        pid = 9 if offset % 2 else -1
        content += batch(
            value=bytes(size), base_offset=offset, pid=pid, epoch=min(pid, 0), sequence=min(pid, 0)
        )
    check_agreement(bytes(content))


@pytest.mark.parametrize("short", range(0, 130, 13))
def test_a_batch_across_the_border_of_two_chunks_is_found(short: int) -> None:
    first = batch(value=bytes(SCAN_CHUNK - 100 - short))
    content = first + batch(base_offset=1, value=bytes(50)) + batch(base_offset=2)
    check_agreement(bytes(content))


@property_test()
@given(PIECES, st.data())
def test_a_walk_from_within_a_file_finds_the_rest(pieces: list[Piece], draw: st.DataObject) -> None:
    content = build(pieces)
    wanted = linear(content)
    number = draw.draw(st.integers(0, len(wanted)))
    start = wanted[number][0] if number < len(wanted) else len(content)
    file = file_of(content)
    positions = [position for position, _ in wanted[number:]]
    assert [at for at, _ in scan_batches(file, start, len(content))] == positions
    assert [head.position for head in scan_heads(file, start, len(content))] == positions
    assert [one[0] for one in scan_checked(file, start, len(content))] == positions


@property_test()
@given(PIECES, st.data())
def test_a_lookup_equals_a_linear_search(pieces: list[Piece], draw: st.DataObject) -> None:
    content = build(pieces)
    wanted = linear(content)
    file = file_of(content)
    number = draw.draw(st.integers(0, max(0, len(wanted) - 1)))
    start = wanted[number][0] if wanted else 0
    told = draw.draw(st.booleans())
    ends_at = wanted[number][1].last_offset if wanted and told else None
    end = wanted[-1][1].next_offset if wanted else 0
    for offset in range(-1, end + 2):
        behind = [head_of(*one) for one in wanted[number:] if one[1].last_offset >= offset]
        found = find_batch(file, start, len(content), offset, ends_at)
        assert found == (behind[0] if behind else None)


# Damage

FIVE = [batch([NOW_MS] * 2, value=bytes(40), base_offset=2 * n, leader_epoch=1) for n in range(5)]
SIZE = len(FIVE[0])

WALKS: dict[str, Callable[[File, int], object]] = {
    "scan_batches": lambda file, end: [one for _, one in scan_batches(file, 0, end)],
    "scan_checked": lambda file, end: list(scan_checked(file, 0, end)),
    "scan_heads": lambda file, end: list(scan_heads(file, 0, end)),
    "find_batch": lambda file, end: find_batch(file, 0, end, 100),
}


def fails(walk: str, content: bytes) -> CorruptBatch:
    with pytest.raises(CorruptBatch) as caught:
        WALKS[walk](file_of(content), len(content))
    return caught.value


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("left", [1, 11, 12, 16, 17, 26, 60, 61, 62, SIZE - 1])
def test_a_truncated_batch_is_told_with_its_position(walk: str, left: int) -> None:
    error = fails(walk, b"".join(FIVE[:3]) + FIVE[3][:left])
    assert isinstance(error, IncompleteBatch)
    assert error.position == 3 * SIZE


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("length", [0, -1, -(2**31), 13, 2**31 - 1, 5000])
def test_a_length_that_cannot_be_is_told_with_its_position(walk: str, length: int) -> None:
    content = bytearray(b"".join(FIVE))
    content[3 * SIZE + 8 : 3 * SIZE + 12] = length.to_bytes(4, "big", signed=True)
    assert fails(walk, bytes(content)).position == 3 * SIZE


@pytest.mark.parametrize("walk", ["scan_batches", "scan_checked", "scan_heads", "find_batch"])
def test_an_unknown_format_is_told_with_its_position(walk: str) -> None:
    content = bytearray(b"".join(FIVE))
    content[2 * SIZE + 16] = 9
    assert fails(walk, bytes(content)).position == 2 * SIZE


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("size", [12, 40, 61, 70, SIZE, 1000])
def test_zeros_are_no_batch(walk: str, size: int) -> None:
    assert fails(walk, b"".join(FIVE) + bytes(size)).position == 5 * SIZE


@pytest.mark.parametrize("walk", WALKS)
def test_a_block_of_zeros_in_the_middle_is_told_with_its_position(walk: str) -> None:
    content = bytearray(b"".join(FIVE))
    content[SIZE : 3 * SIZE] = bytes(2 * SIZE)
    assert fails(walk, bytes(content)).position == SIZE


@pytest.mark.parametrize("position", [*range(21, SIZE, 3), 17, 18, 19, 20])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_told_by_the_checksum_with_its_batch_s_position(
    position: int, bit: int
) -> None:
    content = bytearray(b"".join(FIVE))
    content[2 * SIZE + position] ^= 1 << bit
    assert fails("scan_checked", bytes(content)).position == 2 * SIZE


@pytest.mark.parametrize("magic", [0, 1])
def test_a_flipped_bit_in_an_old_message_is_told_by_its_checksum(magic: int) -> None:
    messages = [Message(NOW_MS, b"key", b"value")] * 3
    content = bytearray(build_message_set(magic, messages))
    size = len(content) // 3
    content[size + size - 2] ^= 1
    assert fails("scan_checked", bytes(content)).position == size


def test_batches_before_the_damage_are_given_first() -> None:
    content = bytearray(b"".join(FIVE))
    content[3 * SIZE + 90] ^= 1
    walk = scan_checked(file_of(bytes(content)), 0, len(content))
    assert [next(walk)[0] for _ in range(3)] == [0, SIZE, 2 * SIZE]
    with pytest.raises(CorruptBatch):
        next(walk)


@pytest.mark.parametrize("walk", WALKS)
def test_a_file_that_is_shorter_than_promised_is_told(walk: str) -> None:
    content = b"".join(FIVE)
    with pytest.raises(CorruptBatch) as caught:
        WALKS[walk](file_of(content), len(content) + 200)
    assert caught.value.position == 5 * SIZE


def test_a_huge_length_costs_no_memory() -> None:
    content = bytearray(b"".join(FIVE))
    content[SIZE + 8 : SIZE + 12] = (2**31 - 1).to_bytes(4, "big")
    # Were it believed, two gigabytes would be asked for before the file's end is seen.
    for walk in WALKS:
        assert isinstance(fails(walk, bytes(content)), IncompleteBatch)


@pytest.mark.parametrize(
    ("start", "ends_at"),
    [(0, 2), (SIZE, 1), (SIZE, 5), (5, 1), (5 * SIZE, 9), (9000, 9), (-SIZE, 1)],
)
def test_an_index_entry_that_does_not_fit_the_file_is_told(start: int, ends_at: int) -> None:
    content = b"".join(FIVE)
    with pytest.raises(CorruptBatch):
        find_batch(file_of(content), start, len(content), 7, ends_at)


def damage_seen_at(walk: Callable[[File, int], object], content: bytes) -> int | None:
    """Return the position that a walk complains of; None if it sees nothing wrong."""
    try:
        walk(file_of(content), len(content))
    except CorruptBatch as error:
        return -1 if error.position is None else error.position
    return None


@property_test(150)
@given(PIECES.filter(bool), st.data())
def test_any_flipped_bit_is_an_error_or_leaves_what_was_there(
    pieces: list[Piece], draw: st.DataObject
) -> None:
    content = bytearray(build(pieces))
    position = draw.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << draw.draw(st.integers(0, 7))
    for walk in WALKS.values():
        seen_at = damage_seen_at(walk, bytes(content))
        assert seen_at is None or 0 <= seen_at <= position
