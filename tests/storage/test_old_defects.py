"""Defects of others' logs, as they happened there (H numbers)."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.records.batch import batches
from dohle.storage import log_read
from dohle.storage.log_values import Isolation
from tests.storage.logs import Node, append, append_marker, append_transactional, data

PID = 7


def test_h12_what_is_committed_while_it_is_read_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KAFKA-9807: a reader of committed records sees the log as it was at one moment.

    There the high watermark was read twice: the second time a transaction that was open, and is
    aborted behind what is read, seemed to be over.
    """
    log = Node().log
    append(log, data())
    append_transactional(log, PID, 0)
    append(log, data())
    assert log.last_stable_offset == 1
    read_segments = log_read._read_segments

    def read_later(*about: Any, **more: Any) -> Any:
        append_marker(log, PID, commit=False)
        log.update_high_watermark(log.log_end_offset)
        return read_segments(*about, **more)

    monkeypatch.setattr(log_read, "_read_segments", read_later)
    found = log_read.read(log, 0, 1 << 20, Isolation.TXN_COMMITTED)
    assert found.slice is not None
    assert [batch.base_offset for batch in batches(found.slice.read())] == [0]
    assert log.last_stable_offset == 4


def test_h32_a_flush_of_what_was_cut_off_says_nothing_of_what_came_instead() -> None:
    """etcd: the same entry again, at the same offset, and the late word that the first is on disk.

    The recovery point is what a voter of the quorum tells others of.
    """
    log = Node().log
    append(log, data())
    log.flush()
    append(log, data(), data())
    job = log.prepare_flush()
    assert job is not None
    log.truncate_to(1)
    append(log, data(), data())
    job.run()
    log.complete_flush(job)
    assert (log.recovery_point, log.log_end_offset) == (1, 3)
    log.flush()
    assert log.recovery_point == 3
