from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import ProducerId
from dohle.storage.files import OsFileSystem
from dohle.storage.producers.entry import BatchMetadata, ProducerEntry
from dohle.storage.producers.snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    snapshot_name,
    snapshot_offset,
    write_snapshot,
)

FS = OsFileSystem()

INT16 = st.integers(0, 2**15 - 1)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)

BATCHES = st.builds(BatchMetadata, INT32, INT64, INT32, INT64)
ENTRIES = st.builds(
    lambda producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset, batches: (
        ProducerEntry(
            producer_id,
            epoch,
            coordinator_epoch,
            batches[-1].timestamp if batches else timestamp,
            txn_first_offset,
            tuple(batches),
        )
    ),
    st.builds(ProducerId, INT64),
    INT16,
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.lists(BATCHES, max_size=5),
)

TWO = [
    ProducerEntry(ProducerId(7), 3, 2, 1000, -1, (BatchMetadata(9, 50, 4, 1000),)),
    ProducerEntry(ProducerId(8), 0, 5, 2000, 41),
]


def as_loaded(entry: ProducerEntry) -> ProducerEntry:
    """What is left of an entry after a restart: only its last batch."""
    return entry._replace(batches=entry.batches[-1:])


def test_a_snapshot_has_the_bytes_that_kafka_writes() -> None:
    body = (
        struct.pack(">i", 2)
        + struct.pack(">qhiqiqiq", 7, 3, 9, 50, 4, 1000, 2, -1)
        + struct.pack(">qhiqiqiq", 8, 0, -1, -1, 0, 2000, 5, 41)
    )
    assert encode_snapshot(TWO) == struct.pack(">hI", 1, crc32c(body)) + body
    assert len(encode_snapshot(TWO)) == 10 + 2 * 46


def test_an_empty_snapshot_has_ten_bytes() -> None:
    assert encode_snapshot([]) == struct.pack(">hIi", 1, crc32c(bytes(4)), 0)
    assert decode_snapshot(encode_snapshot([])) == []


def test_a_producer_seen_only_by_its_marker_has_no_batch_in_the_snapshot() -> None:
    loaded = decode_snapshot(encode_snapshot([TWO[1]]))
    assert loaded[0].batches == ()
    assert loaded[0].last_sequence == -1
    assert loaded[0].last_data_offset == -1


@given(st.lists(ENTRIES, max_size=8))
def test_what_is_written_is_read_back_with_the_last_batch_of_each(
    entries: list[ProducerEntry],
) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == [as_loaded(entry) for entry in entries]


def test_any_flipped_bit_is_found() -> None:
    good = encode_snapshot(TWO)
    for position in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            with pytest.raises(CorruptSnapshot):
                decode_snapshot(bytes(bad))


def test_a_snapshot_cut_anywhere_is_refused() -> None:
    good = encode_snapshot(TWO)
    for size in range(len(good)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(good[:size])


def test_a_snapshot_with_bytes_behind_it_is_refused() -> None:
    for good in (encode_snapshot([]), encode_snapshot(TWO)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(good + b"\x00")


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_does_not_fit_the_size_is_refused(count: int) -> None:
    body = struct.pack(">i", count) + encode_snapshot(TWO)[10:]
    with pytest.raises(CorruptSnapshot, match="producers do not make"):
        decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_a_version_that_is_not_known_is_refused(version: int) -> None:
    data = struct.pack(">h", version) + encode_snapshot(TWO)[2:]
    with pytest.raises(CorruptSnapshot, match="version"):
        decode_snapshot(data)


@given(st.binary(max_size=120))
def test_nonsense_is_refused(data: bytes) -> None:
    if data != encode_snapshot([]):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data)


def test_names_have_twenty_digits() -> None:
    assert snapshot_name(42) == "00000000000000000042.snapshot"
    assert snapshot_offset("00000000000000000042.snapshot") == 42


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000042.log",
        "00000000000000000042.snapshot.deleted",
        "00000000000000000042",
        "42.snapshot",
        "0000000000000000004x.snapshot",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢.snapshot",
        ".snapshot",
    ],
)
def test_other_names_are_no_snapshots(name: str) -> None:
    assert snapshot_offset(name) is None


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_written_over_a_longer_one_of_the_same_name(tmp_path: Path, sync: bool) -> None:
    path = str(tmp_path / snapshot_name(5))
    Path(path).write_bytes(b"left by a crash" * 100)
    write_snapshot(FS, path, TWO, sync=sync)
    assert read_snapshot(FS, path) == TWO
    assert FS.read(path) == encode_snapshot(TWO)
