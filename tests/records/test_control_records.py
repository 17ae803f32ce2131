"""Control records: keys, transaction markers, batches of the quorum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import RecordBatch, read_batch
from dohle.records.control import (
    ControlRecordType,
    TxnMarker,
    build_control_batch,
    build_txn_marker,
    decode_control_key,
    encode_control_key,
    parse_control,
    parse_txn_marker,
)
from dohle.records.errors import InvalidRecord
from dohle.records.record import Record

NOW_MS = 1_700_000_000_000
KNOWN = [type for type in ControlRecordType if type is not ControlRecordType.UNKNOWN]


@pytest.mark.parametrize("type", KNOWN)
def test_keys_round_trip(type: ControlRecordType) -> None:
    key = encode_control_key(type)
    assert key == bytes((0, 0, 0, type))
    assert decode_control_key(key) is type


def test_a_later_key_version_is_read_and_a_later_type_is_unknown() -> None:
    assert decode_control_key(b"\x00\x05\x00\x01more") is ControlRecordType.COMMIT
    assert decode_control_key(b"\x00\x00\x00\x63") is ControlRecordType.UNKNOWN
    assert decode_control_key(b"\x00\x00\xff\xff") is ControlRecordType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_key_that_cannot_be_one_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        decode_control_key(key)


def test_the_unknown_type_is_not_written() -> None:
    with pytest.raises(ValueError):
        encode_control_key(ControlRecordType.UNKNOWN)


@given(
    commit=st.booleans(),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**62),
)
def test_a_transaction_marker_is_a_batch_of_78_bytes(
    commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, offset: int
) -> None:
    built = build_txn_marker(
        commit, producer_id, producer_epoch, coordinator_epoch, NOW_MS, offset, leader_epoch=9
    )
    assert len(built) == 78
    batch = read_batch(built)
    assert isinstance(batch, RecordBatch)
    batch.ensure_valid()
    assert batch.attributes == 0x30
    assert (batch.producer_id, batch.producer_epoch) == (producer_id, producer_epoch)
    assert (batch.base_sequence, batch.last_sequence) == (-1, -1)
    assert batch.partition_leader_epoch == 9
    (record,) = batch
    assert (record.offset, record.timestamp) == (offset, NOW_MS)
    assert record.value == b"\x00\x00" + coordinator_epoch.to_bytes(4, "big")
    type = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    marker = parse_txn_marker(record)
    assert marker == TxnMarker(type, coordinator_epoch)
    assert marker.is_commit is commit


def test_a_later_marker_version_is_read() -> None:
    record = Record(0, 0, b"\x00\x00\x00\x00", b"\x00\x01\x00\x00\x00\x07more")
    assert parse_txn_marker(record) == TxnMarker(ControlRecordType.ABORT, 7)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_a_marker_that_cannot_be_one_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        parse_txn_marker(Record(0, 0, b"\x00\x00\x00\x00", value))
    with pytest.raises(InvalidRecord):
        parse_txn_marker(Record(0, 0, b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x00"))


def test_a_batch_of_the_quorum_carries_its_records_in_order() -> None:
    records = [
        (ControlRecordType.SNAPSHOT_HEADER, b"\x00\x00" + bytes(8) + b"\x00"),
        (ControlRecordType.KRAFT_VERSION, b"\x00\x00\x00\x01\x00"),
    ]
    batch = read_batch(build_control_batch(records, NOW_MS, base_offset=3, leader_epoch=2))
    assert isinstance(batch, RecordBatch)
    batch.ensure_valid()
    assert batch.attributes == 0x20
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.partition_leader_epoch == 2
    assert [parse_control(record) for record in batch] == records
    assert [record.offset for record in batch] == [3, 4]
