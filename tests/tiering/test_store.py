"""The folder as a store, and segments in it: also if the machine dies at any moment."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from dohle.tiering.layout import (
    EPOCHS,
    INDEXES,
    LOG,
    MANIFEST,
    OFFSET,
    SNAPSHOT,
    TIMESTAMP,
    TRANSACTION,
    decode_manifest,
    object_key,
)
from dohle.tiering.object_store import CloudStore, InvalidStore, open_store
from dohle.tiering.store import FolderStore, ObjectNotFound, StoredObject, StoreError
from dohle.tiering.upload import CopyJob, delete_objects
from tests.storage.logs import NOW_MS, batch
from tests.tiering.values import segment

_FILES = {
    "/data/0.log": bytes(batch([NOW_MS] * 9, value=bytes(256))),
    "/data/0.index": b"offsets!",
    "/data/0.timeindex": b"times",
    "/data/0.txnindex": b"aborted",
    "/data/9.snapshot": b"producers",
}
_SEGMENT = segment(1, 0, 8, size=len(_FILES["/data/0.log"]))
_JOB = CopyJob(
    _SEGMENT,
    log_path="/data/0.log",
    offset_index_path="/data/0.index",
    time_index_path="/data/0.timeindex",
    txn_index_path="/data/0.txnindex",
    snapshot_path="/data/9.snapshot",
    epochs=b"0\n1\n0 0\n",
    prefix="pre/",
)


def _disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    for path, data in _FILES.items():
        fs.put(path, data)
    fs.make_dirs("/store")
    fs.settle()
    return fs


def _check_whole(fs: SimulatedFileSystem) -> None:
    """Everything that the manifest speaks of is there."""
    store = FolderStore(fs, "/store")
    manifest = decode_manifest(store.get(object_key(_SEGMENT, MANIFEST, "pre/")))
    assert store.get(object_key(_SEGMENT, LOG, "pre/")) == _FILES["/data/0.log"]
    found = {
        kind: store.get(object_key(_SEGMENT, INDEXES, "pre/"), *place)
        for kind, place in manifest.indexes.items()
    }
    assert found == {
        OFFSET: b"offsets!",
        TIMESTAMP: b"times",
        SNAPSHOT: b"producers",
        EPOCHS: b"0\n1\n0 0\n",
        TRANSACTION: b"aborted",
    }


def test_a_copy_has_all_that_belongs_to_the_segment() -> None:
    """T3.6, T19."""
    fs = _disk()
    _JOB.run(fs, FolderStore(fs, "/store"))
    _check_whole(fs)


def test_where_a_manifest_is_the_segment_is_whole_whenever_the_power_goes() -> None:
    """T19, T27.1: killed at every operation, then all or a random part of the unsynced lost."""
    complete = _disk()
    before = complete.operations
    _JOB.run(complete, FolderStore(complete, "/store"))
    steps, manifests = complete.operations - before, 0
    for count in range(steps + 1):
        fs = _disk()
        fs.cut_after_operations(count)
        with suppress(SimulatedCrash):
            _JOB.run(fs, FolderStore(fs, "/store"))
        for lost in (None, Random(count)):
            after = fs.copy()
            if lost is None:
                after.power_loss_everything_unsynced_lost()
            else:
                after.power_loss(lost)
            if after.exists(f"/store/{object_key(_SEGMENT, MANIFEST, 'pre/')}"):
                manifests += 1
                _check_whole(after)
            # Who comes next copies again under another name, and deletes this.
            delete_objects(FolderStore(after, "/store"), _SEGMENT, "pre/")
            assert list(FolderStore(after, "/store").list("")) == []
    assert 0 < manifests < 2 * steps


def test_a_deletion_that_is_interrupted_can_be_made_again() -> None:
    """T11: it is no error if there is nothing to delete."""
    for count in range(30):
        fs = _disk()
        _JOB.run(fs, FolderStore(fs, "/store"))
        fs.cut_after_operations(count)
        with suppress(SimulatedCrash):
            delete_objects(FolderStore(fs, "/store"), _SEGMENT, "pre/")
        fs.crash()
        delete_objects(FolderStore(fs, "/store"), _SEGMENT, "pre/")
        assert list(FolderStore(fs, "/store").list("")) == []


def test_a_copy_of_files_that_are_gone_or_shorter_fails_and_says_so() -> None:
    """T15a: retention or a truncation was faster; the next run copies anew."""
    fs = _disk()
    fs.remove("/data/0.index")
    with pytest.raises(StoreError, match="gone"):
        _JOB.run(fs, FolderStore(fs, "/store"))
    fs = _disk()
    fs.put("/data/0.log", b"short")
    with pytest.raises(StoreError, match="damaged"):
        _JOB.run(fs, FolderStore(fs, "/store"))
    assert not fs.exists(f"/store/{object_key(_SEGMENT, MANIFEST, 'pre/')}")


def test_a_folder_gives_ranges_lists_by_prefix_and_knows_what_it_does_not_have() -> None:
    """T11: the contract of a store."""
    store = FolderStore(_disk(), "/store")
    store.put("a/b/one", [b"first ", b"second"])
    store.put("a/c", [b""])
    assert store.get("a/b/one", 6) == b"second"
    assert store.get("a/b/one", 1, 3) == b"irs"
    assert sorted(store.list("a/")) == [StoredObject("a/b/one", 12), StoredObject("a/c", 0)]
    assert list(store.list("a/b/o")) == [StoredObject("a/b/one", 12)]
    assert list(store.list("nowhere/")) == []
    store.put("a/c", [b"new"])
    assert store.get("a/c") == b"new"
    with pytest.raises(ObjectNotFound):
        store.get("a/d")
    store.delete("a/d")


def test_no_key_leads_out_of_the_folder() -> None:
    """T9: the names of topics come from records, which clients may write if no ACL forbids it."""
    fs = _disk()
    store = FolderStore(fs, "/store")
    for work in (
        lambda: store.put("../data/new", [b"1"]),
        lambda: store.get("a/../../data/0.log"),
        lambda: store.delete("../data/0.log"),
        lambda: list(store.list("../data/")),
    ):
        with pytest.raises(StoreError, match="leads out"):
            work()
    assert fs.read("/data/0.log") == _FILES["/data/0.log"]


def test_a_folder_that_does_not_work_is_a_store_error() -> None:
    """T11: it may work later."""
    fs = _disk()
    store = FolderStore(fs, "/store")
    store.put("one", [b"1"])
    for operation, work in (
        (Operation.WRITE, lambda: store.put("two", [b"2"])),
        (Operation.READ, lambda: store.get("one")),
        (Operation.REMOVE, lambda: store.delete("one")),
    ):
        fault = fs.fail(operation, "/store", errno.EIO)
        with pytest.raises(StoreError):
            work()
        fs.heal(fault)


def test_a_bucket_keeps_the_same_contract_as_a_folder() -> None:
    """T11, T22: by obstore, here in memory."""
    memory = pytest.importorskip("obstore.store").MemoryStore()
    store = CloudStore(memory, "memory://bucket/")
    store.put("a/b/one", [b"first ", b"second"])
    store.put("a/c", [b""])
    assert store.get("a/b/one", 6) == b"second"
    assert store.get("a/b/one", 1, 3) == b"irs"
    assert store.get("a/b/one", 6, 100) == b"second"
    assert store.get("a/c", 0, 0) == b""
    assert sorted(store.list("a/")) == [StoredObject("a/b/one", 12), StoredObject("a/c", 0)]
    assert list(store.list("a/b/o")) == [StoredObject("a/b/one", 12)]
    with pytest.raises(ObjectNotFound, match="memory://bucket/a/d is not there"):
        store.get("a/d")
    store.delete("a/d")
    store.delete("a/c")
    fs = _disk()
    _JOB.run(fs, store)
    assert store.get(object_key(_SEGMENT, LOG, "pre/")) == _FILES["/data/0.log"]
    delete_objects(store, _SEGMENT, "pre/")
    assert [each.key for each in store.list("")] == ["a/b/one"]


@pytest.mark.parametrize("url", ["file://host/x", "ftp://x", "relative/folder", "s3://"])
def test_what_is_no_store_is_refused_with_a_sentence(url: str) -> None:
    """T2."""
    with pytest.raises(InvalidStore, match=r"\w+"):
        open_store(SimulatedFileSystem(), url)


@pytest.mark.parametrize("url", ["/store", "file:///store", "file://localhost/store"])
def test_a_folder_is_named_by_its_path_or_by_a_url(url: str) -> None:
    """T2."""
    fs = _disk()
    open_store(fs, url).put("one", [b"1"])
    assert fs.read("/store/one") == b"1"
