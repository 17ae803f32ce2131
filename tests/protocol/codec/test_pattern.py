"""Finding the numbers in an encoding by what changes with them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from dohle.protocol.codec.pattern import find_pattern

_FORMATS = {8: "q", 12: "qi", 16: "qq"}
_PIECES = st.binary(min_size=1, max_size=20)


@given(pieces=st.lists(st.tuples(_PIECES, st.sampled_from(sorted(_FORMATS)))), last=_PIECES)
def test_the_numbers_are_found_between_what_stays_the_same(
    pieces: list[tuple[bytes, int]], last: bytes
) -> None:
    zeros, ones = (
        b"".join(piece + filling * size for piece, size in pieces) + last
        for filling in (b"\x00", b"\xff")
    )
    pattern = find_pattern(zeros, ones, _FORMATS)
    assert pattern.constants == (*[piece for piece, _ in pieces], last)
    fields = struct.unpack(">" + pattern.format, ones)
    assert tuple(field for field in fields if isinstance(field, bytes)) == pattern.constants
    assert {field for field in fields if isinstance(field, int)} <= {-1}
