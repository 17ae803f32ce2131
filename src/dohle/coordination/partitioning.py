"""Which partition of a coordinator's topic is responsible for a group or a transactional id."""

from __future__ import annotations

from functools import lru_cache

_INT32 = 1 << 32
_INT32_MIN = -(1 << 31)
_REMEMBERED_MAX = 16_384
#: A key may have 32 K characters; such ones are not kept.
_REMEMBERED_LENGTH_MAX = 256


def java_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` gives: over UTF-16 code units, in 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) % _INT32
    return value if value < 1 << 31 else value - _INT32


_remembered_hash = lru_cache(_REMEMBERED_MAX)(java_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a key; the one hash without a positive counterpart counts as 0."""
    value = _remembered_hash(key) if len(key) <= _REMEMBERED_LENGTH_MAX else java_hash(key)
    return 0 if value == _INT32_MIN else abs(value) % partition_count
