"""Cleaning done in another process: the same as done here, and nothing is left of it."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.server.host import SystemChild, SystemNodeHost
from dohle.server.partitions.cleaning_child import CleaningChild
from dohle.server.partitions.cleaning_process import CleaningProcess
from dohle.server.partitions.cleaning_wire import (
    BuildMap,
    Done,
    Rewrite,
    Written,
    receive,
    send,
)
from dohle.storage.cleaning.reading import ClosedSegment
from dohle.storage.cleaning.round_values import (
    CleanerSettings,
    CleaningAborted,
    Uncleanable,
    unthrottled,
)
from dohle.storage.cleaning.round_work import Mapped, Rewritten, RoundSpec
from tests.server.wire import UnsyncedFileSystem
from tests.storage.cleaning.cleaning import (
    SETTINGS,
    clean,
    compacted,
    last_values,
    put,
    read_all,
    tiny_map,
)
from tests.storage.cleaning.steps import STEPS, Step, Writer
from tests.storage.logs import Node, property_test

CONFIG = compacted(400)
DEADLINE_S = 30.0
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its processes")


@pytest.fixture(scope="module")
def shared() -> Iterator[CleaningProcess]:
    process = CleaningProcess(SystemNodeHost())
    yield process
    process.end()


@pytest.fixture
def process() -> Iterator[CleaningProcess]:
    """One that a test may lose."""
    process = CleaningProcess(SystemNodeHost())
    yield process
    process.end()


def apart(
    process: CleaningProcess,
    settings: CleanerSettings = SETTINGS,
    throttle: Callable[[int], None] = unthrottled,
) -> CleanerSettings:
    """Settings with which rounds are done in a process."""
    is_paced = throttle is not unthrottled
    new_work = partial(process.new_work, is_paced=is_paced)
    return replace(settings, throttle=throttle, new_work=new_work)


def open_node(path: Path | str) -> Node:
    return Node(CONFIG, fs=UnsyncedFileSystem(), paths=[str(path)])


def updated_often(path: Path) -> Node:
    """A log of some segments, in which each of few keys was written often."""
    node = open_node(path)
    for number in range(40):
        put(node.log, (b"%d" % (number % 7), b"%d" % number * 30))
    return node


def second_segment(node: Node) -> Path:
    return Path(tuple(node.log.segments)[1].path)


@property_test(20)
@given(STEPS, st.sampled_from([SETTINGS, tiny_map(3)]))
def test_a_process_writes_the_same_files(
    shared: CleaningProcess, steps: list[Step], settings: CleanerSettings
) -> None:
    found = []
    for one in (settings, apart(shared, settings)):
        with tempfile.TemporaryDirectory() as path:
            node = open_node(path)
            writer = Writer(node.log)
            for step in steps:
                writer.take(step)
            cleaning = clean(node.log, 0, settings=one)
            again = clean(node.log, cleaning.end_offset, settings=one)
            found.append(
                (
                    node.files(),
                    cleaning.end_offset,
                    again.end_offset,
                    cleaning.statistics,
                    again.statistics,
                )
            )
            node.manager.close()
    assert found[0] == found[1]
    assert shared.is_running


def test_a_process_asks_for_every_byte_that_is_limited(
    shared: CleaningProcess, tmp_path: Path
) -> None:
    """Compaction: log.cleaner.io.max.bytes.per.second holds wherever the work is done."""
    here, there = list[int](), list[int]()
    clean(updated_often(tmp_path / "1").log, settings=replace(SETTINGS, throttle=here.append))
    clean(updated_often(tmp_path / "2").log, settings=apart(shared, throttle=there.append))
    assert sum(here) == sum(there) > 0
    assert max(there) == max(here)


@pytest.mark.parametrize("piece", [0, 1, 10, 20])
def test_a_process_that_is_killed_leaves_a_log_that_can_be_cleaned(
    process: CleaningProcess, tmp_path: Path, piece: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = updated_often(tmp_path)
    before, seen = read_all(node.log), 0

    def kill_soon(_size: int) -> None:
        nonlocal seen
        seen += 1
        if seen > piece:
            process.kill()

    with pytest.raises(CleaningAborted):
        clean(node.log, settings=apart(process, throttle=kill_soon))
    assert seen > piece
    assert not process.is_running
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the cleaning process was ended by SIGKILL, so a thread goes on"
    ]
    assert node.files(".cleaned", ".swap") == {}
    assert last_values(read_all(node.log)) == last_values(before)
    clean(node.log, settings=apart(process))
    assert not process.is_running, "a thread has done it"
    assert last_values(read_all(node.log)) == last_values(before)
    assert len(read_all(node.log)) < len(before) / 2


def test_a_process_is_tried_again_some_rounds_after_it_was_lost(
    process: CleaningProcess, tmp_path: Path
) -> None:
    node = updated_often(tmp_path)
    with pytest.raises(CleaningAborted):
        clean(node.log, settings=apart(process, throttle=lambda _: process.kill()))
    for _ in range(20):
        clean(node.log, settings=apart(process))
        if process.is_running:
            return
    pytest.fail("it was not")


class Refusing(SystemNodeHost):
    """A machine on which no process starts."""

    def start_child(self, module: str) -> None:
        raise OSError(errno.EAGAIN, "there are too many")


class Failing(SystemNodeHost):
    """A machine on which processes end at once."""

    def start_child(self, module: str) -> SystemChild | None:
        return super().start_child("dohle.core.texts")


@pytest.mark.parametrize("host", [Refusing, Failing])
def test_without_a_process_a_thread_cleans(
    host: type[SystemNodeHost], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = updated_often(tmp_path)
    before, process = read_all(node.log), CleaningProcess(host())
    for _ in range(2):
        clean(node.log, settings=apart(process))
    assert last_values(read_all(node.log)) == last_values(before)
    assert len(read_all(node.log)) < len(before) / 2
    assert not process.is_running
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.partition(":")[0] for text in told] == [
        "no process for cleaning can be started, so a thread cleans"
    ]


def test_what_is_wrong_with_a_log_is_told_as_here(shared: CleaningProcess, tmp_path: Path) -> None:
    told = []
    for number, settings in enumerate((SETTINGS, apart(shared))):
        node = updated_often(tmp_path / str(number))
        path = second_segment(node)
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(Uncleanable) as found:
            clean(node.log, settings=settings)
        told.append(found.value.reason.replace(node.log.directory, ""))
        assert node.files(".cleaned", ".swap") == {}
    assert told[0] == told[1]
    assert "checksum" in told[0]


def test_an_error_of_the_disk_keeps_its_number(shared: CleaningProcess, tmp_path: Path) -> None:
    node = updated_often(tmp_path)
    path = second_segment(node)
    path.unlink()
    with pytest.raises(FileNotFoundError) as found:
        clean(node.log, settings=apart(shared))
    assert (found.value.errno, found.value.filename) == (errno.ENOENT, str(path))


def test_a_truncation_ends_what_the_process_does(process: CleaningProcess, tmp_path: Path) -> None:
    node = updated_often(tmp_path)

    def truncate(_size: int) -> None:
        node.log.truncate_to(20)

    with pytest.raises(CleaningAborted, match="stopped"):
        clean(node.log, settings=apart(process, throttle=truncate))
    assert node.files(".cleaned", ".swap") == {}
    clean(node.log, settings=apart(process))
    assert process.is_running, "it was ended on purpose, so there is another"
    assert last_values(read_all(node.log)) == {
        b"%d" % (number % 7): b"%d" % number * 30 for number in range(13, 20)
    }


class FirstGroup:
    """Work as a process does it, up to the first group, and what it tells meanwhile."""

    def __init__(self) -> None:
        self._requests: list[object] = []
        self.told: list[object] = []

    def build_map(self, spec: RoundSpec) -> Mapped:
        found = self._ask(BuildMap(spec, is_paced=False))
        assert isinstance(found, Mapped)
        return found

    def rewrite(self, sources: Sequence[ClosedSegment]) -> Rewritten:
        self._ask(Rewrite(tuple(sources)))
        raise CleaningAborted("that was all")

    def clear(self) -> None: ...

    def stop(self) -> None: ...

    def _ask(self, request: object) -> object:
        self._requests.append(request)
        source, out = BytesIO(), BytesIO()
        for one in self._requests:
            send(source, one)
        source.seek(0)
        with pytest.raises(EOFError):
            CleaningChild(source, out, os.getppid()).run()
        out.seek(0)
        self.told.clear()
        with suppress(EOFError):
            while True:
                self.told.append(receive(out))
        answer = self.told[-1]
        assert isinstance(answer, Done)
        return answer.result


@pytest.mark.parametrize(("free", "is_told"), [(1_000, True), (1 << 40, False)])
def test_a_process_tells_what_it_writes_if_that_is_much_of_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_told: bool
) -> None:
    """An append that meets the end of the disk would take the directory offline."""
    node, work = open_node(tmp_path), FirstGroup()
    for number in range(10):
        put(node.log, (b"always", b""), (b"%d" % number, b"stays" * 20))
    room = SimpleNamespace(f_blocks=2 * free, f_bavail=free, f_frsize=1)
    settings = replace(SETTINGS, new_work=lambda *_: work)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: room)
        with pytest.raises(CleaningAborted, match="all"):
            clean(node.log, settings=settings)
    written = [one for one in work.told if isinstance(one, Written)]
    assert bool(written) == is_told
    assert all(one.usable == free and one.size > free / 8 for one in written)


#: Starts a process as a node does. Another program gets a copy of the node's end of the pipe, so
#: that the end of the node does not show there; it ends with stdin.
NODE = """
import subprocess, sys
from dohle.server.host import SystemNodeHost
child = SystemNodeHost().start_child("dohle.server.partitions.cleaning_child")
child.answers.peek(1)
subprocess.Popen(
    [sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[child.requests.fileno()]
)
print(child._process.pid, flush=True)
sys.stdin.read()
"""


@ON_LINUX
def test_a_process_does_not_survive_its_node() -> None:
    """It could write to a log that another node has opened since."""
    node = subprocess.Popen(
        [sys.executable, "-c", NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert node.stdout is not None
        child_id = int(node.stdout.readline())
        assert is_alive(child_id)
        node.kill()
        node.wait()
        deadline = time.monotonic() + DEADLINE_S
        while is_alive(child_id):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        node.kill()
        node.communicate()


def is_alive(process_id: int) -> bool:
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] != "Z"
