"""Replay: what each record does to the image, and what is refused."""

import pytest

from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.delta import BrokerChange, ConfigDelta, FeatureChange
from dohle.metadata.image import EMPTY_IMAGE, ConfigResource, ResourceType, ScramKey
from dohle.metadata.partition import (
    DIRECTORY_MIGRATING,
    NO_LEADER,
    LeaderRecoveryState,
)
from dohle.metadata.replay import InvalidMetadataLog, apply
from dohle.protocol.messages.records.cluster_metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from dohle.protocol.schema import MetadataRecord
from tests.metadata.cluster import Cluster, uuid

TOPIC = uuid(500)
BROKER = BrokerId(1)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def partition(index: int = 0, replicas: tuple[BrokerId, ...] = ids(1, 2, 3)) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=TOPIC,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def with_topic() -> Cluster:
    made = Cluster()
    made.replay(TopicRecord(name=TopicName("jays"), topic_id=TOPIC), partition(0), partition(1))
    return made


def register(epoch: int = 7) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=BROKER,
        incarnation_id=uuid(900),
        broker_epoch=epoch,
        end_points=(BrokerEndpoint(name="PLAINTEXT", host="nest", port=9092),),
        log_dirs=(uuid(901), uuid(902)),
    )


def test_a_topic_is_found_by_name_and_by_id() -> None:
    cluster = with_topic()
    topic = cluster.topic("jays")
    assert cluster.image.topic_by_id(TOPIC) is topic
    assert list(topic.partitions) == [0, 1]
    assert cluster.delta.created_topics == (topic,)
    assert [change.partition for change in cluster.delta.changed_partitions] == [0, 1]


def test_partitions_stand_in_ascending_order_however_they_are_written() -> None:
    cluster = Cluster()
    topic = TopicRecord(name=TopicName("jays"), topic_id=TOPIC)
    cluster.replay(topic, partition(2), partition(0), partition(1))
    assert list(cluster.topic("jays").partitions) == [0, 1, 2]


def test_a_partition_from_before_directories_had_ids_is_migrating() -> None:
    assert with_topic().topic("jays").partitions[0].directories == (DIRECTORY_MIGRATING,) * 3


def test_a_change_without_a_leader_keeps_the_leader_epoch() -> None:
    cluster = with_topic()
    delta = cluster.replay(PartitionChangeRecord(partition_id=1, topic_id=TOPIC, isr=ids(1, 3)))
    (change,) = delta.changed_partitions
    assert change.before is not None
    assert (change.topic, change.partition) == ("jays", 1)
    assert (change.before.isr, change.after.isr) == (ids(1, 2, 3), ids(1, 3))
    assert (change.after.leader, change.after.leader_epoch) == (1, 0)
    assert change.after.partition_epoch == 1


def test_a_change_that_names_a_leader_makes_a_new_leader_epoch_even_if_it_stays() -> None:
    cluster = with_topic()
    cluster.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=BrokerId(1)))
    changed = cluster.topic("jays").partitions[0]
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 1, 1)


def test_a_change_keeps_what_it_does_not_name() -> None:
    cluster = with_topic()
    cluster.replay(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=TOPIC,
            leader=NO_LEADER,
            isr=(),
            eligible_leader_replicas=ids(1, 2),
            last_known_elr=ids(3),
            leader_recovery_state=LeaderRecoveryState.RECOVERING,
            directories=(uuid(301), uuid(302), uuid(303)),
        ),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, adding_replicas=ids(4)),
    )
    changed = cluster.topic("jays").partitions[0]
    assert changed.leader == NO_LEADER
    assert changed.elr == ids(1, 2)
    assert changed.last_known_elr == ids(3)
    assert changed.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert changed.adding_replicas == ids(4)
    assert changed.directory_of(2) == uuid(302)
    assert changed.partition_epoch == 2


def test_clear_elr_is_for_one_topic_or_for_all() -> None:
    elr = PartitionChangeRecord(
        partition_id=1, topic_id=TOPIC, eligible_leader_replicas=ids(2), last_known_elr=ids(3)
    )
    for record in (ClearElrRecord(topic_name=TopicName("jays")), ClearElrRecord()):
        cluster = with_topic()
        cluster.replay(elr)
        delta = cluster.replay(record)
        assert [change.partition for change in delta.changed_partitions] == [1]
        cleared = cluster.topic("jays").partitions[1]
        assert (cleared.elr, cleared.last_known_elr) == ((), ())


def test_a_removed_topic_takes_its_configs_with_it() -> None:
    cluster = with_topic()
    resource = ConfigResource(ResourceType.TOPIC, "jays")
    cluster.replay(ConfigRecord(resource_type=2, resource_name="jays", name="k", value="v"))
    before = cluster.topic("jays")
    delta = cluster.replay(RemoveTopicRecord(topic_id=TOPIC))
    assert delta.deleted_topics == (before,)
    assert delta.changed_partitions == ()
    assert delta.changed_configs == (ConfigDelta(resource, {"k": "v"}, {}),)
    assert len(cluster.image.topics) == len(cluster.image.topics_by_id) == 0
    assert cluster.image.colliding_names == {}


