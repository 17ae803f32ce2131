"""Which topics a group's regular expression stands for, as of some image."""

from __future__ import annotations

from typing import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics that matched when they were last looked at."""

    topics: frozenset[str]
    #: The offset of the image.
    version: int
    timestamp_ms: int


UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)
