"""The records of the cluster metadata log.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import (
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from dohle.protocol.schema import MetadataRecord, Struct


class BrokerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions="0-3", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: tuple[BrokerEndpoint, ...] = array(BrokerEndpoint, "0+")
    features: tuple[BrokerFeature, ...] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable=True)
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: tuple[Uuid, ...] = array(uuid, "3+", tag=0)


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions="0", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+")


class TopicRecord(MetadataRecord, api_key=2, versions="0", flexible="0+"):
    name: TopicName = string("0+")
    topic_id: Uuid = uuid("0+")


class PartitionRecord(MetadataRecord, api_key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    replicas: tuple[BrokerId, ...] = array(int32, "0+")
    isr: tuple[int, ...] = array(int32, "0+")
    removing_replicas: tuple[BrokerId, ...] = array(int32, "0+")
    adding_replicas: tuple[BrokerId, ...] = array(int32, "0+")
    leader: BrokerId = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: tuple[Uuid, ...] = array(uuid, "1+")
    eligible_leader_replicas: tuple[BrokerId, ...] | None = array(
        int32, "2+", nullable=True, default=None, tag=1
    )
    last_known_elr: tuple[BrokerId, ...] | None = array(
        int32, "2+", nullable=True, default=None, tag=2
    )


class ConfigRecord(MetadataRecord, api_key=4, versions="0", flexible="0+"):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable=True)


class PartitionChangeRecord(MetadataRecord, api_key=5, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    isr: tuple[BrokerId, ...] | None = array(int32, "0+", nullable=True, default=None, tag=0)
    leader: BrokerId = int32("0+", default=-2, tag=1)
    replicas: tuple[BrokerId, ...] | None = array(int32, "0+", nullable=True, default=None, tag=2)
    removing_replicas: tuple[BrokerId, ...] | None = array(
        int32, "0+", nullable=True, default=None, tag=3
    )
    adding_replicas: tuple[BrokerId, ...] | None = array(
        int32, "0+", nullable=True, default=None, tag=4
    )
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: tuple[Uuid, ...] | None = array(uuid, "1+", nullable=True, default=None, tag=8)
    eligible_leader_replicas: tuple[BrokerId, ...] | None = array(
        int32, "2+", nullable=True, default=None, tag=6
    )
    last_known_elr: tuple[BrokerId, ...] | None = array(
        int32, "2+", nullable=True, default=None, tag=7
    )


class FenceBrokerRecord(MetadataRecord, api_key=7, versions="0", flexible="0+"):
    id: BrokerId = int32("0+")
    epoch: int = int64("0+")


class UnfenceBrokerRecord(MetadataRecord, api_key=8, versions="0", flexible="0+"):
    id: BrokerId = int32("0+")
    epoch: int = int64("0+")


class RemoveTopicRecord(MetadataRecord, api_key=9, versions="0", flexible="0+"):
    topic_id: Uuid = uuid("0+")


class DelegationTokenRecord(MetadataRecord, api_key=10, versions="0", flexible="0+"):
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: tuple[str, ...] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class UserScramCredentialRecord(MetadataRecord, api_key=11, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = binary("0+")
    stored_key: bytes = binary("0+")
    server_key: bytes = binary("0+")
    iterations: int = int32("0+")


class FeatureLevelRecord(MetadataRecord, api_key=12, versions="0", flexible="0+"):
    name: str = string("0+")
    feature_level: int = int16("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable=True)


class ClientQuotaRecord(MetadataRecord, api_key=14, versions="0", flexible="0+"):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ProducerIdsRecord(MetadataRecord, api_key=15, versions="0", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions="0-2", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: tuple[Uuid, ...] = array(uuid, "2+", tag=2)


class AccessControlEntryRecord(MetadataRecord, api_key=18, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(MetadataRecord, api_key=19, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")


class NoOpRecord(MetadataRecord, api_key=20, versions="0", flexible="0+"):
    """Carries no fields of its own."""


class ZkMigrationStateRecord(MetadataRecord, api_key=21, versions="0", flexible="0+"):
    zk_migration_state: int = int8("0+")


class RemoveUserScramCredentialRecord(MetadataRecord, api_key=22, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")


class BeginTransactionRecord(MetadataRecord, api_key=23, versions="0", flexible="0+"):
    name: str | None = string("0+", nullable=True, default=None, tag=0)


class EndTransactionRecord(MetadataRecord, api_key=24, versions="0", flexible="0+"):
    """Carries no fields of its own."""


class AbortTransactionRecord(MetadataRecord, api_key=25, versions="0", flexible="0+"):
    reason: str | None = string("0+", nullable=True, default=None, tag=0)


class RemoveDelegationTokenRecord(MetadataRecord, api_key=26, versions="0", flexible="0+"):
    token_id: str = string("0+")


class ControllerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(MetadataRecord, api_key=27, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    incarnation_id: Uuid = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: tuple[ControllerEndpoint, ...] = array(ControllerEndpoint, "0+")
    features: tuple[ControllerFeature, ...] = array(ControllerFeature, "0+")


class ClearElrRecord(MetadataRecord, api_key=28, versions="0", flexible="0+"):
    topic_name: TopicName = string("0+")
