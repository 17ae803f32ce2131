from __future__ import annotations

import pytest

from dohle.storage.directory.clean_shutdown import (
    has_clean_shutdown,
    read_broker_epoch,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from dohle.testing.simulation.files import SimulatedFileSystem


def disk(content: bytes | None = None) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs("/data")
    fs.settle()
    if content is not None:
        fs.put("/data/.kafka_cleanshutdown", content)
    return fs


def test_the_mark_is_written_as_kafka_writes_it_and_survives_a_power_cut() -> None:
    fs = disk()
    write_clean_shutdown(fs, "/data", 42)
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {"/data/.kafka_cleanshutdown": b'{"version":0,"brokerEpoch":42}'}
    assert has_clean_shutdown(fs, "/data")
    assert read_broker_epoch(fs, "/data") == 42


def test_without_the_mark_there_is_no_epoch() -> None:
    fs = disk()
    assert not has_clean_shutdown(fs, "/data")
    assert read_broker_epoch(fs, "/data") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"version":0}',
        b'{"brokerEpoch":null}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":9223372036854775808}',
        b"[" * 100_000,
    ],
)
def test_a_mark_that_says_nothing_is_a_mark_all_the_same(content: bytes) -> None:
    fs = disk(content)
    assert has_clean_shutdown(fs, "/data")
    assert read_broker_epoch(fs, "/data") is None


def test_later_versions_of_the_mark_are_read() -> None:
    fs = disk(b'{"version":5,"brokerEpoch":-1,"more":[1]}')
    assert read_broker_epoch(fs, "/data") == -1


def test_a_removed_mark_does_not_come_back_with_a_power_cut() -> None:
    fs = disk(b"")
    remove_clean_shutdown(fs, "/data")
    fs.power_loss_everything_unsynced_lost()
    assert not has_clean_shutdown(fs, "/data")
    remove_clean_shutdown(fs, "/data")


def test_a_mark_removed_by_a_process_that_was_killed_before_its_sync_does_not_come_back() -> None:
    fs = disk(b"")
    fs.settle()
    fs.remove("/data/.kafka_cleanshutdown")
    fs.crash()
    remove_clean_shutdown(fs, "/data")
    fs.power_loss_everything_unsynced_lost()
    assert not has_clean_shutdown(fs, "/data")
