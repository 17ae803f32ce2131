import pytest

from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply, difference
from dohle.metadata.snapshot import snapshot_records
from dohle.protocol.messages.records.cluster_metadata import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from tests.metadata.cluster import Cluster, cluster, uuid


def reloaded(image: ClusterImage) -> ClusterImage:
    records = [
        decode_metadata_record(encode_metadata_record(each.record, each.version))
        for each in snapshot_records(image)
    ]
    return apply(EMPTY_IMAGE, records, image.offset, image.epoch)[0]


def with_everything() -> Cluster:
    made = cluster(2)
    made.create_topic("jays", 2, 2)
    made.replay(
        ConfigRecord(resource_type=2, resource_name="jays", name="retention.ms", value="5"),
        ConfigRecord(resource_type=32, resource_name="group", name="future", value="7"),
        PartitionChangeRecord(
            partition_id=0,
            topic_id=made.topic("jays").id,
            isr=(BrokerId(1),),
            leader=BrokerId(1),
            eligible_leader_replicas=(BrokerId(2),),
            last_known_elr=(BrokerId(2),),
            adding_replicas=(BrokerId(3),),
            leader_recovery_state=1,
        ),
        RegisterControllerRecord(controller_id=9, incarnation_id=uuid(333)),
        ProducerIdsRecord(next_producer_id=4000),
        AccessControlEntryRecord(id=uuid(300), resource_name="jays", principal="User:j"),
        UserScramCredentialRecord(name="j", mechanism=1, salt=b"s", iterations=4096),
        DelegationTokenRecord(owner="User:j", token_id="t", renewers=("User:k",)),
        ClientQuotaRecord(
            entity=(EntityData(entity_type="user", entity_name=None),), key="rate", value=0.5
        ),
    )
    return made


def test_a_snapshot_gives_the_image_again() -> None:
    """R98: whoever loads it has everything, from nothing."""
    image = with_everything().image
    again = reloaded(image)
    assert again == image
    assert (again.offset, again.epoch) == (image.offset, image.epoch)
    assert not difference(image, again)


def test_a_snapshot_has_kafkas_order() -> None:
    """R97."""
    kinds = [type(each.record).__name__ for each in snapshot_records(with_everything().image)]
    assert list(dict.fromkeys(kinds)) == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "RegisterControllerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ConfigRecord",
        "ClientQuotaRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "UserScramCredentialRecord",
        "DelegationTokenRecord",
    ]
    first = snapshot_records(with_everything().image)[0].record
    assert first == FeatureLevelRecord(name="metadata.version", feature_level=29)


@pytest.mark.parametrize("level", [7, 8, 11, 13, 16, 17, 22, 23, 29])
def test_a_snapshot_is_written_in_the_versions_of_its_metadata_version(level: int) -> None:
    made = Cluster()
    made.bootstrap(level)
    made.start_broker()
    made.create_topic("jays", 2)
    assert reloaded(made.image) == made.image
    versions = {type(each.record).__name__: each.version for each in snapshot_records(made.image)}
    assert versions["PartitionRecord"] == (2 if level >= 23 else 1 if level >= 17 else 0)
    assert versions["RegisterBrokerRecord"] == (3 if level >= 17 else 2 if level >= 8 else 1)


def test_there_is_no_snapshot_before_the_bootstrap_or_within_a_transaction() -> None:
    with pytest.raises(ValueError, match="has not been bootstrapped"):
        snapshot_records(EMPTY_IMAGE)
    made = cluster()
    made.replay(BeginTransactionRecord())
    with pytest.raises(ValueError, match="would lose it"):
        snapshot_records(made.image)


def test_the_difference_from_nothing_is_everything() -> None:
    made = with_everything()
    delta = difference(EMPTY_IMAGE, made.image)
    assert [topic.name for topic in delta.created_topics] == ["jays"]
    assert [change.partition for change in delta.changed_partitions] == [0, 1]
    assert [change.id for change in delta.changed_brokers] == [1, 2]
    assert [change.resource.type for change in delta.changed_configs] == [2, 4, 32]
    assert delta.next_producer_id == 4000
    backwards = difference(made.image, EMPTY_IMAGE)
    assert [topic.name for topic in backwards.deleted_topics] == [TopicName("jays")]
    assert backwards.changed_partitions == ()
