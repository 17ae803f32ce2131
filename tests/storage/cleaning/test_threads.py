"""Jobs in a thread, on real files, beside appends and reads."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dohle.core.seams import ManualClock
from dohle.storage.cleaning.round import CleaningRound
from dohle.storage.cleaning.selection import look_at
from dohle.storage.directory.manager import LogManager
from dohle.storage.files import OsFileSystem
from dohle.storage.open_files import OpenFiles
from tests.storage.cleaning.cleaning import SETTINGS, compacted, last_values, put, read_all
from tests.storage.logs import IDENTITY, NOW_MS, PARTITION, TOPIC_ID

CONFIG = compacted(20_000)


def open_manager(path: Path) -> LogManager:
    manager = LogManager(
        OsFileSystem(), clock=ManualClock(NOW_MS), rng=random.Random(1), open_files=OpenFiles(2)
    )
    manager.open([str(path)], IDENTITY, lambda _: CONFIG)
    return manager


def test_the_log_is_used_while_its_jobs_run(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(PARTITION, TOPIC_ID, CONFIG)
    rng, model = random.Random(2), dict[bytes, bytes | None]()

    def update() -> None:
        pairs = [(b"%d" % rng.randrange(300), rng.choice([b"x" * 30, None])) for _ in range(20)]
        put(log, *pairs)
        for key, value in pairs:
            model[key] = value

    for _ in range(200):
        update()
    checkpoint = 0
    with ThreadPoolExecutor(1) as threads:
        for _ in range(3):
            cleanable = look_at(log, checkpoint, NOW_MS)
            round = CleaningRound(log, cleanable, SETTINGS, NOW_MS)
            while (job := round.next_job()) is not None:
                running = threads.submit(job.run)
                while not running.done():
                    update()
                    expected = {key: value for key, value in model.items() if value is not None}
                    assert last_values(read_all(log)) == expected
                round.complete(job)
            checkpoint = round.end_offset
    assert checkpoint > 0
    expected = {key: value for key, value in model.items() if value is not None}
    manager.close()
    manager = open_manager(tmp_path)
    found = manager.get(PARTITION)
    assert found is not None
    found.update_high_watermark(found.log_end_offset)
    assert last_values(read_all(found)) == expected
    manager.close()