def test_a_topic_that_is_deleted_and_made_again_in_one_batch_is_two_topics() -> None:
    cluster = with_topic()
    name = TopicName("jays")
    delta = cluster.replay(
        RemoveTopicRecord(topic_id=TOPIC), TopicRecord(name=name, topic_id=uuid(501))
    )
    assert [topic.id for topic in delta.deleted_topics] == [TOPIC]
    assert [topic.id for topic in delta.created_topics] == [uuid(501)]
    assert cluster.topic("jays").id == uuid(501)


def test_what_comes_and_goes_in_one_batch_leaves_no_trace() -> None:
    cluster = Cluster()
    delta = cluster.replay(
        TopicRecord(name=TopicName("a.b"), topic_id=TOPIC),
        partition(),
        RemoveTopicRecord(topic_id=TOPIC),
    )
    assert not delta
    assert cluster.image == EMPTY_IMAGE


def test_a_null_removes_a_config() -> None:
    cluster = Cluster()
    cluster.replay(
        ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
        ConfigRecord(resource_type=4, resource_name="", name="b", value="2"),
    )
    assert cluster.image.cluster_config() == {"a": "1", "b": "2"}
    cluster.replay(ConfigRecord(resource_type=4, resource_name="", name="a", value=None))
    assert cluster.image.cluster_config() == {"b": "2"}
    cluster.replay(ConfigRecord(resource_type=4, resource_name="", name="b", value=None))
    assert len(cluster.image.configs) == 0


def test_a_feature_at_level_zero_is_no_more_finalized() -> None:
    cluster = Cluster()
    cluster.replay(FeatureLevelRecord(name="group.version", feature_level=1))
    delta = cluster.replay(FeatureLevelRecord(name="group.version", feature_level=0))
    assert cluster.image.features == {}
    assert delta.changed_features == (FeatureChange("group.version", 1, None),)


def test_kraft_version_is_the_quorums_business() -> None:
    """R98: a record of it, as older builds wrote them, is skipped."""
    assert not Cluster().replay(FeatureLevelRecord(name="kraft.version", feature_level=1))


def test_a_broker_is_fenced_until_it_is_unfenced() -> None:
    cluster = Cluster()
    cluster.replay(register())
    registered = cluster.image.brokers[BROKER]
    assert registered.fenced
    assert registered.endpoints["PLAINTEXT"].host == "nest"
    change = BrokerRegistrationChangeRecord(broker_id=BROKER, broker_epoch=7, fenced=-1)
    delta = cluster.replay(change)
    unfenced = cluster.image.brokers[BROKER]
    assert unfenced.is_active
    assert delta.changed_brokers == (BrokerChange(BROKER, registered, unfenced),)


def test_a_broker_that_shuts_down_is_not_active_though_not_fenced() -> None:
    cluster = Cluster()
    cluster.replay(
        register(),
        UnfenceBrokerRecord(id=BROKER, epoch=7),
        BrokerRegistrationChangeRecord(broker_id=BROKER, broker_epoch=7, in_controlled_shutdown=1),
    )
    broker = cluster.image.brokers[BROKER]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.is_active) == (False, True, False)
    cluster.replay(FenceBrokerRecord(id=BROKER, epoch=7))
    assert cluster.image.brokers[BROKER].fenced


def test_a_broker_that_lost_a_directory_keeps_the_others() -> None:
    cluster = Cluster()
    cluster.replay(
        register(),
        BrokerRegistrationChangeRecord(broker_id=BROKER, broker_epoch=7, log_dirs=(uuid(902),)),
    )
    broker = cluster.image.brokers[BROKER]
    assert broker.log_dirs == (uuid(902),)
    assert broker.has_online_dir(uuid(902))
    assert not broker.has_online_dir(uuid(901))


def test_an_unregistered_broker_is_gone() -> None:
    cluster = Cluster()
    cluster.replay(register())
    cluster.replay(UnregisterBrokerRecord(broker_id=BROKER, broker_epoch=7))
    assert len(cluster.image.brokers) == 0


def test_what_only_security_needs_is_kept_as_it_is() -> None:
    acl = AccessControlEntryRecord(id=uuid(300), resource_name="jays", principal="User:j")
    password = UserScramCredentialRecord(name="j", mechanism=2, salt=b"salt", iterations=4096)
    token = DelegationTokenRecord(owner="User:j", token_id="t")
    cluster = Cluster()
    cluster.replay(acl, password, token, RegisterControllerRecord(controller_id=9))
    assert list(cluster.image.acls.values()) == [acl]
    assert dict(cluster.image.scram_credentials) == {ScramKey(2, "j"): password}
    assert list(cluster.image.delegation_tokens.values()) == [token]
    assert list(cluster.image.controllers) == [9]
    cluster.replay(
        RemoveAccessControlEntryRecord(id=uuid(300)),
        RemoveUserScramCredentialRecord(name="j", mechanism=2),
        RemoveDelegationTokenRecord(token_id="t"),
    )
    assert not cluster.image.acls
    assert not cluster.image.scram_credentials
    assert not cluster.image.delegation_tokens


