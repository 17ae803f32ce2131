"""Reads many records of format 2 at once: the positions of their fields, as numpy arrays.

The records of several batches are in one buffer. Only the chain of their lengths has to be followed
record by record, and not even that where consecutive records have one size; every field is then
read for all records together, with one gather of bytes for each.

The result is right, or :class:`Unusual` is raised: then nothing is known about the records, and
:mod:`dohle.records` has to read them one by one. That happens for records that break the format,
and for a few that keep it in ways no producer does (a varint of nine bytes, say). So nothing is
explained here: the reader of records knows best what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dohle.records.errors import InvalidRecord
from dohle.records.varint import read_varint

Ints = npt.NDArray[np.int64]

#: The padding after the records of a buffer: a varint is read as a word of eight bytes.
PADDING = bytes(8)
#: The size of a record with nothing in it.
RECORD_SIZE_MIN = 7

#: A run of equal sizes is worth looking for if it is at least this long.
_RUN_MIN = 16
#: How many records are followed singly before a run is looked for again, at least and at most.
_SINGLY_MIN, _SINGLY_MAX = 16, 4096
#: Records with more headers than this are left to the reader of records.
_HEADERS_MAX = 64
#: The widest varint of 32 bits.
_VARINT_SIZE_MAX = 5

#: The size of a record by the first byte of its length: the whole size if that is the only byte,
#: else without what the second byte adds. A negative length leads out of any buffer.
_SIZES = tuple(
    1 << 40 if byte & 1 else (byte & 0x7F) // 2 + (1 if byte < 0x80 else 2) for byte in range(0x100)
)

_WORD = np.dtype("<u8")
_STOP_BITS = np.uint64(0x8080808080808080)
_VALUE_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
#: How seven-bit groups are merged: pairs of groups, pairs of pairs, pairs of those.
_JOINS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


class Unusual(Exception):
    """These records have to be read one by one."""


class Span(NamedTuple):
    """Where in the buffer a batch's records begin and end, and how many there are."""

    begin: int
    end: int
    record_count: int


class Memory:
    """A buffer of records with padding after them, seen as bytes and as words at every byte."""

    __slots__ = ("data", "octets", "words")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.octets = np.frombuffer(data, np.uint8)
        words = len(data) - _WORD.itemsize + 1
        self.words: npt.NDArray[np.uint64] = np.ndarray((words,), _WORD, data, strides=(1,))


@dataclass(frozen=True, slots=True)
class FieldSlices:
    """The positions of some fields in the buffer; a negative length means null."""

    at: Ints
    lengths: Ints


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of some records, one element for each."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    keys: FieldSlices
    values: FieldSlices
    header_counts: Ints
    #: Where the first header begins, if there is one.
    headers_at: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Headers:
    """All headers of some records, in their order."""

    keys: FieldSlices
    values: FieldSlices


def record_starts(data: bytes, spans: Iterable[Span]) -> Ints:
    """Follow the lengths of all batches' records; the last of each must end with its batch."""
    pieces: list[Ints] = []
    starts: list[int] = []
    singly = _SINGLY_MIN
    for position, end, left in spans:
        try_run = singly == _SINGLY_MIN
        while left > 0:
            if try_run and left >= _RUN_MIN:
                found, size = _run(data, position, end, left)
                run = range(position, position + found * size, size)
                left -= found
                position = run.stop
                if found >= _RUN_MIN:
                    pieces += np.array(starts, np.int64), np.arange(run.start, run.stop, size)
                    starts.clear()
                    # A field may just have become a byte wider: most likely another run follows.
                    singly = _SINGLY_MIN
                    continue
                starts += run
                singly = min(singly * 2, _SINGLY_MAX)
            found = min(singly, left)
            position = _follow(data, position, found, starts)
            left -= found
            try_run = True
        if left or position != end:
            raise Unusual
    return np.concatenate((*pieces, np.array(starts, np.int64)))


