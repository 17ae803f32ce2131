from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.uuid import METADATA_TOPIC_ID
from dohle.protocol.messages.records.cluster_metadata import (
    BrokerEndpoint,
    ClientQuotaRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from dohle.protocol.messages.records.control import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from dohle.protocol.schema import MetadataRecord
from dohle.records.control import ControlRecordType, build_control_batch
from tests.cli.dump.files import (
    LEADER_EPOCH,
    NOW_MS,
    TOPIC_ID,
    TOPIC_ID_TEXT,
    batch,
    metadata_batch,
    records_of,
    write_segment,
)

Capture = pytest.CaptureFixture[str]

HEADER = (ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord().encode(0))
FOOTER = (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord().encode(0))
SNAPSHOT = "00000000000000000012-0000000003.checkpoint"

RECORDS: list[tuple[MetadataRecord, int]] = [
    (FeatureLevelRecord(name="metadata.version", feature_level=29), 0),
    (
        RegisterBrokerRecord(
            broker_id=BrokerId(1),
            incarnation_id=TOPIC_ID,
            broker_epoch=7,
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092),),
            rack=None,
            log_dirs=(TOPIC_ID,),
        ),
        3,
    ),
    (TopicRecord(name=TopicName("orders"), topic_id=TOPIC_ID), 0),
    (
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=(BrokerId(1), BrokerId(2)),
            isr=(1,),
            leader=BrokerId(1),
            leader_epoch=0,
            partition_epoch=0,
            directories=(TOPIC_ID, Uuid(bytes(16))),
        ),
        1,
    ),
    (NoOpRecord(), 0),
]


