"""``python -m bench.layouts``: the check of small batches with and without the layout cache.

Processor time of the fast check, checksum included, for batches of records of one size; the best of
some rounds, both ways in turn. ADR 12 has the figures.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from dohle.records.builder import BatchBuilder
from dohle.records.checking import record_scan
from dohle.records.checking.fast_check import begin_fast_check
from dohle.records.checking.validation import ValidationRules

COUNTS = (3, 5, 10, 20, 30, 48)
RECORD_BYTES = 100
_BATCHES, _PASSES, _ROUNDS = 8, 40, 30


def main() -> None:
    """Measure and print."""
    now_ms = int(time.time() * 1000)
    for count in COUNTS:
        batches = [_batch(count, seed, now_ms) for seed in range(_BATCHES)]
        with_cache = without = float("inf")
        for _ in range(_ROUNDS):
            with_cache = min(with_cache, _cost_us(batches, now_ms))
            with _no_layouts():
                without = min(without, _cost_us(batches, now_ms))
        ratio = without / with_cache
        print(f"{count:3} records: {with_cache:5.2f} µs, without {without:5.2f} µs ({ratio:.1f} x)")


def _batch(count: int, seed: int, now_ms: int) -> memoryview:
    rng = random.Random(seed)
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(now_ms, None, rng.randbytes(RECORD_BYTES))
    return memoryview(bytearray(builder.build()))


@contextmanager
def _no_layouts() -> Iterator[None]:
    with (
        patch.object(record_scan, "find_layout", lambda count, size: None),
        patch.object(record_scan, "remember_layout", lambda records, count: None),
    ):
        yield


def _cost_us(batches: list[memoryview], now_ms: int) -> float:
    rules = ValidationRules()
    start = time.process_time_ns()
    for _ in range(_PASSES):
        for batch in batches:
            if not begin_fast_check(batch, rules, now_ms, is_transactional=False):
                raise RuntimeError("a batch did not pass the fast check")
    return (time.process_time_ns() - start) / _PASSES / len(batches) / 1000


if __name__ == "__main__":
    main()