def _run(data: bytes, position: int, end: int, left: int) -> tuple[int, int]:
    """Count how many records from here on have the same size, and return that size.

    They have if the bytes of their lengths are the same: those say where the next record begins.
    """
    try:
        length, body = read_varint(data, position)
    except InvalidRecord:
        raise Unusual from None
    size = body - position + length
    if length < 0 or position + size > end:
        raise Unusual
    found = min(left, (end - position) // size)
    for at in range(position, body):
        column = data[at : at + size * (found - 1) + 1 : size]
        one = data[at : at + 1]
        # Comparing is much faster than stripping, which goes byte by byte.
        if column != one * found:
            found -= len(column.lstrip(one))
    return found, size


def _follow(data: bytes, position: int, count: int, starts: list[int]) -> int:
    """Follow the lengths of some records one by one, note where they start, return the end."""
    append, sizes = starts.append, _SIZES
    try:
        for _ in range(count):
            append(position)
            if (first := data[position]) < 0x80:
                position += sizes[first]
            elif (second := data[position + 1]) < 0x80:
                position += sizes[first] + (second << 6)
            else:
                length, body = read_varint(data, position)
                if length < 0:
                    raise Unusual
                position = body + length
    except (IndexError, InvalidRecord):
        raise Unusual from None
    return position


def read_varints(memory: Memory, at: Ints, bits: int = 32) -> tuple[Ints, Ints]:
    """Read the signed varints at the given positions; return them and where they end."""
    try:
        first = memory.octets[at]
        if not len(first) or first.max() < 0x80:
            raw = first.astype(np.int64)
            return (raw >> 1) ^ -(raw & 1), at + 1
        words = memory.words[at]
    except IndexError:
        raise Unusual from None
    # The bits up to the first byte whose highest bit is clear, including that byte's.
    stops = ~words & _STOP_BITS
    if not stops.all():
        raise Unusual
    mask = stops ^ (stops - _ONE)
    widths = np.bitwise_count(mask) >> 3
    words &= mask & _VALUE_BITS
    for low, high, shift in _JOINS:
        words = words & low | (words & high) >> shift
    if bits == 32 and (widths.max() > _VARINT_SIZE_MAX or int(words.max()) >> bits):
        raise Unusual
    raw = words.view(np.int64)
    return (raw >> 1) ^ -(raw & 1), at + widths


def read_fields(memory: Memory, starts: Ints, ends: Ints) -> Fields:
    """Read all fields except the headers.

    Lengths of keys and values are not checked one by one: positions only grow, and a record must
    end where its length says.
    """
    _, at = read_varints(memory, starts)
    timestamp_deltas, at = read_varints(memory, at + 1, 64)  # after the attributes: none in use
    offset_deltas, at = read_varints(memory, at)
    lengths, at = read_varints(memory, at)
    keys = FieldSlices(at, lengths)
    lengths, at = read_varints(memory, at + np.maximum(lengths, 0))
    values = FieldSlices(at, lengths)
    header_counts, at = read_varints(memory, at + np.maximum(lengths, 0))
    # A header takes at least two bytes.
    if ((ends - at < header_counts * 2) | (header_counts < 0)).any():
        raise Unusual
    if ((at != ends) & (header_counts == 0)).any():
        raise Unusual
    return Fields(timestamp_deltas, offset_deltas, keys, values, header_counts, at, ends)


def read_headers(memory: Memory, fields: Fields) -> Headers:
    """Read the headers: the first ones of all records, then the second ones, and so on."""
    counts = fields.header_counts
    rounds = int(counts.max(initial=0))
    if rounds > _HEADERS_MAX:
        raise Unusual
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    key_at, key_lengths, value_at, value_lengths = np.empty((4, total), np.int64)
    behind = fields.headers_at.copy()
    for nth in range(rounds):
        rows = np.flatnonzero(counts > nth)
        to = firsts[rows] + nth
        lengths, at = read_varints(memory, behind[rows])
        if lengths.min() < 0:
            raise Unusual
        key_at[to], key_lengths[to] = at, lengths
        lengths, at = read_varints(memory, at + lengths)
        value_at[to], value_lengths[to] = at, lengths
        behind[rows] = at + np.maximum(lengths, 0)
    if (behind != fields.ends).any():
        raise Unusual
    return Headers(FieldSlices(key_at, key_lengths), FieldSlices(value_at, value_lengths))