def test_a_quota_belongs_to_its_entity_whatever_the_order_of_its_parts() -> None:
    user, client = (
        EntityData(entity_type="user", entity_name="j"),
        EntityData(entity_type="client-id", entity_name=None),
    )
    cluster = Cluster()
    cluster.replay(ClientQuotaRecord(entity=(user, client), key="rate", value=1.0))
    cluster.replay(ClientQuotaRecord(entity=(client, user), key="rate", value=2.0))
    (quota,) = cluster.image.client_quotas.values()
    assert quota.value == 2.0
    cluster.replay(ClientQuotaRecord(entity=(user, client), key="rate", remove=True))
    assert not cluster.image.client_quotas


def test_records_without_a_meaning_here_only_move_the_offset() -> None:
    cluster = Cluster()
    delta = cluster.replay(NoOpRecord(), ZkMigrationStateRecord(zk_migration_state=4))
    assert not delta
    assert cluster.image == EMPTY_IMAGE
    assert (cluster.image.offset, cluster.image.epoch) == (1, 3)


def test_a_transaction_shows_at_its_end() -> None:
    cluster = Cluster()
    cluster.replay(NoOpRecord(), BeginTransactionRecord(name="all of it"), register())
    assert cluster.image == EMPTY_IMAGE
    cluster.replay(TopicRecord(name=TopicName("jays"), topic_id=TOPIC))
    assert cluster.image == EMPTY_IMAGE
    transaction = cluster.image.transaction
    assert transaction is not None
    assert (transaction.start_offset, transaction.name) == (1, "all of it")
    delta = cluster.replay(partition(), EndTransactionRecord(), NoOpRecord())
    assert cluster.image.transaction is None
    assert [topic.name for topic in delta.created_topics] == ["jays"]
    assert [change.id for change in delta.changed_brokers] == [BROKER]
    assert list(cluster.topic("jays").partitions) == [0]


def test_an_aborted_transaction_never_shows() -> None:
    cluster = Cluster()
    cluster.replay(BeginTransactionRecord(), register())
    assert not cluster.replay(AbortTransactionRecord(reason="failover"))
    assert cluster.image == EMPTY_IMAGE
    assert cluster.image.transaction is None


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ((partition(),), "no topic of the id"),
        ((RemoveTopicRecord(topic_id=TOPIC),), "no topic of the id"),
        ((ClearElrRecord(topic_name=TopicName("crows")),), "no topic 'crows'"),
        ((EndTransactionRecord(),), "no transaction is open"),
        ((AbortTransactionRecord(),), "no transaction is open"),
        ((BeginTransactionRecord(), BeginTransactionRecord()), "has not ended"),
        ((FenceBrokerRecord(id=BROKER, epoch=1),), "no broker 1 of the epoch 1"),
        ((register(7), UnregisterBrokerRecord(broker_id=BROKER, broker_epoch=6)), "epoch 6"),
        (
            (
                register(7),
                BrokerRegistrationChangeRecord(broker_id=BROKER, broker_epoch=7, fenced=5),
            ),
            "of no meaning",
        ),
        (
            (ProducerIdsRecord(next_producer_id=2000), ProducerIdsRecord(next_producer_id=1000)),
            "falls from 2000 to 1000",
        ),
    ],
)
def test_what_cannot_follow_is_refused(records: tuple[MetadataRecord, ...], message: str) -> None:
    with pytest.raises(InvalidMetadataLog, match=message):
        apply(EMPTY_IMAGE, records, len(records), 1)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (TopicRecord(name=TopicName("jays"), topic_id=uuid(501)), "already there"),
        (TopicRecord(name=TopicName("crows"), topic_id=TOPIC), "the id .* of another one"),
        (PartitionChangeRecord(partition_id=9, topic_id=TOPIC), "no partition 9"),
        (partition().replace(directories=(uuid(301),)), "1 directories for 3 replicas"),
        (partition().replace(leader_recovery_state=9), "not a valid LeaderRecoveryState"),
    ],
)
def test_what_contradicts_a_topic_is_refused(record: MetadataRecord, message: str) -> None:
    with pytest.raises(InvalidMetadataLog, match=message):
        with_topic().replay(record)


def test_a_refused_batch_leaves_the_image_as_it_was() -> None:
    cluster = with_topic()
    before = cluster.image
    with pytest.raises(InvalidMetadataLog):
        cluster.replay(RemoveTopicRecord(topic_id=TOPIC), RemoveTopicRecord(topic_id=TOPIC))
    assert cluster.image is before
    assert cluster.topic("jays")
