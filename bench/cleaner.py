"""Cleaning a log beside the least that any cleaner does: reading it, checksums, writing the result.

About half of the records are superseded, evenly. The name of a case says how many MB of log a round
cleans in a second. The map of keys is beside a dict of the same keys, which takes over four times
its memory.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import crc32c

from bench.report import Row, interleave, timed
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.core.seams import SystemClock
from dohle.core.uuid import random_uuid
from dohle.records.batch import Codec
from dohle.records.builder import BatchBuilder
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.round import CleaningRound
from dohle.storage.cleaning.round_values import CleanerSettings
from dohle.storage.cleaning.round_work import RoundWork
from dohle.storage.cleaning.selection import look_at
from dohle.storage.config import LogConfig
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.files import OsFileSystem
from dohle.storage.log import Log

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), file_delete_delay_ms=0, segment_bytes=16 << 20
)
PARTITION = TopicPartition(TopicName("bench"), 0)
BATCH_BYTES = 16_384
KEYS = 1_000_000


def run(quick: bool = False) -> list[Row]:
    """Measure all cases."""
    rounds, megabytes = (1, 16) if quick else (3, 48)
    rows = [
        _round(codec, size, megabytes, rounds)
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD)
        for size in (100, 1024)
    ]
    rows += _keys(KEYS // 10 if quick else KEYS, rounds)
    return rows


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder that goes again."""
    path = tempfile.mkdtemp(prefix="dohle-bench-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


def new_log(path: str) -> Log:
    """Open a log directory with one log."""
    manager = LogManager(OsFileSystem(), clock=SystemClock(), rng=random.Random(1))
    manager.open([path], Identity("bench", BrokerId(1)), lambda _: CONFIG)
    return manager.get_or_create(PARTITION, random_uuid(random.Random(1)), CONFIG)


def _fill(log: Log, codec: Codec, size: int, megabytes: int) -> None:
    rng = random.Random(7)
    # Half of it is text that compresses.
    values = [rng.randbytes(size // 2) + b"abcdefgh" * (size // 16) for _ in range(64)]
    count = megabytes * 1_000_000 // size
    per_batch = max(1, BATCH_BYTES // size)
    keys = [b"%016d" % rng.randrange(count // 2) for _ in range(count)]
    for start in range(0, count, per_batch):
        builder = BatchBuilder(codec=codec)
        for number in range(start, min(start + per_batch, count)):
            builder.append(1_700_000_000_000 + number, keys[number], values[number % 64][16:])
        log.append_as_leader(builder.build(), 0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)


def clean(log: Log) -> None:
    """Take one round through a log that is on the disk, as the process that cleans does."""
    settings = CleanerSettings(new_work=partial(RoundWork, is_alone=True))
    round = CleaningRound(log, look_at(log, None, 1), settings, 1_700_000_000_000)
    while (job := round.next_job()) is not None:
        job.run()
        round.complete(job)


def _bare(paths: list[str], target: str) -> None:
    out = os.open(target, os.O_RDWR | os.O_CREAT)
    for _ in range(2):
        position = 0
        for path in paths:
            fd = os.open(path, os.O_RDONLY)
            while data := os.pread(fd, 1 << 18, position):
                crc32c.crc32c(data)
                os.pwrite(out, data[: len(data) // 2], position // 2)
                position += len(data)
            os.close(fd)
    os.fsync(out)
    os.close(out)


def _round(codec: Codec, size: int, megabytes: int, rounds: int) -> Row:
    bytes_read = 0

    def ours() -> float:
        nonlocal bytes_read
        with temporary_folder() as folder:
            log = new_log(folder + "/logs")
            _fill(log, codec, size, megabytes)
            log.flush()
            bytes_read = log.size
            return timed(lambda: clean(log))

    def bare() -> float:
        with temporary_folder() as folder:
            log = new_log(folder + "/logs")
            _fill(log, codec, size, megabytes)
            log.flush()
            paths = [segment.path for segment in log.segments]
            return timed(lambda: _bare(paths, folder + "/out"))

    times = interleave({"ours": ours, "bare": bare}, rounds)
    rate = bytes_read / times["ours"] / 1e6
    kept = megabytes / times["ours"]
    case = (
        f"{codec.name.lower()}, records of {size} B ({rate:,.0f} MB/s, {kept:,.0f} MB/s unpacked)"
    )
    return Row("cleaner", case, "s", times["ours"], "read, checksum, write", times["bare"])


def _keys(count: int, rounds: int) -> list[Row]:
    keys = [b"key-%012d" % number for number in range(count)]
    random.Random(3).shuffle(keys)
    offsets = list(range(count))
    # So large that the table is just full enough.
    made: list[KeyMap] = []
    known: dict[bytes, int] = {}

    def in_parts(take: Callable[[list[bytes], list[int]], object]) -> None:
        for start in range(0, count, 200):
            take(keys[start : start + 200], offsets[start : start + 200])

    def put() -> float:
        made[:] = [KeyMap(int(count * 24.04 / 0.9 * 8 / 7) + 1, 0.9, bytes(32))]
        return timed(lambda: in_parts(made[0].put_all))

    def put_dict() -> float:
        known.clear()
        return timed(lambda: in_parts(lambda some, at: known.update(zip(some, at, strict=True))))

    def get() -> float:
        return timed(lambda: in_parts(lambda some, _: made[0].get_all(some)))

    def get_dict() -> float:
        return timed(lambda: in_parts(lambda some, _: list(map(known.get, some))))

    rows = []
    for name, ours, theirs in (("put", put, put_dict), ("get", get, get_dict)):
        times = interleave({"ours": ours, "dict": theirs}, rounds)
        rate = count / times["ours"]
        each = made[0].memory_bytes / len(made[0])
        case = f"{name} {count:,} keys in the map ({rate:,.0f} keys/s, {each:.1f} B a key)"
        rows.append(Row("cleaner", case, "s", times["ours"], "dict", times["dict"]))
    return rows
