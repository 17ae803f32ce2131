"""AssignReplicasToDirs: a broker reports in which of its directories its replicas are (KIP-858).

Each replica is assigned or refused separately. A replica in an offline directory can no longer
lead; one that turns out to be in an online directory can, where nobody does.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.core.steps import PlainSteps
from dohle.metadata.brokers import check_broker_epoch
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.elections import Availability, leader_updates
from dohle.metadata.image import BrokerRegistration, ClusterImage
from dohle.metadata.metadata_version import partition_record_version, supports_directories
from dohle.metadata.partition import NO_LEADER, PartitionImage
from dohle.metadata.replay import apply
from dohle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord


def assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest, context: ControllerContext
) -> PlainSteps[Decision[AssignReplicasToDirsResponse]]:
    """Record in which directories a broker has its replicas."""
    level = image.metadata_version
    try:
        if level is None or not supports_directories(level):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet."
            )
        broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision(
            (), AssignReplicasToDirsResponse(error_code=error.code), reason=str(error.args[0])
        )
    assignment = _Assignment(image, broker, level)
    results = [
        AssignReplicasToDirsResponseDirectoryData(
            id=directory.id,
            topics=tuple(assignment.result(directory.id, topic) for topic in directory.topics),
        )
        for directory in request.directories
    ]
    records = assignment.records
    changes = []
    if assignment.offline:
        lost = tuple(dict.fromkeys(assignment.offline))
        changes.append(Availability(leaves=broker.id, lost_directories=lost))
    if assignment.finds_leaderless and broker.is_active:
        changes.append(Availability(joins=broker.id))
    for change in changes:
        after, _ = apply(image, [record for record, _ in records], image.offset, image.epoch)
        records += yield from leader_updates(after, context, change)
    reply = AssignReplicasToDirsResponse(directories=tuple(results))
    return Decision(tuple(records), reply, is_atomic=False)


class _Assignment:
    """The replicas of one request, processed so far."""

    def __init__(self, image: ClusterImage, broker: BrokerRegistration, level: int) -> None:
        self.records: list[VersionedRecord] = []
        #: The assigned directories that are not online at the broker.
        self.offline: list[Uuid] = []
        #: Whether a replica is in an online directory of a partition that has no leader.
        self.finds_leaderless = False
        self._image = image
        self._broker = broker
        self._version = partition_record_version(level)

    def result(
        self, directory_id: Uuid, topic: AssignReplicasToDirsRequestTopicData
    ) -> AssignReplicasToDirsResponseTopicData:
        """Assign the replicas of a topic, or say why not."""
        results = []
        for partition in topic.partitions:
            index, code = partition.partition_index, ErrorCode.NONE
            try:
                self._assign(directory_id, topic.topic_id, index)
            except KafkaError as error:
                code = error.code
            results.append(
                AssignReplicasToDirsResponsePartitionData(partition_index=index, error_code=code)
            )
        return AssignReplicasToDirsResponseTopicData(
            topic_id=topic.topic_id, partitions=tuple(results)
        )

    def _assign(self, directory_id: Uuid, topic_id: Uuid, index: int) -> None:
        before = _replica(self._image, topic_id, index, self._broker.id)
        if before.directory_of(self._broker.id) == directory_id:
            return
        record = _change(before, topic_id, index, self._broker.id, directory_id)
        self.records.append(VersionedRecord(record, self._version))
        if not self._broker.has_online_dir(directory_id):
            self.offline.append(directory_id)
        elif before.leader == NO_LEADER:
            self.finds_leaderless = True


def _replica(image: ClusterImage, topic_id: Uuid, index: int, broker_id: int) -> PartitionImage:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index}")
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has no replica")
    return partition


def _change(
    before: PartitionImage, topic_id: Uuid, index: int, broker_id: int, directory_id: Uuid
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        directories=tuple(
            directory_id if replica == broker_id else directory
            for replica, directory in zip(before.replicas, before.directories, strict=True)
        ),
    )
