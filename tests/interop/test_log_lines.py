"""The log of a broker in a process of its own: nobody reads it, or somebody writes into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.interop.process import BrokerProcess
from tests.interop.wire import Wire, batch_of

FORGED = "2026-01-01T00:00:00.000Z CRITICAL server: all is lost"


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe into which nothing fits any more."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for piece in (b"." * 65536, b"."):
        with suppress(BlockingIOError):
            while True:
                os.write(write_end, piece)
    os.set_blocking(write_end, True)
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


def refuse_moves(wire: Wire, topic: str, path: str, count: int) -> None:
    """Ask for what is refused with a line for each of the partitions."""
    request = AlterReplicaLogDirsRequest(
        dirs=(
            AlterReplicaLogDir(
                path=path,
                topics=(
                    AlterReplicaLogDirTopic(name=TopicName(topic), partitions=tuple(range(count))),
                ),
            ),
        )
    )
    (result,) = wire.ask(request, AlterReplicaLogDirsResponse, 2).results
    assert all(partition.error_code for partition in result.partitions)
    assert len(result.partitions) == count


def test_a_broker_whose_log_nobody_reads_serves_and_stops(
    tmp_path: Path, full_pipe: tuple[int, int]
) -> None:
    _, write_end = full_pipe
    broker = BrokerProcess(tmp_path, options=["--request-log"], stderr=write_end)
    with broker, Wire(broker.bootstrap) as wire:
        wire.create_topic("quiet")
        refuse_moves(wire, "none", "/nowhere", 5000)
        for number in range(200):
            assert wire.produce("quiet", batch_of(b"%d" % number)).error_code == 0
        assert len(wire.stored_batches("quiet")) == 200
        assert broker.stop() == 0


def test_what_was_dropped_is_told_once_somebody_reads(
    tmp_path: Path, full_pipe: tuple[int, int]
) -> None:
    read_end, write_end = full_pipe
    broker = BrokerProcess(tmp_path, options=["--request-log"], stderr=write_end)
    with broker, Wire(broker.bootstrap) as wire:
        # Each is logged with its name, and all of them are more than the queue holds.
        for _ in range(1000):
            refuse_moves(wire, "x" * 7_000, "/nowhere", 1)
        said = b""
        while b"lines were dropped here" not in said:
            piece = os.read(read_end, 1 << 16)
            assert piece
            said += piece
        assert broker.stop() == 0
    assert b"INFO server: node 1 of cluster" in said


def test_refusals_are_logged_a_hundred_times_and_then_counted(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with broker, Wire(broker.bootstrap) as wire:
        refuse_moves(wire, "none", "/nowhere", 5000)
        assert broker.stop() == 0
    assert broker.log.count("cannot be moved to /nowhere") == 100
    assert "WARNING log: 4900 more lines of dohle.server like this one: %s cannot be" in broker.log


def test_a_name_cannot_forge_lines_nor_steer_a_terminal(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with broker, Wire(broker.bootstrap) as wire:
        refuse_moves(wire, f"a\n{FORGED}\r\n\x1b[2J\x9b", f"/b\n{FORGED}\n", 1)
        assert broker.stop() == 0
    (line,) = [line for line in broker.log.split("\n") if "cannot be moved" in line]
    assert rf"a\n{FORGED}\r\n\x1b[2J\x9b-0 cannot be moved to /b\n{FORGED}\n" in line
    assert not [line for line in broker.log.split("\n") if line.startswith("2026-01-01")]
    assert broker.log.replace("\n", "").isprintable()
