from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.ids import TopicName
from dohle.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from dohle.protocol.messages.records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from dohle.protocol.messages.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from dohle.protocol.messages.records.storage import RemotePartitionDeleteMetadataRecord
from dohle.protocol.messages.records.transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from dohle.protocol.record_framing import encode_coordinator_key
from tests.cli.dump.files import (
    NOW_MS,
    TOPIC_ID,
    TOPIC_ID_TEXT,
    Node,
    append,
    batch,
    coordinator_batch,
    metadata_batch,
    records_of,
    write_segment,
)

Capture = pytest.CaptureFixture[str]


def consumer_group() -> GroupMetadataValue:
    partitions = ConsumerProtocolAssignmentTopicPartition(
        topic=TopicName("orders"), partitions=(0, 1)
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="member-1",
        current_state_timestamp=NOW_MS,
        members=(
            MemberMetadata(
                member_id="member-1",
                client_id="app",
                client_host="/127.0.0.1",
                subscription=b"\x00\x01"
                + ConsumerProtocolSubscription(topics=("orders",)).encode(1),
                assignment=b"\x00\x00"
                + ConsumerProtocolAssignment(assigned_partitions=(partitions,)).encode(0),
            ),
        ),
    )


def test_offsets_and_groups_are_decoded(tmp_path: Path, capsys: Capture) -> None:
    node = Node(tmp_path)
    key = OffsetCommitKey(group="g", topic="orders", partition=1)
    append(
        node.log("__consumer_offsets", 12),
        coordinator_batch(
            (key, OffsetCommitValue(offset=42, metadata="m", commit_timestamp=NOW_MS), 3),
            (key, None, 0),
            (GroupMetadataKey(group="g"), consumer_group(), 3),
        ),
    )
    node.close()
    commit, tombstone, group = records_of(capsys, tmp_path / "__consumer_offsets-12")
    assert commit["key"] == {
        "name": "OffsetCommitKey",
        "data": {"group": "g", "topic": "orders", "partition": 1},
    }
    assert commit["value"] == {
        "name": "OffsetCommitValue",
        "version": 3,
        "data": {"offset": 42, "leaderEpoch": -1, "metadata": "m", "commitTimestamp": NOW_MS},
    }
    assert tombstone["key"] == commit["key"]
    assert tombstone["value"] is None
    data = group["value"]["data"]
    assert (data["generation"], data["protocol"]) == (4, "range")
    (member,) = data["members"]
    assert member["subscription"] == {
        "name": "ConsumerProtocolSubscription",
        "version": 1,
        "data": {"topics": ["orders"], "userData": None, "ownedPartitions": []},
    }
    assert member["assignment"]["data"]["assignedPartitions"] == [
        {"topic": "orders", "partitions": [0, 1]}
    ]


def test_a_member_whose_subscription_is_its_own_affair_is_shown_raw(
    tmp_path: Path, capsys: Capture
) -> None:
    members = (MemberMetadata(member_id="m", subscription=b"\x00\x01\xff"),)
    strange = GroupMetadataValue(protocol_type="consumer", members=members)
    connect = GroupMetadataValue(protocol_type="connect", members=members)
    path = write_segment(
        tmp_path / "__consumer_offsets-0",
        coordinator_batch(
            (GroupMetadataKey(group="a"), strange, 3), (GroupMetadataKey(group="b"), connect, 3)
        ),
    )
    for row in records_of(capsys, path):
        (member,) = row["value"]["data"]["members"]
        assert member["subscription"] == {"base64": "AAH/"}
        assert member["assignment"] == {"utf8": ""}


