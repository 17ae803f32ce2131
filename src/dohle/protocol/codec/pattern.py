"""Finds what stays the same when something is encoded repeatedly with different numbers.

Encode the same thing twice, once with 0 for every number that may change and once with -1: the two
encodings differ in every bit of these numbers and nowhere else. So their positions can be found
without knowing the rules of the encoding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_RUN = re.compile(rb"\xff+")


class Pattern(NamedTuple):
    """An encoding cut into pieces: constant bytes and the numbers between them, as a struct."""

    #: The codes of a struct, without the byte order; it starts and ends with a constant piece.
    format: str
    constants: tuple[bytes, ...]


def find_pattern(zeros: bytes, ones: bytes, formats: Mapping[int, str]) -> Pattern:
    """Cut up an encoding whose numbers are 0, by comparing it with one in which they are -1.

    ``formats`` maps the length of a run of differing bytes to the codes of the numbers in it.
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
