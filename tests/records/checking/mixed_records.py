"""Records of mixed sizes, drawn by a seed."""

from __future__ import annotations

import random

from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import BatchBuilder
from tests.records.checking.scanned import NOW_MS


def some_bytes(rng: random.Random, sizes: tuple[int, int]) -> bytes | None:
    """Return some bytes of one of these sizes; below 0 it is null."""
    size = rng.randint(*sizes)
    return None if size < 0 else rng.randbytes(size)


def mixed_records(
    seed: int,
    count: int,
    key_sizes: tuple[int, int],
    step: int,
    value_sizes: tuple[int, int] = (0, 12),
) -> bytes:
    rng = random.Random(seed)
    builder = BatchBuilder()
    for number in range(count):
        builder.append(
            NOW_MS + (number * step if step > 0 else rng.randint(0, -step)),
            some_bytes(rng, key_sizes),
            some_bytes(rng, value_sizes),
        )
    return bytes(builder.build()[HEADER_SIZE:])
