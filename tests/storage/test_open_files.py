"""Few descriptors for many segments: what is closed meanwhile, and what must stay open."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.files import File, OsFileSystem
from dohle.storage.log import Log
from dohle.storage.open_files import OpenFiles
from tests.storage.logs import Node, append, data, refuses


class Holder:
    """Keeps one file, as a segment does."""

    def __init__(self, open_files: OpenFiles, path: Path) -> None:
        self.was_used = False
        self.file: File | None = OsFileSystem().open(str(path), write=True, create=True)
        open_files.opened(self, self.file)

    def let_go(self) -> None:
        self.file = None


def holders(open_files: OpenFiles, folder: Path, count: int) -> list[Holder]:
    return [Holder(open_files, folder / str(number)) for number in range(count)]


def open_numbers(found: list[Holder]) -> list[int]:
    return [number for number, holder in enumerate(found) if holder.file is not None]


def test_the_newest_files_stay_open_if_none_is_used_again(tmp_path: Path) -> None:
    assert open_numbers(holders(OpenFiles(3), tmp_path, 8)) == [5, 6, 7]


def test_a_file_that_is_used_stays_longer_than_one_that_is_not(tmp_path: Path) -> None:
    open_files = OpenFiles(4)
    found = holders(open_files, tmp_path, 4)
    # All have been used once, by being opened: the first round only takes the marks off.
    found += holders(open_files, tmp_path, 1)
    assert open_numbers(found) == [1, 2, 3, 4]
    found[1].was_used = True
    found += holders(open_files, tmp_path, 2)
    assert open_numbers(found) == [1, 4, 5, 6]


def test_a_file_that_its_holder_has_closed_leaves_room_for_another(tmp_path: Path) -> None:
    open_files = OpenFiles(2)
    found = holders(open_files, tmp_path, 2)
    open_files.forget(found[1])
    found += holders(open_files, tmp_path, 1)
    assert open_numbers(found) == [0, 1, 2]


def test_files_that_others_refer_to_are_counted_until_they_are_let_go_of(tmp_path: Path) -> None:
    open_files = OpenFiles(2, held_max=2)
    found = holders(open_files, tmp_path, 2)
    held = [holder.file for holder in found]
    seen = [open_files.may_hold_more]
    found += holders(open_files, tmp_path, 2)
    assert open_numbers(found) == [2, 3]
    seen.append(open_files.may_hold_more)
    held.pop()
    seen.append(open_files.may_hold_more)
    assert seen == [True, False, True]


def test_everything_can_be_given_back(tmp_path: Path) -> None:
    open_files = OpenFiles(5)
    found = holders(open_files, tmp_path, 5)
    for left in (4, 3, 2, 1, 0):
        assert open_files.give_back()
        assert len(open_numbers(found)) == left
    assert not open_files.give_back()


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process have exactly those descriptors that are in use."""
    lowest_free = os.dup(0)
    os.close(lowest_free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def many_logs(node: Node, count: int) -> list[Log]:
    return [node.create(TopicPartition(TopicName("many"), number)) for number in range(count)]


def node_on(path: Path, open_files: OpenFiles) -> Node:
    config = LogConfig(retention_ms=-1, segment_bytes=400)
    return Node(config, fs=OsFileSystem(), paths=[str(path)], open_files=open_files)


def test_many_logs_are_written_and_read_with_few_files_open(tmp_path: Path) -> None:
    node = node_on(tmp_path, OpenFiles(4))
    before = descriptors()
    logs = many_logs(node, 40)
    for _ in range(6):
        for log in logs:
            append(log, data(1))
            assert descriptors() <= before + 5
    for clean in (True, False):
        node.restart(clean=clean)
        for log in many_logs(node, 40):
            assert log.log_end_offset == 6
            assert log_read.read(log, 0, 1_000).size > 0
            assert descriptors() <= before + 5
    node.stop()


def test_a_slice_stays_good_when_its_segment_lets_go_of_the_file(tmp_path: Path) -> None:
    node = node_on(tmp_path, OpenFiles(1))
    logs = many_logs(node, 5)
    for log in logs:
        append(log, data(1), data(1))
    pieces = [log_read.read(log, 0, 1_000).slice for log in logs]
    read = [None if piece is None else piece.read() for piece in pieces]
    assert None not in read
    for log in logs:
        log.truncate_fully_and_start_at(10)
        append(log, data(1))
    assert [None if piece is None else piece.read() for piece in pieces] == read
    node.stop()


def test_a_log_that_finds_no_descriptor_takes_one_from_another(tmp_path: Path) -> None:
    """Somebody else in the process has taken those that were meant for it."""
    node = node_on(tmp_path, OpenFiles(20))
    logs = many_logs(node, 10)
    for log in logs:
        append(log, data(1))
    more = many_logs(node, 12)[10:]
    with no_descriptor_left():
        for log in [*more, *logs]:
            append(log, data(1), data(1), data(1), data(1))
            log.flush()
            assert log_read.read(log, 0, 1_000).size > 0
    assert node.manager.offline_directories == {}
    node.stop()


def test_a_reader_for_whom_there_is_no_descriptor_at_all_is_refused_and_the_disk_stays_online(
    tmp_path: Path,
) -> None:
    open_files = OpenFiles(20)
    node = node_on(tmp_path, open_files)
    log = node.log
    append(log, data(1))
    while open_files.give_back():
        pass
    with no_descriptor_left():
        error = refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: log_read.read(log, 0, 1_000))
        assert os.strerror(errno.EMFILE) in str(error)
        refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: log_read.find_by_timestamp(log, 0))
    assert log_read.read(log, 0, 1_000).size > 0
    assert node.manager.offline_directories == {}
    append(log, data(1))
    node.stop()
