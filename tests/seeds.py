"""How many seeds of simulators run: all, or the share of them that there is time for."""

from __future__ import annotations

import os

#: Of the long runs only: ``make test-long SHARE=0.1``.
_SHARE = float(os.environ.get("DOHLE_SHARE_OF_SEEDS") or 1)


def chunks(first: int, count: int, size: int) -> range:
    """Return where chunks of this size begin that cover so many seeds, or the share of them."""
    if not 0 < _SHARE <= 1:
        raise ValueError(f"SHARE={_SHARE} is not between 0 and 1")
    wanted = max(1, round(count * _SHARE / size))
    return range(first, first + wanted * size, size)


def seeds(first: int, count: int) -> range:
    """Return so many seeds, or the share of them, at least one."""
    return chunks(first, count, 1)
