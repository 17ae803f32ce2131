"""Messages as records of internal topics: known bytes, and all of them there and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import BrokerId, GroupId, ProducerId, TopicName, TransactionalId, Uuid
from dohle.protocol.apis import (
    Coordinator,
    cluster_metadata_record,
    coordinator_record,
    remote_log_metadata_record,
)
from dohle.protocol.errors import MalformedMessage, UnknownRecordType, UnsupportedVersion
from dohle.protocol.messages import index
from dohle.protocol.messages.records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from dohle.protocol.messages.records.cluster_metadata import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from dohle.protocol.messages.records.storage import ProducerEntry, ProducerSnapshot
from dohle.protocol.messages.records.transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from dohle.protocol.record_framing import (
    decode_coordinator_record,
    decode_metadata_record,
    decode_remote_log_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
    metadata_record_head,
)
from tests.protocol.random_messages import messages

TOPIC_ID = Uuid(bytes(range(16)))


def test_a_topic_record_is_as_kafka_writes_it() -> None:
    record = TopicRecord(name=TopicName("foo"), topic_id=TOPIC_ID)
    value = b"\1\2\0" + b"\4foo" + TOPIC_ID + b"\0"
    assert encode_metadata_record(record, 0) == value
    assert decode_metadata_record(value) == record
    assert decode_metadata_record(memoryview(value)) == record
    assert metadata_record_head(value) == (2, 0, 3)


def test_a_partition_record_is_as_kafka_writes_it() -> None:
    record = PartitionRecord(
        partition_id=1,
        topic_id=TOPIC_ID,
        replicas=(BrokerId(1), BrokerId(2)),
        isr=(BrokerId(1),),
        leader=BrokerId(1),
        leader_epoch=3,
        partition_epoch=4,
        directories=(TOPIC_ID, Uuid(bytes(16))),
    )
    value = (
        b"\1\3\1"
        b"\0\0\0\1" + TOPIC_ID + b"\3\0\0\0\1\0\0\0\2"
        b"\2\0\0\0\1"
        b"\1\1"  # none being removed, none being added
        b"\0\0\0\1\0\0\0\3\0\0\0\4"
        b"\3" + TOPIC_ID + bytes(16) + b"\0"
    )
    assert encode_metadata_record(record, 1) == value
    assert decode_metadata_record(value) == record


def test_small_metadata_records_are_as_kafka_writes_them() -> None:
    assert encode_metadata_record(NoOpRecord(), 0) == b"\1\x14\0\0"
    level = FeatureLevelRecord(name="metadata.version", feature_level=29)
    assert encode_metadata_record(level, 0) == b"\1\x0c\0\x11metadata.version\0\x1d\0"


def test_an_offset_commit_is_as_kafka_writes_it() -> None:
    key = OffsetCommitKey(group=GroupId("g"), topic=TopicName("foo"), partition=2)
    value = OffsetCommitValue(offset=100, leader_epoch=4, metadata="m", commit_timestamp=1000)
    key_bytes = b"\0\1" + b"\0\1g" + b"\0\3foo" + b"\0\0\0\2"
    value_bytes = b"\0\3" + (100).to_bytes(8, "big") + b"\0\0\0\4" + b"\0\1m" + bytes(6) + b"\3\xe8"
    assert encode_coordinator_key(key) == key_bytes
    assert encode_coordinator_value(value, 3) == value_bytes
    assert decode_coordinator_record(Coordinator.GROUP, key_bytes, value_bytes) == (key, value, 3)
    assert decode_coordinator_record(Coordinator.GROUP, key_bytes, None) == (key, None, None)
    flexible = encode_coordinator_value(value.replace(topic_id=TOPIC_ID), 4)
    assert flexible.endswith(b"\1\0\x10" + TOPIC_ID)


def test_an_empty_classic_group_is_as_kafka_writes_it() -> None:
    key = GroupMetadataKey(group=GroupId("g"))
    value = GroupMetadataValue(protocol_type="consumer", generation=3, current_state_timestamp=-1)
    value = value.replace(protocol=None, leader=None)
    assert encode_coordinator_key(key) == b"\0\2\0\1g"
    assert encode_coordinator_value(value, 3) == (
        b"\0\3" + b"\0\x08consumer" + b"\0\0\0\3" + b"\xff\xff" * 2 + b"\xff" * 8 + b"\0\0\0\0"
    )


def test_a_member_of_a_classic_group_is_as_kafka_writes_it() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"\1",
        assignment=b"\2\3",
    )
    encoded = GroupMetadataValue(members=(member,)).encode(3)
    assert encoded.endswith(b"\0\1m\xff\xff\0\1c\0\2/h\0\0\0\1\0\0\0\2\0\0\0\1\1\0\0\0\2\2\3")


def test_a_transaction_is_as_kafka_writes_it() -> None:
    key = TransactionLogKey(transactional_id=TransactionalId("t"))
    value = TransactionLogValue(
        producer_id=ProducerId(9),
        producer_epoch=1,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=(PartitionsSchema(topic=TopicName("a"), partition_ids=(0, 5)),),
        transaction_last_update_timestamp_ms=8,
        transaction_start_timestamp_ms=-1,
    )
    head = b"\0\0\0\0\0\0\0\x09\0\1\0\0\xea\x60\1"
    assert encode_coordinator_key(key) == b"\0\0\0\1t"
    assert encode_coordinator_value(value, 0) == (
        b"\0\0" + head + b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\5" + bytes(7) + b"\x08" + b"\xff" * 8
    )
    assert encode_coordinator_value(value.replace(next_producer_id=ProducerId(7)), 1) == (
        b"\0\1"
        + head
        + b"\2\2a\3\0\0\0\0\0\0\0\5\0"
        + bytes(7)
        + b"\x08"
        + b"\xff" * 8
        + b"\1\1\x08\0\0\0\0\0\0\0\7"
    )
    with pytest.raises(UnsupportedVersion):
        encode_coordinator_value(value.replace(next_producer_id=ProducerId(7)), 0)


def test_a_producer_snapshot_is_as_kafka_writes_it() -> None:
    entry = ProducerEntry(
        producer_id=ProducerId(1),
        epoch=2,
        last_sequence=3,
        last_offset=4,
        offset_delta=5,
        timestamp=6,
        coordinator_epoch=7,
        current_txn_first_offset=8,
    )
    snapshot = ProducerSnapshot(crc=0xFFFFFFFF, producer_entries=(entry,))
    assert snapshot.encode(1) == (
        b"\xff\xff\xff\xff\0\0\0\1"
        + (1).to_bytes(8, "big")
        + b"\0\2\0\0\0\3"
        + (4).to_bytes(8, "big")
        + b"\0\0\0\5"
        + (6).to_bytes(8, "big")
        + b"\0\0\0\7"
        + (8).to_bytes(8, "big")
    )


@pytest.mark.parametrize("key", index.CLUSTER_METADATA_RECORDS)
@settings(max_examples=5)
@given(data=st.data())
def test_metadata_records_round_trip(key: int, data: st.DataObject) -> None:
    cls = cluster_metadata_record(key)
    for version in range(cls.VERSIONS.highest + 1):
        record = data.draw(messages(cls, version))
        assert isinstance(record, cls)
        value = encode_metadata_record(record, version)
        assert metadata_record_head(value)[:2] == (key, version)
        assert decode_metadata_record(value) == record


@pytest.mark.parametrize("key", index.REMOTE_LOG_METADATA_RECORDS)
@settings(max_examples=5)
@given(data=st.data())
def test_remote_log_metadata_records_round_trip(key: int, data: st.DataObject) -> None:
    cls = remote_log_metadata_record(key)
    record = data.draw(messages(cls, 0))
    assert isinstance(record, cls)
    assert decode_remote_log_metadata_record(encode_metadata_record(record, 0)) == record


@pytest.mark.parametrize(
    ("coordinator", "number"),
    [(who, number) for who in Coordinator for number in index.COORDINATOR_RECORDS[who]],
)
@settings(max_examples=5)
@given(data=st.data())
def test_coordinator_records_round_trip(
    coordinator: Coordinator, number: int, data: st.DataObject
) -> None:
    key_class, value_class = coordinator_record(coordinator, number)
    key = data.draw(messages(key_class, 0))
    assert isinstance(key, key_class)
    for version in range(value_class.VERSIONS.lowest, value_class.VERSIONS.highest + 1):
        value = data.draw(messages(value_class, version))
        assert isinstance(value, value_class)
        found = decode_coordinator_record(
            coordinator, encode_coordinator_key(key), encode_coordinator_value(value, version)
        )
        assert found == (key, value, version)


@pytest.mark.parametrize(
    "value", [b"", b"\0\2\0", b"\2\2\0", b"\1", b"\1\2", b"\1\x14\0\0\0", b"\1\xff\xff\xff\xff\xff"]
)
def test_a_broken_metadata_record_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_metadata_record(value)


def test_a_metadata_record_from_the_future_is_told_apart() -> None:
    with pytest.raises(UnknownRecordType, match="99"):
        decode_metadata_record(b"\1\x63\0\0")
    with pytest.raises(UnsupportedVersion, match="TopicRecord"):
        decode_metadata_record(b"\1\2\7\0")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\1", None),
        (b"\0\2\0\1gX", None),
        (b"\0\2\0\1g", b""),
        (b"\0\2\0\1g", b"\0\3"),
    ],
)
def test_a_broken_coordinator_record_is_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_coordinator_record(Coordinator.GROUP, key, value)


def test_a_coordinator_record_from_the_future_is_told_apart() -> None:
    with pytest.raises(UnknownRecordType):
        decode_coordinator_record(Coordinator.GROUP, b"\0\x63", None)
    with pytest.raises(UnsupportedVersion):
        decode_coordinator_record(Coordinator.GROUP, b"\0\2\0\1g", b"\0\x63")
