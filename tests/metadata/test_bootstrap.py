import pytest

from dohle.metadata.bootstrap import activation_records, default_bootstrap_records
from dohle.metadata.image import EMPTY_IMAGE
from dohle.protocol.messages.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
)
from tests.metadata.cluster import Cluster, context, uuid

LEVEL_29 = FeatureLevelRecord(name="metadata.version", feature_level=29)
ELR = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
GROUPS = FeatureLevelRecord(name="group.version", feature_level=1)
TRANSACTIONS = FeatureLevelRecord(name="transaction.version", feature_level=2)


def test_a_new_cluster_begins_with_its_features_in_a_transaction() -> None:
    cluster = Cluster()
    assert cluster.write(activation_records(cluster.image, cluster.context)) == [
        BeginTransactionRecord(name="Bootstrap records"),
        LEVEL_29,
        ELR,
        GROUPS,
        TRANSACTIONS,
        ConfigRecord(resource_type=4, name="min.insync.replicas", value="1"),
        EndTransactionRecord(),
    ]
    assert cluster.image.features == {
        "metadata.version": 29,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_a_cluster_that_is_there_needs_nothing() -> None:
    cluster = Cluster()
    cluster.bootstrap()
    assert activation_records(cluster.image, cluster.context) == ()


def test_a_level_without_transactions_is_written_bare() -> None:
    records = activation_records(EMPTY_IMAGE, context(), default_bootstrap_records(12))
    assert [each.record for each in records] == [LEVEL_29.replace(feature_level=12)]


def test_with_elr_the_minimum_of_in_sync_replicas_is_in_the_log_from_the_beginning() -> None:
    cluster = Cluster(context({"min.insync.replicas": "2"}))
    batch = cluster.write(activation_records(cluster.image, cluster.context))
    assert batch[-2:] == [
        ConfigRecord(resource_type=4, name="min.insync.replicas", value="2"),
        EndTransactionRecord(),
    ]
    assert cluster.image.cluster_config() == {"min.insync.replicas": "2"}


def test_a_cluster_may_begin_without_elr() -> None:
    cluster = Cluster()
    bootstrap = default_bootstrap_records(chosen={"eligible.leader.replicas.version": 0})
    batch = cluster.write(activation_records(cluster.image, cluster.context, bootstrap))
    assert batch[1:] == [LEVEL_29, GROUPS, TRANSACTIONS, EndTransactionRecord()]
    assert cluster.image.cluster_config() == {}


@pytest.mark.parametrize(
    ("level", "features"),
    [
        (21, []),
        (22, [GROUPS]),
        (23, [GROUPS]),
        (24, [GROUPS, TRANSACTIONS]),
        (25, [GROUPS, TRANSACTIONS]),
        (26, [ELR, GROUPS, TRANSACTIONS]),
    ],
)
def test_features_are_finalized_from_the_metadata_version_on_for_which_kafka_does_so(
    level: int, features: list[FeatureLevelRecord]
) -> None:
    """R103, and ``kafka-storage version-mapping`` of 4.2.1."""
    records = [each.record for each in default_bootstrap_records(level)]
    assert records == [LEVEL_29.replace(feature_level=level), *features]


def test_h26_a_bootstrap_that_was_cut_short_is_aborted_and_begun_again() -> None:
    cluster = Cluster()
    cluster.replay(BeginTransactionRecord(name="Bootstrap records"), LEVEL_29)
    batch = cluster.write(activation_records(cluster.image, cluster.context))
    assert [type(record) for record in batch] == [
        AbortTransactionRecord,
        BeginTransactionRecord,
        *[FeatureLevelRecord] * 4,
        ConfigRecord,
        EndTransactionRecord,
    ]
    assert cluster.image.metadata_version == 29


def test_a_transaction_that_a_former_controller_left_open_is_aborted() -> None:
    cluster = Cluster()
    cluster.bootstrap()
    cluster.replay(BeginTransactionRecord(), TopicRecord(topic_id=uuid(500)))
    assert cluster.write(activation_records(cluster.image, cluster.context)) == [
        AbortTransactionRecord(reason="Controller failover")
    ]
    assert cluster.image.transaction is None


def test_bootstrap_records_must_say_the_metadata_version() -> None:
    with pytest.raises(ValueError, match=r"which metadata\.version"):
        activation_records(EMPTY_IMAGE, context(), ())