def test_metadata_records_are_shown_by_name_with_their_fields(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write_segment(tmp_path / "__cluster_metadata-0", metadata_batch(RECORDS))
    values = [row["value"] for row in records_of(capsys, path)]
    assert [(value["name"], value["version"]) for value in values] == [
        ("FeatureLevelRecord", 0),
        ("RegisterBrokerRecord", 3),
        ("TopicRecord", 0),
        ("PartitionRecord", 1),
        ("NoOpRecord", 0),
    ]
    assert values[0]["data"] == {"name": "metadata.version", "featureLevel": 29}
    assert values[1]["data"] == {
        "brokerId": 1,
        "isMigratingZkBroker": False,
        "incarnationId": TOPIC_ID_TEXT,
        "brokerEpoch": 7,
        "endPoints": [
            {"name": "PLAINTEXT", "host": "localhost", "port": 9092, "securityProtocol": 0}
        ],
        "features": [],
        "rack": None,
        "fenced": True,
        "inControlledShutdown": False,
        "logDirs": [TOPIC_ID_TEXT],
    }
    assert values[2]["data"] == {"name": "orders", "topicId": TOPIC_ID_TEXT}
    assert values[3]["data"]["replicas"] == [1, 2]
    assert values[3]["data"]["directories"] == [TOPIC_ID_TEXT, "AAAAAAAAAAAAAAAAAAAAAA"]
    # Neither a field of a later version nor a tagged field that was not written.
    assert "eligibleLeaderReplicas" not in values[3]["data"]
    assert "leaderRecoveryState" not in values[3]["data"]
    assert values[4]["data"] == {}


def test_metadata_records_are_readable_as_text(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(tmp_path / "__cluster_metadata-0", metadata_batch(RECORDS[:3]))
    assert main(["log", "dump", "--records", str(path)]) == 0
    assert (
        f"| offset: 2 timestamp: {NOW_MS} sequence: -1 key: null "
        f'value: TopicRecord v0 {{"name":"orders","topicId":"{TOPIC_ID_TEXT}"}} headers: []\n'
    ) in capsys.readouterr().out


def test_a_metadata_log_elsewhere_is_decoded_on_demand(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(tmp_path / "copy", metadata_batch(RECORDS[:1]))
    (plain,) = records_of(capsys, path)
    assert "utf8" in plain["value"]
    (decoded,) = records_of(capsys, "--cluster-metadata-decoder", path)
    assert decoded["value"]["name"] == "FeatureLevelRecord"
    # The option alone shows records, as it does in Kafka's tool.
    assert main(["log", "dump", "--cluster-metadata-decoder", str(path)]) == 0
    assert "FeatureLevelRecord v0" in capsys.readouterr().out


def test_numbers_that_json_lacks_are_texts(tmp_path: Path, capsys: Capture) -> None:
    quota = ClientQuotaRecord(key="producer_byte_rate", value=float("nan"))
    path = write_segment(tmp_path / "__cluster_metadata-0", metadata_batch([(quota, 0)]))
    (found,) = records_of(capsys, path)
    assert found["value"]["data"]["value"] == "nan"


def test_a_metadata_record_of_a_later_release_is_no_failure(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write_segment(
        tmp_path / "__cluster_metadata-0",
        batch(b"\x01\x63\x00rest", b"\x01\x02\x09rest", key=None),
    )
    found = records_of(capsys, path)
    assert found[0]["value"]["undecoded"] == "no cluster metadata record has the key 99"
    assert found[0]["value"]["utf8"] == "\x01c\x00rest"
    assert "version 9" in found[1]["value"]["undecoded"]
    assert main(["log", "dump", "--records", str(path)]) == 0
    assert "value: 0x01630072657374 (not decoded: no cluster" in capsys.readouterr().out


def test_records_that_cannot_be_decoded_are_shown_raw_and_counted(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write_segment(
        tmp_path / "__cluster_metadata-0",
        batch(b"\x02\x02\x00", b"\x01\x02", None, key=None),
        metadata_batch(RECORDS[:1], base_offset=3),
    )
    assert main(["log", "dump", "--records", str(path)]) == 1
    shown = capsys.readouterr()
    assert "value: 0x0102 headers: [] problem: " in shown.out
    assert "FeatureLevelRecord" in shown.out
    assert shown.err == (
        f"dohle: error: {path}: 3 records could not be decoded: first at offset 0: a metadata "
        "record of the unknown frame version 2\n"
    )


# Snapshots and control records


def test_a_snapshot_is_shown_from_header_to_footer(tmp_path: Path, capsys: Capture) -> None:
    voters = VotersRecord(
        voters=(
            VotersRecordVoter(
                voter_id=BrokerId(1),
                voter_directory_id=TOPIC_ID,
                endpoints=(Endpoint(name="CONTROLLER", host="localhost", port=9093),),
                kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
            ),
        )
    )
    path = write_segment(
        tmp_path,
        build_control_batch(
            [
                (
                    ControlRecordType.SNAPSHOT_HEADER,
                    SnapshotHeaderRecord(last_contained_log_timestamp=NOW_MS).encode(0),
                ),
                (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1).encode(0)),
                (ControlRecordType.KRAFT_VOTERS, voters.encode(0)),
            ],
            NOW_MS,
        ),
        metadata_batch(RECORDS, base_offset=3),
        build_control_batch([FOOTER], NOW_MS, base_offset=8),
        name=SNAPSHOT,
    )
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out.startswith(
        f"Dumping {path} (metadata snapshot, offset 12, {path.stat().st_size} bytes)\n"
    )
    found = records_of(capsys, path, type="controlRecord")
    assert [(row["controlType"], row["value"]["name"]) for row in found] == [
        ("SNAPSHOT_HEADER", "SnapshotHeaderRecord"),
        ("KRAFT_VERSION", "KRaftVersionRecord"),
        ("KRAFT_VOTERS", "VotersRecord"),
        ("SNAPSHOT_FOOTER", "SnapshotFooterRecord"),
    ]
    assert found[0]["value"]["data"] == {"version": 0, "lastContainedLogTimestamp": NOW_MS}
    assert found[1]["value"]["data"]["kraftVersion"] == 1
    (voter,) = found[2]["value"]["data"]["voters"]
    assert voter["voterDirectoryId"] == TOPIC_ID_TEXT
    assert voter["endpoints"] == [{"name": "CONTROLLER", "host": "localhost", "port": 9093}]
    assert len(records_of(capsys, path)) == len(RECORDS)


def test_the_bootstrap_snapshot_is_decoded_wherever_it_lies(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write_segment(
        tmp_path,
        build_control_batch([HEADER], NOW_MS),
        metadata_batch(RECORDS[:1], base_offset=1),
        build_control_batch([FOOTER], NOW_MS, base_offset=2),
        name="bootstrap.checkpoint",
    )
    (found,) = records_of(capsys, path)
    assert found["value"]["data"]["featureLevel"] == 29


@pytest.mark.parametrize("records", [[], ["--records"]])
def test_a_snapshot_without_a_footer_is_incomplete(
    tmp_path: Path, capsys: Capture, records: list[str]
) -> None:
    path = write_segment(
        tmp_path,
        build_control_batch([HEADER], NOW_MS),
        metadata_batch(RECORDS, base_offset=1),
        name=SNAPSHOT + ".part",
    )
    assert main(["log", "dump", *records, str(path)]) == 1
    assert capsys.readouterr().err == (
        f"dohle: error: {path}: the snapshot is incomplete: it does not end with a "
        "SNAPSHOT_FOOTER\n"
    )


@pytest.mark.parametrize("version", [0, 1])
def test_a_change_of_the_leader_is_decoded_in_its_version(
    tmp_path: Path, capsys: Capture, version: int
) -> None:
    message = LeaderChangeMessage(
        version=version,
        leader_id=BrokerId(3),
        voters=(
            LeaderChangeMessageVoter(
                voter_id=3, voter_directory_id=METADATA_TOPIC_ID if version else Uuid(bytes(16))
            ),
        ),
    )
    path = write_segment(
        tmp_path / "__cluster_metadata-0",
        build_control_batch(
            [(ControlRecordType.LEADER_CHANGE, message.encode(version))],
            NOW_MS,
            leader_epoch=LEADER_EPOCH,
        ),
    )
    (found,) = records_of(capsys, path, type="controlRecord")
    assert found["controlType"] == "LEADER_CHANGE"
    assert found["value"]["version"] == version
    voter: dict[str, Any] = {"voterId": 3}
    if version:
        voter["voterDirectoryId"] = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert found["value"]["data"] == {
        "version": version,
        "leaderId": 3,
        "voters": [voter],
        "grantingVoters": [],
    }


@pytest.mark.parametrize("value", [b"\x00", b"\x00\x00\xff", b"\x00\x09\x00"])
def test_a_broken_control_record_is_shown_raw(
    tmp_path: Path, capsys: Capture, value: bytes
) -> None:
    path = write_segment(
        tmp_path, build_control_batch([(ControlRecordType.LEADER_CHANGE, value)], NOW_MS)
    )
    later_version = value[1:2] == b"\x09"
    code = 0 if later_version else 1
    (found,) = records_of(capsys, path, code=code, type="controlRecord")
    assert ("problem" in found) != later_version
