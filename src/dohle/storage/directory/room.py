"""How much room a disk must have left."""

from __future__ import annotations

_FULL_BYTES_MAX = 256 << 20
#: The part of the free room after which it is looked at again: however fast the disk fills up,
#: that is often enough to refuse records in time.
LOOKS_BEFORE_FULL = 8


def full_below(total: int) -> int:
    """Return with how little free room a disk of this size counts as full."""
    return min(_FULL_BYTES_MAX, total // 100)
