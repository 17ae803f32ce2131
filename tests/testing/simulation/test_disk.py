"""What crashes and power cuts leave on a simulated disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

import pytest

from dohle.storage.files import Entry, FileSystem
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


def losses(fs: SimulatedFileSystem, count: int = 300) -> list[dict[str, bytes]]:
    """What many power cuts leave of a disk."""
    found = []
    for seed in range(count):
        fork = fs.copy()
        fork.power_loss(Random(seed))
        found.append(fork.files())
    return found


def test_a_crash_keeps_what_was_written_and_ends_open_files() -> None:
    fs = disk()
    file = fs.open(LOG, write=True, create=True)
    file.write_at(0, b"abc")
    fs.crash()
    assert fs.files() == {LOG: b"abc"}
    with pytest.raises(SimulatedCrash):
        file.read_at(0, 1)
    with pytest.raises(SimulatedCrash):
        file.sync()
    file.close()


def test_the_worst_power_cut_leaves_only_what_was_synced() -> None:
    fs = disk()
    write(fs, "/data/both", b"abc", sync=True)
    write(fs, "/data/empty", b"abc")
    fs.sync_dir("/data")
    write(fs, "/data/both", b"XYZ")
    write(fs, "/data/nameless", b"abc", sync=True)
    fs.make_dirs("/data/folder")
    write(fs, "/data/folder/log", b"abc", sync=True)
    fs.sync_dir("/data/folder")
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {"/data/both": b"abc", "/data/empty": b""}
    assert fs.list_dir("/data") == [Entry("empty", False), Entry("both", False)]


def test_removed_renamed_and_replaced_names_come_back_unless_the_folder_was_synced() -> None:
    fs = disk()
    for name in ("removed", "renamed", "replaced"):
        fs.put(f"/data/{name}", name.encode())
    before = fs.files()
    fs.remove("/data/removed")
    fs.rename("/data/renamed", "/data/replaced")
    synced = fs.copy()
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == before
    synced.sync_dir("/data")
    synced.power_loss_everything_unsynced_lost()
    assert synced.files() == {"/data/replaced": b"renamed"}


def test_a_removed_tree_comes_back_in_part_or_goes() -> None:
    fs = disk()
    for name in ("a", "b", "c"):
        fs.put(f"/data/gone/{name}", b"x")
    fs.remove_tree("/data/gone")
    assert fs.files() == {}
    assert {len(found) for found in losses(fs)} == {0, 1, 2, 3}


def test_what_was_synced_survives_every_power_cut() -> None:
    fs = disk()
    write(fs, LOG, b"a" * 5_000, sync=True)
    fs.sync_dir("/data")
    write(fs, LOG, b"b" * 5_000, position=5_000)
    for found in losses(fs):
        assert found[LOG][:5_000] == b"a" * 5_000


def test_the_same_seed_gives_the_same_loss() -> None:
    fs = disk()
    for name in ("c", "a", "b"):
        for position in range(0, 5_000, 1_000):
            write(fs, f"/data/{name}", name.encode() * 1_000, position)
    assert losses(fs, 50) == losses(fs, 50)
    assert len({repr(found) for found in losses(fs, 50)}) > 25


def test_a_write_is_kept_lost_or_torn_by_pages_in_any_order() -> None:
    fs = disk()
    fs.put(LOG, b"old!" * 128)
    write(fs, LOG, bytes(range(1, 256)) * 8)
    new = fs.read(LOG)
    old = (b"old!" * 128).ljust(len(new), b"\0")
    seen = set()
    for found in losses(fs):
        content = found[LOG]
        assert len(content) in (512, 1_024, 1_536, 2_040)
        pages = []
        for start in range(0, len(content), 512):
            page = content[start : start + 512]
            assert page in (new[start : start + len(page)], old[start : start + len(page)])
            pages.append(page == new[start : start + len(page)])
        seen.add(tuple(pages))
    assert {(False,), (True,), (True,) * 4, (False,) * 4} <= seen
    # A later page is there, an earlier one of the same write is not.
    assert any(
        kept and not all(pages[:place]) for pages in seen for place, kept in enumerate(pages)
    )


def test_the_length_may_get_through_without_the_data() -> None:
    fs = disk()
    fs.put(LOG, b"a" * 100)
    write(fs, LOG, b"b" * 400, position=100)
    contents = {found[LOG] for found in losses(fs)}
    assert contents == {
        b"a" * 100,
        b"a" * 100 + b"b" * 400,
        b"a" * 100 + bytes(400),
    }


def test_a_later_write_can_survive_an_earlier_one() -> None:
    fs = disk()
    fs.put(LOG, b"")
    write(fs, LOG, b"a" * 512)
    write(fs, LOG, b"b" * 512, position=512)
    assert any(found[LOG] == bytes(512) + b"b" * 512 for found in losses(fs))


def test_a_cut_is_kept_if_anything_after_it_is() -> None:
    fs = disk()
    fs.put(LOG, b"a" * 1_000)
    file = fs.open(LOG, write=True)
    file.truncate(100)
    file.write_at(100, b"b" * 50)
    contents = {found[LOG] for found in losses(fs)}
    assert b"a" * 1_000 in contents
    assert b"a" * 100 in contents
    for content in contents - {b"a" * 1_000}:
        assert len(content) <= 150


def test_a_folder_keeps_a_prefix_of_its_changes() -> None:
    fs = disk()
    for name in "abcd":
        write(fs, f"/data/{name}", b"", sync=True)
    fs.rename("/data/a", "/data/e")
    kept = {"".join(path[-1] for path in found) for found in losses(fs)}
    assert kept == {"", "a", "ab", "abc", "abcd", "bcde"}


def test_power_can_be_lost_again_after_a_restart() -> None:
    fs = disk()
    fs.put(LOG, b"a")
    write(fs, LOG, b"b", position=1)
    fs.crash()
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {LOG: b"a"}


Replacement = Callable[[SimulatedFileSystem], None]


def in_place(fs: SimulatedFileSystem) -> None:
    write(fs, LOG, b"new" * 1_000, sync=True)


def without_sync(fs: SimulatedFileSystem) -> None:
    write(fs, "/data/tmp", b"new" * 1_000)
    fs.rename("/data/tmp", LOG)
    fs.sync_dir("/data")


def without_rename(fs: SimulatedFileSystem) -> None:
    fs.remove(LOG)
    write(fs, LOG, b"new" * 1_000, sync=True)
    fs.sync_dir("/data")


@pytest.mark.parametrize("careless", [in_place, without_sync, without_rename])
def test_careless_ways_to_replace_a_file_are_found_out(careless: Replacement) -> None:
    start = disk()
    start.put(LOG, b"old" * 1_000)
    whole = start.copy()
    careless(whole)
    found = set()
    for cut in range(whole.operations + 1):
        fs = start.copy()
        fs.cut_after_operations(cut)
        with contextlib.suppress(SimulatedCrash):
            careless(fs)
        found |= {content.get(LOG) for content in losses(fs, 20)}
    assert found - {b"old" * 1_000, b"new" * 1_000}
