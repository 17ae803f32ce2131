from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Callable
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.host import StreamSocket
from dohle.core.seams import ManualClock
from dohle.storage.files import Entry, FileSystem, OsFileSystem
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem

LOG = "/data/log"


def disk() -> SimulatedFileSystem:
    """A disk with a folder that is safe, and fresh counters."""
    fs = SimulatedFileSystem()
    fs.make_dirs("/data")
    fs.settle()
    return fs.copy()


def write(fs: FileSystem, path: str, data: bytes, position: int = 0, sync: bool = False) -> None:
    file = fs.open(path, write=True, create=True)
    file.write_at(position, data)
    if sync:
        file.sync()
    file.close()


# -- like the machine's own --------------------------------------------------------------------

names = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/a", "x/y"])
steps = st.one_of(
    st.tuples(st.just("write"), names, st.integers(0, 40), st.binary(max_size=30)),
    st.tuples(st.just("truncate"), names, st.integers(0, 60)),
    st.tuples(st.just("allocate"), names, st.integers(0, 60)),
    st.tuples(st.just("make_dirs"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("remove_tree"), names),
    st.tuples(
        st.just("rename"), st.sampled_from(["a", "b", "d"]), st.sampled_from(["a", "b", "d"])
    ),
    st.tuples(st.just("rename"), st.just("d/e"), st.just("d/a")),
    st.tuples(st.just("look"), names),
    st.tuples(st.just("read_at"), names, st.integers(0, 70), st.integers(0, 70)),
    st.tuples(st.just("sync_dir"), names),
    st.tuples(st.just("set_mtime"), names, st.integers(0, 1 << 40)),
)


def do(fs: FileSystem, root: str, what: str, name: str, *args: object) -> object:
    """Do one step and return what it showed: a value, or the kind of error."""
    path = f"{root}/{name}"
    try:
        match (what, *args):
            case ("write", int(position), bytes(data)):
                file = fs.open(path, write=True, create=True)
                file.write_all_at(position, [data[:10], memoryview(data)[10:]])
                file.sync()
                file.close()
                return fs.read(path)
            case ("truncate", int(size)):
                file = fs.open(path, write=True)
                file.truncate(size)
                file.close()
                return fs.read(path)
            case ("allocate", int(size)):
                file = fs.open(path, write=True)
                file.allocate(size)
                shown = file.size()
                file.close()
                return shown
            case ("read_at", int(position), int(size)):
                file = fs.open(path)
                buffer = bytearray(size)
                count = file.read_into(position, buffer)
                shown_bytes = file.read_at(position, size)
                file.close()
                return count, bytes(buffer), shown_bytes
            case ("rename", str(target)):
                fs.rename(path, f"{root}/{target}")
            case ("set_mtime", int(mtime_ms)):
                fs.set_mtime(path, mtime_ms)
                return fs.stat(path).mtime_ms
            case ("look",):
                return sorted(fs.list_dir(path)) if fs.exists(path) else None
            case _:
                getattr(fs, what)(path)
    except OSError as error:
        return type(error)
    return None


def tree(fs: FileSystem, path: str) -> object:
    return {
        entry.name: tree(fs, f"{path}/{entry.name}")
        if entry.is_dir
        else (fs.read(f"{path}/{entry.name}"), fs.stat(f"{path}/{entry.name}").size)
        for entry in fs.list_dir(path)
    }


@given(st.lists(steps, max_size=20))
def test_without_faults_it_behaves_like_the_machines_own(
    history: list[tuple[str, str, *tuple[object, ...]]],
) -> None:
    simulated = disk()
    with tempfile.TemporaryDirectory() as folder:
        for what, name, *args in history:
            shown = do(simulated, "/data", what, name, *args)
            assert shown == do(OsFileSystem(), folder, what, name, *args)
        assert tree(simulated, "/data") == tree(OsFileSystem(), folder)


def test_files_open_for_reading_cannot_be_changed() -> None:
    fs = disk()
    write(fs, LOG, b"abc")
    file = fs.open(LOG)
    with pytest.raises(OSError) as refused:
        file.write_at(0, b"x")
    assert refused.value.errno == errno.EBADF
    with pytest.raises(OSError) as refused:
        file.truncate(0)
    assert refused.value.errno == errno.EBADF
    assert file.read_at(0, 9) == b"abc"


def test_a_closed_file_is_of_no_use_and_can_be_closed_again() -> None:
    fs = disk()
    file = fs.open(LOG, write=True, create=True)
    file.close()
    file.close()
    with pytest.raises(OSError) as refused:
        file.read_at(0, 1)
    assert refused.value.errno == errno.EBADF


class Sink:
    """A socket that has room for five bytes."""

    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        self.sent += bytes(data[:5])
        return len(data[:5])


def test_what_a_socket_takes_of_a_file_is_sent_to_it() -> None:
    file = disk().open(LOG, write=True, create=True)
    file.write_at(0, b"0123456789")
    sink = Sink()
    assert file.send_to(cast("StreamSocket", sink), 2, 100) == 5
    assert file.send_to(cast("StreamSocket", sink), 7, 2) == 2
    assert file.send_to(cast("StreamSocket", sink), 10, 2) == 0
    assert sink.sent == b"2345678"


def test_an_open_file_outlives_its_name() -> None:
    fs = disk()
    file = fs.open(LOG, write=True, create=True)
    fs.remove(LOG)
    file.write_at(0, b"abc")
    assert file.read_at(0, 9) == b"abc"
    assert fs.files() == {}


def test_a_rename_stays_within_its_folder() -> None:
    fs = disk()
    fs.make_dirs("/other")
    write(fs, LOG, b"abc")
    with pytest.raises(OSError) as refused:
        fs.rename(LOG, "/other/log")
    assert refused.value.errno == errno.EXDEV


def test_times_come_from_the_clock() -> None:
    clock = ManualClock(1_000)
    fs = SimulatedFileSystem(clock)
    write(fs, "/log", b"abc")
    clock.advance(500)
    assert fs.stat("/log")[:2] == (3, 1_000)
    write(fs, "/log", b"abcd")
    assert fs.stat("/log")[:2] == (4, 1_500)
    assert fs.copy().stat("/log")[:2] == (4, 1_500)


def test_names_are_listed_in_an_order_nobody_can_count_on() -> None:
    fs = disk()
    for name in ("a", "c", "b"):
        write(fs, f"/data/{name}", b"")
    assert fs.list_dir("/data") == [Entry("b", False), Entry("c", False), Entry("a", False)]


def test_a_lock_keeps_others_out_until_it_is_released_or_its_holder_dies() -> None:
    fs = disk()
    lock = fs.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock("/data/.lock")
    lock.release()
    fs.lock("/data/.lock")
    fs.crash()
    fs.lock("/data/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        fs.lock("/data/.lock")


# -- death at a chosen point -------------------------------------------------------------------


def test_a_write_is_torn_at_the_last_byte_that_gets_through() -> None:
    start = disk()
    for count in range(7):
        fs = start.copy()
        fs.cut_after_bytes(count)
        file = fs.open(LOG, write=True, create=True)
        with contextlib.suppress(SimulatedCrash):
            file.write_at(0, b"abc")
            file.write_all_at(3, [b"d", b"ef", b"g"])
        states = [fs.crashed]
        assert fs.bytes_written == count
        with pytest.raises(SimulatedCrash):
            fs.read(LOG)
        with pytest.raises(SimulatedCrash):
            file.size()
        fs.restart()
        states.append(fs.crashed)
        assert states == [True, False]
        assert fs.files() == {LOG: b"abcdefg"[:count]}


def test_bytes_just_enough_do_not_kill() -> None:
    fs = disk()
    write(fs, LOG, b"abc")
    fs.cut_after_bytes(3)
    write(fs, LOG, b"def", sync=True)
    fs.rename(LOG, "/data/other")
    with pytest.raises(SimulatedCrash):
        write(fs, "/data/other", b"x")


def test_every_kind_of_change_is_an_operation_at_which_to_die() -> None:
    def work(fs: SimulatedFileSystem) -> None:
        fs.make_dirs("/data/a/b")
        file = fs.open("/data/a/log", write=True, create=True)
        file.allocate(100)
        file.write_at(0, b"abc")
        file.truncate(3)
        file.sync()
        file.close()
        fs.set_mtime("/data/a/log", 5)
        fs.rename("/data/a/log", "/data/a/old")
        fs.sync_dir("/data/a")
        fs.remove("/data/a/old")
        fs.remove_tree("/data/a")
        fs.lock("/data/.lock").release()

    whole = disk()
    work(whole)
    assert [operation for operation, _ in whole.trace] == [
        Operation.MAKE_DIR,
        Operation.MAKE_DIR,
        Operation.CREATE,
        Operation.ALLOCATE,
        Operation.WRITE,
        Operation.TRUNCATE,
        Operation.SYNC,
        Operation.SET_MTIME,
        Operation.RENAME,
        Operation.SYNC_DIR,
        Operation.REMOVE,
        Operation.REMOVE,
        Operation.REMOVE,
        Operation.CREATE,
    ]
    assert whole.operations == 14
    for count in range(whole.operations):
        fs = disk()
        fs.cut_after_operations(count)
        with pytest.raises(SimulatedCrash):
            work(fs)
        assert fs.trace == whole.trace[:count]
    fs = disk()
    fs.cut_after_operations(whole.operations)
    work(fs)


def test_a_crash_is_nothing_that_code_under_test_would_catch() -> None:
    assert not issubclass(SimulatedCrash, Exception)


# -- broken disks ------------------------------------------------------------------------------


def test_a_failing_write_gets_a_part_through() -> None:
    fs = disk()
    fs.fail(Operation.WRITE, "/data", errno.ENOSPC, partial_bytes=2)
    with pytest.raises(OSError) as refused:
        write(fs, LOG, b"abc")
    assert refused.value.errno == errno.ENOSPC
    assert fs.files() == {LOG: b"ab"}
    assert fs.bytes_written == 2


def test_a_fault_can_wait_and_can_end() -> None:
    fs = disk()
    fs.put(LOG, b"abc")
    fs.fail(Operation.READ, LOG, errno.EIO, skip=1, times=2)
    assert fs.read(LOG) == b"abc"
    for _ in range(2):
        with pytest.raises(OSError) as refused:
            fs.read(LOG)
        assert refused.value.errno == errno.EIO
    assert fs.read(LOG) == b"abc"


def test_a_fault_strikes_below_its_path_or_where_its_function_says() -> None:
    fs = disk()
    for path in ("/data/a/log", "/data/ab", "/data/b"):
        fs.put(path, b"abc")
    fault = fs.fail([Operation.READ, Operation.SYNC], "/data/a", errno.EIO)
    fs.fail(Operation.READ, lambda path: path.endswith("b"), errno.EIO)
    for path in ("/data/a/log", "/data/ab", "/data/b"):
        with pytest.raises(OSError):
            fs.read(path)
    fs.heal(fault)
    assert fs.read("/data/a/log") == b"abc"
    with pytest.raises(OSError):
        fs.read("/data/b")
    fs.heal()
    assert fs.read("/data/b") == b"abc"


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        (Operation.OPEN, lambda fs: fs.open(LOG)),
        (Operation.CREATE, lambda fs: fs.open("/data/new", write=True, create=True)),
        (Operation.STAT, lambda fs: fs.stat(LOG)),
        (Operation.LIST, lambda fs: fs.list_dir("/data")),
        (Operation.RENAME, lambda fs: fs.rename(LOG, "/data/new")),
        (Operation.REMOVE, lambda fs: fs.remove(LOG)),
        (Operation.MAKE_DIR, lambda fs: fs.make_dirs("/data/new")),
        (Operation.SYNC_DIR, lambda fs: fs.sync_dir("/data")),
        (Operation.TRUNCATE, lambda fs: fs.open(LOG, write=True).truncate(0)),
        (Operation.ALLOCATE, lambda fs: fs.open(LOG, write=True).allocate(9)),
    ],
)
def test_every_operation_can_fail_and_then_changes_nothing(
    operation: Operation, act: Callable[[SimulatedFileSystem], object]
) -> None:
    fs = disk()
    fs.put(LOG, b"abc")
    fs.fail(operation, "/data", errno.EIO)
    with pytest.raises(OSError) as refused:
        act(fs)
    assert refused.value.errno == errno.EIO
    assert fs.files() == {LOG: b"abc"}


