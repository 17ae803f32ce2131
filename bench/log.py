"""The log beside bare system calls: append, read, recovery, opening many partitions.

Everything is written to the page cache of the folder given by ``TMPDIR``; the peer in each case is
the loop over ``os.pwrite``/``os.pread`` and the checksum that no broker can do without.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import crc32c

from bench.report import Row, interleave, timed
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.core.seams import SystemClock
from dohle.core.uuid import random_uuid
from dohle.records.builder import BatchBuilder
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.files import OsFileSystem
from dohle.storage.log import Log

#: (name, bytes of one batch's records, records, appends a round, most ratio to reach)
APPEND_CASES = (
    ("1 record of 100 B", 100, 1, 5_000, None),
    ("16 KB batch", 16, 1_000, 2_000, None),
    ("1 MB batch", 1_000, 1_000, 100, 1.3),
)
PARTITIONS = 2_000
OPEN_SECONDS_MAX = 1.0
CONFIG = LogConfig(file_delete_delay_ms=0)


def run(quick: bool = False) -> list[Row]:
    """Measure all cases."""
    rounds = 3 if quick else 9
    rows: list[Row] = []
    for name, size, records, appends, reach in APPEND_CASES:
        batch = _batch(size, records)
        rows += _append_and_read(name, batch, appends, rounds, reach)
        rows.append(_recovery(name, batch, rounds, None if records == 1 else 1.5))
    rows.append(_open_many(rounds=3))
    return rows


def _batch(size: int, records: int) -> bytearray:
    payload = random.Random(7).randbytes(size)
    builder = BatchBuilder()
    for number in range(records):
        builder.append(1_700_000_000_000 + number, None, payload)
    return builder.build()


@contextmanager
def _folder() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="dohle-bench-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _manager(path: str) -> LogManager:
    manager = LogManager(OsFileSystem(), clock=SystemClock(), rng=random.Random(1))
    manager.open([path], Identity("bench", BrokerId(1)), lambda _: CONFIG)
    return manager


def _partition(number: int) -> TopicPartition:
    return TopicPartition(TopicName("bench"), number)


def _new_log(manager: LogManager, number: int = 0) -> Log:
    return manager.get_or_create(_partition(number), random_uuid(random.Random(number)), CONFIG)


def _bare_append(path: str, batch: bytearray, appends: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    position = 0
    for _ in range(appends):
        batch[0:8] = bytes(8)
        crc32c.crc32c(memoryview(batch)[21:])
        position += os.pwrite(fd, batch, position)
    os.close(fd)


def _append(log: Log, batch: bytearray, appends: int) -> None:
    for _ in range(appends):
        batch[0:8] = bytes(8)
        log.append_as_leader(batch, 0)


def _read(log: Log, batch_size: int) -> None:
    offset, step = 0, log.log_end_offset * batch_size // log.size
    while offset < log.log_end_offset:
        found = log_read.read(log, offset, batch_size).slice
        assert found is not None
        found.read()
        offset += step


def _bare_read(path: str, batch_size: int) -> None:
    fd = os.open(path, os.O_RDONLY)
    position = 0
    while data := os.pread(fd, batch_size, position):
        position += len(data)
    os.close(fd)


def _append_and_read(
    name: str, batch: bytearray, appends: int, rounds: int, reach: float | None
) -> list[Row]:
    with _folder() as folder:
        manager = _manager(folder + "/logs")
        logs: list[Log] = []
        bare = folder + "/bare"

        # Each round begins with a new file and the last one's pages given back, on both sides.
        def dohle_append() -> float:
            if logs:
                manager.delete(logs[-1].partition)
                manager.run_due()
            logs.append(_new_log(manager, len(logs)))
            return timed(lambda: _append(logs[-1], batch, appends))

        def bare_append() -> float:
            if os.path.exists(bare):
                os.unlink(bare)
            return timed(lambda: _bare_append(bare, batch, appends))

        appended = interleave({"dohle": dohle_append, "bare": bare_append}, rounds)
        read = interleave(
            {
                "dohle": lambda: timed(lambda: _read(logs[-1], len(batch))),
                "bare": lambda: timed(lambda: _bare_read(bare, len(batch))),
            },
            rounds,
        )
        manager.close()
    scale = 1e6 / appends
    rate = len(batch) * appends / 1e6
    return [
        Row(
            "append",
            f"{name} ({rate / appended['dohle']:,.0f} MB/s)",
            "µs",
            appended["dohle"] * scale,
            "write + crc",
            appended["bare"] * scale,
            reach,
        ),
        Row(
            "read",
            f"{name} ({rate / read['dohle']:,.0f} MB/s)",
            "µs",
            read["dohle"] * scale,
            "pread",
            read["bare"] * scale,
        ),
    ]


def _recovery(name: str, batch: bytearray, rounds: int, reach: float | None) -> Row:
    with _folder() as folder:
        manager = _manager(folder + "/logs")
        log = _new_log(manager)
        size = 64_000_000 if len(batch) > 1_000 else 4_000_000
        _append(log, batch, size // len(batch))
        path, total = log.segments.active.path, log.size
        manager.release()

        def recover() -> float:
            opened: list[LogManager] = []
            took = timed(lambda: opened.append(_manager(folder + "/logs")))
            opened[0].release()
            return took

        found = interleave(
            {"dohle": recover, "bare": lambda: timed(lambda: _bare_scan(path))}, rounds
        )
    return Row(
        "recovery",
        f"{name} ({total / found['dohle'] / 1e6:,.0f} MB/s)",
        "ms",
        found["dohle"] * 1e3,
        "read + crc",
        found["bare"] * 1e3,
        reach,
    )


def _bare_scan(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    buffer = bytearray(1 << 20)
    position, crc = 0, 0
    while size := os.preadv(fd, [buffer], position):
        crc = crc32c.crc32c(memoryview(buffer)[:size], crc)
        position += size
    os.close(fd)


def _open_many(rounds: int) -> Row:
    with _folder() as folder:
        manager = _manager(folder + "/logs")
        batch = _batch(100, 1)
        for number in range(PARTITIONS):
            _append(_new_log(manager, number), batch, 1)
        manager.close()

        def open_all() -> float:
            opened: list[LogManager] = []
            took = timed(lambda: opened.append(_manager(folder + "/logs")))
            opened[0].close()
            return took

        cases: dict[str, Callable[[], float]] = {"dohle": open_all}
        seconds = interleave(cases, rounds)["dohle"]
    return Row(
        "open",
        f"{PARTITIONS:,} clean partitions ({PARTITIONS / seconds:,.0f}/s)",
        "s",
        seconds,
        "2,000/s",
        OPEN_SECONDS_MAX,
        1.0,
    )