def test_transaction_states_are_decoded(tmp_path: Path, capsys: Capture) -> None:
    key = TransactionLogKey(transactional_id="pay")
    state = TransactionLogValue(
        producer_id=5,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=(PartitionsSchema(topic="orders", partition_ids=(0, 2)),),
        transaction_last_update_timestamp_ms=NOW_MS,
        transaction_start_timestamp_ms=NOW_MS,
        next_producer_id=6,
    )
    path = write_segment(
        tmp_path / "__transaction_state-3", coordinator_batch((key, state, 1), (key, None, 0))
    )
    found, tombstone = records_of(capsys, path)
    assert found["key"]["data"] == {"transactionalId": "pay"}
    data = found["value"]["data"]
    assert data["transactionPartitions"] == [{"topic": "orders", "partitionIds": [0, 2]}]
    assert data["nextProducerId"] == 6
    assert "previousProducerId" not in data
    assert tombstone["value"] is None
    assert main(["log", "dump", "--records", str(path)]) == 0
    text = capsys.readouterr().out
    assert (
        'key: TransactionLogKey {"transactionalId":"pay"} value: TransactionLogValue v1 {' in text
    )
    assert 'key: TransactionLogKey {"transactionalId":"pay"} value: null' in text


def test_share_group_states_are_decoded(tmp_path: Path, capsys: Capture) -> None:
    states = (StateBatch(first_offset=1, last_offset=4, delivery_state=2, delivery_count=1),)
    path = write_segment(
        tmp_path / "copy",
        coordinator_batch(
            (
                ShareSnapshotKey(group_id="s", topic_id=TOPIC_ID, partition=0),
                ShareSnapshotValue(snapshot_epoch=1, start_offset=1, state_batches=states),
                0,
            ),
            (
                ShareUpdateKey(group_id="s", topic_id=TOPIC_ID, partition=0),
                ShareUpdateValue(snapshot_epoch=1, start_offset=5),
                0,
            ),
        ),
    )
    snapshot, update = records_of(capsys, "--share-group-state-decoder", path)
    assert snapshot["key"]["data"] == {"groupId": "s", "topicId": TOPIC_ID_TEXT, "partition": 0}
    assert snapshot["value"]["data"]["stateBatches"][0]["lastOffset"] == 4
    assert update["value"]["name"] == "ShareUpdateValue"


def test_remote_log_metadata_is_decoded(tmp_path: Path, capsys: Capture) -> None:
    record = RemotePartitionDeleteMetadataRecord(broker_id=2)
    path = write_segment(tmp_path / "__remote_log_metadata-7", metadata_batch([(record, 0)]))
    (found,) = records_of(capsys, path)
    assert found["value"]["name"] == "RemotePartitionDeleteMetadataRecord"
    (found,) = records_of(capsys, "--remote-log-metadata-decoder", path)
    assert found["value"]["data"]["brokerId"] == 2


def test_the_folder_of_a_deleted_partition_tells_its_topic_too(
    tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / f"__transaction_state-3.{'0' * 32}-delete"
    key = TransactionLogKey(transactional_id="pay")
    path = write_segment(folder, coordinator_batch((key, None, 0)))
    (found,) = records_of(capsys, path)
    assert found["key"]["name"] == "TransactionLogKey"


def test_coordinator_records_of_a_later_release_are_no_failure(
    tmp_path: Path, capsys: Capture
) -> None:
    key = encode_coordinator_key(OffsetCommitKey(group="g", topic="t", partition=0))
    path = write_segment(
        tmp_path / "__consumer_offsets-0",
        batch(b"v", key=struct.pack(">h", 99)),
        batch(struct.pack(">h", 77), key=key, base_offset=1),
    )
    unknown_type, unknown_version = records_of(capsys, path)
    assert unknown_type["key"]["undecoded"] == "the group coordinator has no record type 99"
    assert unknown_type["value"] == {"utf8": "v"}
    assert unknown_version["key"]["name"] == "OffsetCommitKey"
    assert "version 77" in unknown_version["value"]["undecoded"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"value"),
        (b"\x00", b"value"),
        (b"\x00\x01\x00\x05abc", b"\x00\x03"),
        (encode_coordinator_key(GroupMetadataKey(group="g")), b"\x00"),
        (encode_coordinator_key(GroupMetadataKey(group="g")), b"\x00\x03\x00"),
    ],
)
def test_a_broken_coordinator_record_is_shown_raw(
    tmp_path: Path, capsys: Capture, key: bytes | None, value: bytes
) -> None:
    path = write_segment(tmp_path, batch(value, key=key))
    (found,) = records_of(capsys, "--offsets-decoder", path, code=1)
    assert found["problem"]
    assert found["value"].keys() <= {"utf8", "base64"}