def test_a_sync_after_a_failed_one_saves_nothing() -> None:
    fs = disk()
    fs.put(LOG, b"abc")
    file = fs.open(LOG, write=True)
    file.write_at(0, b"XYZ")
    fs.fail(Operation.SYNC, LOG, errno.EIO, times=1)
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {LOG: b"abc"}
    write(fs, LOG, b"XYZ", sync=True)
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {LOG: b"XYZ"}


def test_a_full_disk_takes_what_fits_and_room_comes_back_by_removing() -> None:
    fs = disk()
    fs.make_dirs("/other")
    fs.set_capacity("/data", 10)
    write(fs, "/data/a", b"x" * 6)
    assert fs.free_bytes("/data/a") == (10, 4)
    with pytest.raises(OSError) as refused:
        write(fs, LOG, b"y" * 6)
    assert refused.value.errno == errno.ENOSPC
    assert fs.files()[LOG] == b"y" * 4
    write(fs, "/data/a", b"z" * 6)
    write(fs, "/other/b", b"x" * 100)
    with pytest.raises(OSError):
        fs.open(LOG, write=True).allocate(5)
    fs.remove("/data/a")
    write(fs, LOG, b"y" * 10)
    assert fs.free_bytes("/data") == (10, 0)
    fs.set_capacity("/data", None)
    write(fs, LOG, b"y" * 11)
    assert fs.free_bytes("/data")[1] > 1 << 30


