"""What stays the same when a thing is encoded again and again with other numbers.

Two encodings of the same thing, one with 0 for every number that may change and one with -1, differ
in each bit of these numbers and nowhere else. So it need not be known by what rules it is encoded
to find where its numbers stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_RUN = re.compile(rb"\xff+")


class Pattern(NamedTuple):
    """An encoding cut to pieces: a struct of its constant pieces with the numbers between them."""

    #: Of a struct, without the byte order; a constant piece is first and last.
    format: str
    constants: tuple[bytes, ...]


def find_pattern(zeros: bytes, ones: bytes, formats: Mapping[int, str]) -> Pattern:
    """Cut an encoding whose numbers are 0; in the other one they are -1.

    ``formats`` says of what numbers the bytes that differ are, by how many stand together.
    """
    difference = int.from_bytes(zeros, "big") ^ int.from_bytes(ones, "big")
    parts: list[str] = []
    constants: list[bytes] = []
    start = 0
    for run in _RUN.finditer(difference.to_bytes(len(zeros), "big")):
        constants.append(zeros[start : run.start()])
        parts += (f"{len(constants[-1])}s", formats[run.end() - run.start()])
        start = run.end()
    constants.append(zeros[start:])
    parts.append(f"{len(constants[-1])}s")
    return Pattern("".join(parts), tuple(constants))
