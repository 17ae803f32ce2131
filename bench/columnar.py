"""Decoding what Fetch returns to Arrow, for Spark, beside reading the same records one by one.

A decoder is to manage 1.5 million records a second and core, with 100 bytes each. That is measured
in time of the processor and by the best round: other programs on a shared machine only ever add.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from bench.report import Row, show
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.columnar.decode import decode_records
from dohle.records.compression.codecs import Codec

#: The most nanoseconds a record of 100 bytes may take: 1.5 million records a second.
NS_MAX = 1e9 / 1.5e6

HEADERS = (("trace-id", bytes(16)), ("source", b"bench"))


@dataclass(frozen=True, slots=True)
class Case:
    """Some records, and how they were produced."""

    name: str
    records: int
    batch_size: int
    value: range
    has_keys: bool = False
    has_headers: bool = False
    codec: Codec = Codec.NONE
    #: Whether the figure to be reached is about it.
    is_promised: bool = False

    def data(self) -> bytes:
        """Write the records, in batches of the given size."""
        rng = random.Random(1)
        text = rng.randbytes(4096).hex().encode()
        data = bytearray()
        builder = BatchBuilder(codec=self.codec)
        for number in range(self.records):
            if builder.size >= self.batch_size:
                data += builder.build()
                builder = BatchBuilder(base_offset=number, codec=self.codec)
            at, size = rng.randrange(4096), rng.choice(self.value)
            builder.append(
                time.time_ns() // 1_000_000,
                b"user-%06d" % rng.randrange(10**6) if self.has_keys else None,
                text[at : at + size],
                HEADERS if self.has_headers else (),
            )
        return bytes(data + builder.build())


CASES = (
    Case("100 B, 1 MB batches", 40_000, 1_000_000, range(100, 101), is_promised=True),
    Case("100 B, 16 KB batches", 40_000, 16_000, range(100, 101), is_promised=True),
    Case("50-150 B and key, 16 KB batches", 40_000, 16_000, range(50, 151), has_keys=True),
    Case("100 B and 2 headers, 16 KB batches", 40_000, 16_000, range(100, 101), has_headers=True),
    Case("100 B zstd, 16 KB batches", 40_000, 16_000, range(100, 101), codec=Codec.ZSTD),
    Case("100 B lz4, 16 KB batches", 40_000, 16_000, range(100, 101), codec=Codec.LZ4),
    Case("1 KiB, 1 MB batches", 8_000, 1_000_000, range(1024, 1025)),
    Case("1 KiB zstd, 1 MB batches", 8_000, 1_000_000, range(1024, 1025), codec=Codec.ZSTD),
)


def run(quick: bool = False) -> list[Row]:
    """Measure all cases."""
    rows = []
    for case in CASES:
        ours, theirs = _measure(case, rounds=5 if quick else 21)
        name = f"decode {case.name}"
        rows.append(Row("spark-decode", name, "ns", ours, "dohle.records", theirs))
        if case.is_promised:
            rows.append(Row("spark-decode", name, "ns", ours, "1.5 M/s", NS_MAX, reach=1.0))
    return rows


def _measure(case: Case, rounds: int) -> tuple[float, float]:
    """Return nanoseconds a record, ours and those of the reader of records."""
    data = case.data()

    def decode() -> int:
        found, _ = decode_records(
            data,
            0,
            case.records,
            topic="measurements",
            partition=0,
            aborted=None,
            include_headers=case.has_headers,
        )
        return sum(rows.num_rows for rows in found)

    def read() -> int:
        count = 0
        for batch in batches(data):
            batch.ensure_valid()
            count += len(list(batch))
        return count

    best = []
    for action, times in ((decode, rounds), (read, max(rounds // 5, 2))):
        seconds = []
        for _ in range(times):
            start = time.process_time()
            assert action() == case.records
            seconds.append(time.process_time() - start)
        best.append(min(seconds) / case.records * 1e9)
    return best[0], best[1]


if __name__ == "__main__":
    show(run(), as_json=False)