def test_the_nearest_mount_counts() -> None:
    fs = disk()
    fs.make_dirs("/data/small")
    fs.set_capacity("/data", 1_000)
    fs.set_capacity("/data/small", 5)
    assert fs.free_bytes("/data/small/x") == (5, 5)
    assert fs.free_bytes("/data/smaller") == (1_000, 1_000)


def test_a_flipped_bit_is_found_by_whoever_reads() -> None:
    fs = disk()
    fs.put(LOG, b"abc")
    fork = fs.copy()
    fs.flip_bit(LOG, 1, 0)
    assert fs.read(LOG) == b"acc"
    fs.power_loss_everything_unsynced_lost()
    assert fs.read(LOG) == b"acc"
    assert fork.read(LOG) == b"abc"


# -- forks -------------------------------------------------------------------------------------


@given(st.lists(steps, max_size=10), st.lists(steps, max_size=10), st.integers(0, 1 << 32))
def test_forks_do_not_see_each_other(
    before: list[tuple[str, str, *tuple[object, ...]]],
    after: list[tuple[str, str, *tuple[object, ...]]],
    seed: int,
) -> None:
    fs = disk()
    again = disk()
    for what, name, *args in before:
        do(fs, "/data", what, name, *args)
        do(again, "/data", what, name, *args)
    fork = fs.copy()
    for what, name, *args in after:
        do(fs, "/data", what, name, *args)
    assert fork.files() == again.files()
    fork.power_loss(Random(seed))
    again.power_loss(Random(seed))
    assert fork.files() == again.files()
    kept = fs.copy()
    for what, name, *args in after:
        do(fork, "/data", what, name, *args)
    assert kept.files() == fs.files()


