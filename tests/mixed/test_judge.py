"""The judge can say no."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mixed.complaints import complaints_in
from tests.mixed.judge import digests
from tests.storage.logs import batch

KAFKA_LOG = """\
[main] INFO kafka.server.KafkaRaftServer - Kafka Server started
[loader] ERROR state.change.logger - Expected a-0 to exist, but it was missing. Creating...
[raft] ERROR org.apache.kafka.server.fault - Encountered fatal fault: Unexpected error
java.lang.IllegalStateException: two leaders
	at org.apache.kafka.raft.QuorumState
[fetcher] ERROR kafka.server.ReplicaFetcherThread - Error for partition a-0
"""
DOHLE_LOG = """\
2026-01-01 10:00:00 INFO    dohle.server: bootstrap 127.0.0.1:9092
2026-01-01 10:00:01 ERROR dohle.server: unexpected
Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: no
2026-01-01 10:00:02 WARNING dohle.server: this is nothing
"""


def log_of(folder: Path, *contents: bytes) -> Path:
    """Write a log of one segment for each of the contents, from offset 0 on."""
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number:020}.log").write_bytes(content)
    return folder


def at(offset: int, value: bytes) -> bytes:
    return bytes(batch(value=value, base_offset=offset))


@pytest.mark.parametrize(
    ("other", "are_same"),
    [
        ([(0, b"a"), (1, b"b")], True),
        # What is not committed may differ.
        ([(0, b"a"), (1, b"b"), (2, b"x")], True),
        # One that began later has less.
        ([(1, b"b")], True),
        ([(0, b"a"), (1, b"x")], False),
        ([(0, b"a")], False),
        ([(0, b"a"), (2, b"b")], False),
        ([(0, b"")], False),
    ],
)
def test_logs_are_the_same_if_they_are_below_the_high_watermark(
    tmp_path: Path, other: list[tuple[int, bytes]], are_same: bool
) -> None:
    one = log_of(tmp_path / "1", at(0, b"a") + at(1, b"b"), at(2, b"c"))
    two = log_of(tmp_path / "2", *(at(offset, value) for offset, value in other))
    told = digests({1: one, 2: two}, end_offset=2)
    assert (told[1] == told[2]) is are_same


def test_a_log_that_lacks_everything_is_not_the_same(tmp_path: Path) -> None:
    one = log_of(tmp_path / "1", at(0, b"a"))
    two = log_of(tmp_path / "2", b"")
    told = digests({1: one, 2: two}, end_offset=1)
    assert told[1] != told[2]


def test_a_log_that_begins_behind_a_snapshot_of_all_is_the_same(tmp_path: Path) -> None:
    one = log_of(tmp_path / "1", at(0, b"a") + at(1, b"b"))
    two = tmp_path / "2"
    two.mkdir()
    (two / f"{1:020}.log").write_bytes(b"")
    told = digests({1: one, 2: two}, end_offset=1)
    assert told[1] == told[2]


def test_a_batch_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    one = log_of(tmp_path / "1", at(0, b"a") + at(1, b"b")[:-1])
    two = log_of(tmp_path / "2", at(0, b"a"))
    told = digests({1: one, 2: two}, end_offset=2)
    assert told[1] == told[2]


def test_errors_of_both_kinds_are_complaints_unless_there_is_a_reason() -> None:
    assert [each.splitlines()[-1] for each in complaints_in(KAFKA_LOG)] == [
        "java.lang.IllegalStateException: two leaders",
        "[fetcher] ERROR kafka.server.ReplicaFetcherThread - Error for partition a-0",
    ]
    assert [each.splitlines()[-1] for each in complaints_in(DOHLE_LOG)] == [
        "2026-01-01 10:00:01 ERROR dohle.server: unexpected",
        "ValueError: no",
    ]
