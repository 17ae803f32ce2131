"""Reads records from data that comes in pieces, of which only the current one is kept.

A record may be in several pieces, and much larger than one: what lies between its lengths is
skipped or handed on, not put together. This is the careful way to read a record. It says what is
wrong with one, and where; the fast loops that read most records (``record_scan``, ``rebuild``)
leave to it whatever is not whole in the current piece or looks wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.steps import Steps
from dohle.records.compression.whole import Pieces
from dohle.records.errors import InvalidRecord
from dohle.records.varint import read_varint, read_varlong

#: The longest varint and varlong, in bytes.
_VARINT_SIZE_MAX, _VARLONG_SIZE_MAX = 5, 10
#: A record's headers are read in steps of so many.
_HEADERS_PER_STEP = 512
_COPIED_BYTES_MAX = 64 * 1024


class Head(NamedTuple):
    """What stands before a record's key."""

    timestamp_delta: int
    offset_delta: int
    #: Where the record ends, counted from the first record.
    end: int


class RecordReader:
    """A place in a batch's records: ``position`` in ``data``, which counts up to ``end``.

    ``begin`` is where the first record begins in ``data``; below 0 if that piece is gone.
    """

    __slots__ = ("_pieces", "begin", "data", "end", "position")

    def __init__(
        self,
        data: bytes | bytearray,
        begin: int,
        end: int,
        pieces: Pieces | None = None,
    ) -> None:
        """Read from memory, and then from pieces if there are any."""
        self.data = data
        self.begin = self.position = begin
        self.end = end
        self._pieces = pieces

    @property
    def place(self) -> int:
        """How many bytes of records lie before the position."""
        return self.position - self.begin

    def next_piece(self) -> Steps[bool]:
        """Put the next piece behind what is left of this one; False if there is none."""
        if self._pieces is None:
            return False
        result: object = None
        while True:
            try:
                piece = self._pieces.send(result)
            except StopIteration:
                self._pieces = None
                return False
            if isinstance(piece, bytes | memoryview):
                break
            result = yield piece
        self.begin -= self.position
        self.data = b"".join((self.data[self.position : self.end], piece))
        self.position, self.end = 0, len(self.data)
        yield None
        return True

    def close(self) -> None:
        """Let go of what the pieces come from, before the last one."""
        if self._pieces is not None:
            self._pieces.close()
            self._pieces = None

    def has_more(self) -> Steps[bool]:
        """Tell whether anything follows."""
        while self.position == self.end:
            if not (yield from self.next_piece()):
                return False
        return True

    def skip(self, size: int) -> Steps[None]:
        """Go on by so many bytes."""
        while size > (left := self.end - self.position):
            size -= left
            self.position = self.end
            if not (yield from self.next_piece()):
                raise InvalidRecord(f"a record runs past the end of {self.place} bytes of records")
        self.position += size

    def copy(self, size: int) -> Steps[list[bytes]]:
        """Return the next bytes, up to ``size`` of them, and go on behind them."""
        parts: list[bytes] = []
        size = min(size, _COPIED_BYTES_MAX)
        while size:
            if not (yield from self.has_more()):
                raise InvalidRecord(f"a record runs past the end of {self.place} bytes of records")
            part = bytes(self.data[self.position : min(self.end, self.position + size)])
            self.position += len(part)
            size -= len(part)
            parts.append(part)
        return parts

    def varint(self) -> Steps[int]:
        """Read a signed 32-bit value."""
        number = yield from self._number(_VARINT_SIZE_MAX)
        value, width = read_varint(number, 0)
        self.position += width
        return value

    def varlong(self) -> Steps[int]:
        """Read a signed 64-bit value."""
        number = yield from self._number(_VARLONG_SIZE_MAX)
        value, width = read_varlong(number, 0)
        self.position += width
        return value

    def _number(self, size_max: int) -> Steps[bytes]:
        """Return the bytes of the number at the position; it need not take all of them."""
        while True:
            found = bytes(self.data[self.position : min(self.end, self.position + size_max)])
            for at, byte in enumerate(found):
                if byte < 0x80:
                    return found[: at + 1]
            if len(found) == size_max:
                raise InvalidRecord(f"the number at byte {self.place} does not end")
            if not (yield from self.next_piece()):
                raise InvalidRecord(f"the number at byte {self.place} runs past the end")

    def head(self) -> Steps[Head]:
        """Read what stands before a record's key."""
        length = yield from self.varint()
        if length < 0:
            raise InvalidRecord(f"{length} bytes of record at byte {self.place}")
        end = self.place + length
        yield from self.skip(1)  # attributes: none is in use
        timestamp_delta = yield from self.varlong()
        offset_delta = yield from self.varint()
        return Head(timestamp_delta, offset_delta, end)

    def record(self) -> Steps[tuple[Head, int]]:
        """Check a record; return its head and the length of its key, below 0 if it has none."""
        head = yield from self.head()
        key_size = yield from self.varint()
        yield from self.skip(self._within(max(key_size, 0), head.end))
        value_size = yield from self.varint()
        yield from self.skip(self._within(max(value_size, 0), head.end))
        headers = yield from self.varint()
        if not 0 <= headers <= head.end - self.place:
            raise InvalidRecord(
                f"{headers} headers cannot be in the {head.end - self.place} bytes left for them"
            )
        for number in range(headers):
            size = yield from self.varint()
            if size < 0:
                raise InvalidRecord(f"a header key of {size} bytes at byte {self.place}")
            yield from self.skip(self._within(size, head.end))
            size = yield from self.varint()
            yield from self.skip(self._within(max(size, 0), head.end))
            if number % _HEADERS_PER_STEP == _HEADERS_PER_STEP - 1:
                yield None
        if self.place != head.end:
            raise InvalidRecord(f"a record ends at byte {self.place} and not at byte {head.end}")
        return head, key_size

    def _within(self, size: int, end: int) -> int:
        """Return a size of something that must end with the record at the latest."""
        if size > end - self.place:
            raise InvalidRecord(
                f"{size} bytes at byte {self.place} of a record that ends at byte {end}"
            )
        return size
