"""Turns an image into the records of a snapshot: replayed on an empty image they restore it.

The order is Kafka's: features first, starting with metadata.version, which a reader must know to
read on; then brokers, controllers, topics, configs and the rest. Record versions are those of the
finalized metadata.version. The header and the footer of the file are written elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from dohle.core.ids import BrokerId
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import NO_PRODUCER_IDS, BrokerRegistration, ClusterImage
from dohle.metadata.metadata_version import (
    METADATA_VERSION,
    register_broker_record_version,
    supports_controller_registration,
    supports_delegation_tokens,
    supports_directories,
    supports_scram,
)
from dohle.protocol.messages.records.cluster_metadata import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

_NO_BROKER = BrokerId(-1)


def snapshot_records(image: ClusterImage) -> list[VersionedRecord]:
    """Return the records of a snapshot that ends with this image's offset."""
    level = image.metadata_version
    if level is None:
        raise ValueError("there is no snapshot of a cluster that has not been bootstrapped")
    if image.transaction is not None:
        raise ValueError(
            f"the transaction of offset {image.transaction.start_offset} is open: a snapshot "
            "here would lose it"
        )
    return [
        *_features(image, level),
        *_nodes(image, level),
        *_topics(image, level),
        *_configs(image),
        *(VersionedRecord(record, 0) for record in image.client_quotas.values()),
        *_producer_ids(image),
        *(VersionedRecord(record, 0) for record in image.acls.values()),
        *_credentials(image, level),
    ]


def registration_record(broker: BrokerRegistration, level: int) -> VersionedRecord:
    """Return the record that holds all of a registration."""
    return VersionedRecord(
        RegisterBrokerRecord(
            broker_id=broker.id,
            is_migrating_zk_broker=broker.is_migrating_zk_broker,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=tuple(
                BrokerEndpoint(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in broker.endpoints.values()
            ),
            features=tuple(
                BrokerFeature(
                    name=name,
                    min_supported_version=versions.lowest,
                    max_supported_version=versions.highest,
                )
                for name, versions in broker.features.items()
            ),
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.log_dirs if supports_directories(level) else (),
        ),
        register_broker_record_version(level),
    )


def _features(image: ClusterImage, level: int) -> Iterator[VersionedRecord]:
    yield VersionedRecord(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), 0)
    for name in sorted(image.features.keys() - {METADATA_VERSION}):
        record = FeatureLevelRecord(name=name, feature_level=image.features[name])
        yield VersionedRecord(record, 0)


def _nodes(image: ClusterImage, level: int) -> Iterator[VersionedRecord]:
    for broker in image.brokers.values():
        yield registration_record(broker, level)
    if supports_controller_registration(level):
        for controller in image.controllers.values():
            yield VersionedRecord(controller, 0)


def _topics(image: ClusterImage, level: int) -> Iterator[VersionedRecord]:
    for topic in image.topics.values():
        yield VersionedRecord(TopicRecord(name=topic.name, topic_id=topic.id), 0)
        for index, partition in topic.partitions.items():
            yield partition.to_record(topic.id, index, level)


def _configs(image: ClusterImage) -> Iterator[VersionedRecord]:
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            record = ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
            yield VersionedRecord(record, 0)


def _producer_ids(image: ClusterImage) -> Iterator[VersionedRecord]:
    if image.next_producer_id != NO_PRODUCER_IDS:
        record = ProducerIdsRecord(
            broker_id=_NO_BROKER, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
        yield VersionedRecord(record, 0)


def _credentials(image: ClusterImage, level: int) -> Iterator[VersionedRecord]:
    if supports_scram(level):
        for credential in image.scram_credentials.values():
            yield VersionedRecord(credential, 0)
    if supports_delegation_tokens(level):
        for token in image.delegation_tokens.values():
            yield VersionedRecord(token, 0)