def test_a_fork_keeps_capacities_but_no_faults_limits_or_locks() -> None:
    fs = disk()
    fs.put(LOG, b"abc")
    fs.set_capacity("/data", 10)
    fs.fail(Operation.READ, LOG, errno.EIO)
    fs.lock(LOG)
    fs.cut_after_operations(0)
    fork = fs.copy()
    assert (fork.operations, fork.bytes_written) == (0, 0)
    assert fork.read(LOG) == b"abc"
    assert fork.free_bytes(LOG) == (10, 7)
    fork.lock(LOG)
    fork.remove(LOG)
    assert fs.files() == {LOG: b"abc"}


def test_another_threads_step_comes_within_an_operation_and_once() -> None:
    fs = disk()
    write(fs, LOG, b"first")
    steps: list[str] = []
    fs.interrupt(Operation.SYNC, LOG, lambda: steps.append(fs.read(LOG).decode()))
    fs.interrupt(Operation.WRITE, "/data", lambda: write(fs, "/data/other", b"beside"))
    write(fs, LOG, b"later", sync=True)
    write(fs, LOG, b"again", sync=True)
    assert steps == ["later"]
    assert fs.read("/data/other") == b"beside"


def test_put_replaces_and_is_safe_from_a_power_cut() -> None:
    fs = SimulatedFileSystem()
    fs.make_dirs("/data/a")
    write(fs, "/data/a/log", b"unsynced")
    fs.put("/data/a/log", b"safe")
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {"/data/a/log": b"safe"}
