"""The topics that a group's regular expression matches, as of some image."""

from __future__ import annotations

from typing import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics that matched when the expression was last resolved."""

    topics: frozenset[str]
    #: The offset of the image.
    version: int
    timestamp_ms: int


UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)
