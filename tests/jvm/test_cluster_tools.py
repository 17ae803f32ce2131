"""The tools that look at a cluster as a whole."""

from __future__ import annotations

import re

from tests.jvm.tools import Tools, see

#: What a client that reads, writes and administers topics, groups and transactions asks for.
_NEEDED = {
    *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch"),
    *("OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup"),
    *("SyncGroup", "DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete"),
    *("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ApiVersions", "InitProducerId"),
    *("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit"),
    *("CreateTopics", "DeleteTopics", "DeleteRecords", "CreatePartitions", "DescribeConfigs"),
    *("AlterConfigs", "IncrementalAlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs"),
    *("DescribeQuorum", "UpdateFeatures", "DescribeCluster", "DescribeProducers"),
    *("DescribeTransactions", "ListTransactions", "ListConfigResources", "DescribeTopicPartitions"),
}


def test_the_quorum_is_described(tools: Tools) -> None:
    status = dict(
        re.findall(r"^(\w+): +(.*)$", tools.metadata_quorum("describe", "--status").out, re.M)
    )
    assert len(status["ClusterId"]) == 22
    assert status["LeaderId"] == "1"
    assert int(status["HighWatermark"]) > 0
    assert (status["MaxFollowerLag"], status["MaxFollowerLagTimeMs"]) == ("0", "0")
    assert status["CurrentVoters"].startswith('[{"id": 1')
    assert status["CurrentObservers"] == "[]"
    _, row = tools.metadata_quorum("describe", "--replication").table
    assert (row[0], row[3], row[-1]) == ("1", "0", "Leader")


def test_the_newest_version_of_each_api_is_usable(tools: Tools) -> None:
    head, *apis, _ = tools.broker_api_versions().lines
    assert head.startswith(f"{tools.bootstrap} (id: 1 rack: null isFenced: false)")
    usable = {
        name: highest == used
        for name, highest, used in re.findall(
            r"(\w+)\(\d+\): (?:\d+ to )?(\d+) \[usable: (\d+)\]", "\n".join(apis)
        )
    }
    assert usable.keys() >= _NEEDED
    assert all(usable.values())


def _levels(tools: Tools) -> dict[str, str]:
    ran = tools.features("describe")
    return dict(re.findall(r"Feature: (\S+)\t.*FinalizedVersionLevel: (\S+)", ran.out))


def test_the_features_are_described(tools: Tools) -> None:
    levels = _levels(tools)
    assert levels["metadata.version"] == "4.2-IV1"
    assert levels["group.version"] == "1"
    assert levels["transaction.version"] == "2"
    assert levels["kraft.version"] == "0"


def test_a_feature_goes_down_and_up_again(tools: Tools) -> None:
    feature = "transaction.version"
    for way, level, done in [
        ("downgrade", "1", "downgraded"),
        ("upgrade", "2", "upgraded"),
    ]:
        change = [way, "--feature", f"{feature}={level}"]
        assert tools.features(*change, "--dry-run").lines == [
            f"{feature} can be {done} to {level}."
        ]
        assert tools.features(*change).lines == [f"{feature} was {done} to {level}."]
        see(lambda: _levels(tools)[feature], level)


def test_levels_that_are_not_supported_are_refused(tools: Tools) -> None:
    for arguments, reason in [
        (["upgrade", "--feature", "group.version=9"], "controller 1 only supports versions 0-1"),
        (["upgrade", "--feature", "nonsense=1"], "controller 1 does not support this feature."),
        (
            ["downgrade", "--metadata", "3.9-IV0"],
            "Unsupported metadata.version downgrade from 29 to 21",
        ),
    ]:
        ran = tools.attempt("org.apache.kafka.tools.FeatureCommand", *arguments)
        assert ran.code == 1
        assert reason in ran.out
