"""Which partition of a coordinator's topic is responsible for a group or a transactional id."""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import mul

_INT32 = 1 << 32
_INT32_MIN = -(1 << 31)
#: Code units that are summed up at once, and what each of them counts, the last one first.
_BLOCK = 256
_WEIGHTS = tuple(pow(31, power, _INT32) for power in range(_BLOCK))
_REMEMBERED_MAX = 16_384
#: A key may have 32 K characters; such ones are not kept.
_REMEMBERED_LENGTH_MAX = 256


def java_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` gives: over UTF-16 code units, in 32 bits."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    value = 0
    for start in range(0, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        value = value * pow(31, len(block), _INT32) + sum(map(mul, reversed(block), _WEIGHTS))
        value %= _INT32
    return value if value < 1 << 31 else value - _INT32


_remembered_hash = lru_cache(_REMEMBERED_MAX)(java_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a key; the one hash without a positive counterpart counts as 0."""
    value = _remembered_hash(key) if len(key) <= _REMEMBERED_LENGTH_MAX else java_hash(key)
    return 0 if value == _INT32_MIN else abs(value) % partition_count
