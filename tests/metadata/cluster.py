"""A controller with its log, for tests: commands are decided, written, read back and replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.seams import Rng
from dohle.core.steps import PlainSteps, finish
from dohle.metadata.bootstrap import activation_records, default_bootstrap_records
from dohle.metadata.brokers import register_broker, unfence_broker
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.delta import Delta
from dohle.metadata.features import TOLERATED_FEATURES
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage, TopicImage
from dohle.metadata.metadata_version import ELR_VERSION, LATEST_LEVEL
from dohle.metadata.replay import apply
from dohle.metadata.topics import create_topics
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from dohle.protocol.schema import MetadataRecord, Response

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
EPOCH = 3

R = TypeVar("R", bound=Response)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def context(properties: Mapping[str, str] | None = None, seed: int = 0) -> ControllerContext:
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **(properties or {})})
    return ControllerContext(config, CLUSTER_ID, Rng(seed))


def registration(
    broker_id: int = 1,
    *,
    incarnation: int = 1,
    rack: str | None = None,
    log_dirs: tuple[Uuid, ...] | None = None,
    previous_epoch: int = -1,
    port: int = 9092,
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=BrokerId(broker_id),
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid(1000 * incarnation + broker_id),
        listeners=(Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=port),),
        features=tuple(
            Feature(
                name=name,
                min_supported_version=versions.lowest,
                max_supported_version=versions.highest,
            )
            for name, versions in TOLERATED_FEATURES.items()
        ),
        rack=rack,
        log_dirs=(uuid(10_000 + broker_id),) if log_dirs is None else log_dirs,
        previous_broker_epoch=previous_epoch,
    )


class Cluster:
    """Holds the image and everything that was ever written."""

    def __init__(self, the_context: ControllerContext | None = None) -> None:
        self.context = the_context or context()
        self.image: ClusterImage = EMPTY_IMAGE
        self.batches: list[list[MetadataRecord]] = []
        self.delta = Delta()

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def write(
        self, records: Sequence[VersionedRecord] | PlainSteps[tuple[VersionedRecord, ...]]
    ) -> list[MetadataRecord]:
        """Append a batch; what is replayed has been through its bytes."""
        if not isinstance(records, Sequence):
            records = finish(records)
        batch = [
            decode_metadata_record(encode_metadata_record(each.record, each.version))
            for each in records
        ]
        if batch:
            self.batches.append(batch)
            offset = self.image.offset + len(batch)
            self.image, self.delta = apply(self.image, batch, offset, EPOCH)
        return batch

    def replay(self, *records: MetadataRecord) -> Delta:
        """Append records that Kafka may have written."""
        self.write([VersionedRecord(each, type(each).VERSIONS.highest) for each in records])
        return self.delta

    def commit(self, decision: Decision[R] | PlainSteps[Decision[R]]) -> R:
        if not isinstance(decision, Decision):
            decision = finish(decision)
        self.write(decision.records)
        return decision.reply

    def bootstrap(self, level: int = LATEST_LEVEL, *, elr: bool = True) -> None:
        """Begin with the features of a release, or without eligible leader replicas."""
        bootstrap = default_bootstrap_records(level, {} if elr else {ELR_VERSION: 0})
        self.write(activation_records(self.image, self.context, bootstrap))

    def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        decision = register_broker(self.image, request, self.context, next_offset=self.next_offset)
        return self.commit(decision)

    def start_broker(self, broker_id: int = 1, *, rack: str | None = None) -> None:
        self.register(registration(broker_id, rack=rack))
        self.write(unfence_broker(self.image, broker_id, self.context))

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = 1
    ) -> CreatableTopicResult:
        topic = CreatableTopic(
            name=TopicName(name),
            num_partitions=partitions,
            replication_factor=replication_factor,
        )
        request = CreateTopicsRequest(topics=(topic,))
        return self.commit(create_topics(self.image, request, self.context)).topics[0]

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topic(TopicName(name))
        assert topic is not None
        return topic


def cluster(
    brokers: int = 1, properties: Mapping[str, str] | None = None, *, elr: bool = True
) -> Cluster:
    """Return a cluster of unfenced brokers 1, 2, …"""
    made = Cluster(context(properties))
    made.bootstrap(elr=elr)
    for broker_id in range(1, brokers + 1):
        made.start_broker(broker_id)
    return made
