"""AlterPartition: the leader of a partition asks for another ISR.

It may only do so on the ground of what is so now: what it says of epochs is compared with what the
controller knows. A request that is ahead of it shows that this controller is none any more. All
members of the new ISR must be there to be elected: active, and in the life that the leader knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.metadata.brokers import check_broker_epoch
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.elections import partition_update
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.metadata.partition import NO_LEADER_CHANGE, LeaderRecoveryState, PartitionImage
from dohle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord

#: The first version that tells the broker epochs of the members.
_TELLS_EPOCHS = 3
_ANY_EPOCH = -1


def alter_partition(
    image: ClusterImage,
    request: AlterPartitionRequest,
    context: ControllerContext,
    *,
    version: int,
) -> PlainSteps[Decision[AlterPartitionResponse]]:
    """Change the ISRs for which that is allowed, each partition by itself."""
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        reply = AlterPartitionResponse(error_code=error.code)
        return Decision((), reply, reason=str(error.args[0]))
    alteration = _Alteration(image, context, request.broker_id, version)
    topics = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            results.append(alteration.result(topic, asked))
            yield
        topics.append(
            AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=tuple(results))
        )
        yield
    reply = AlterPartitionResponse(topics=tuple(topics))
    return Decision(tuple(alteration.records), reply, is_atomic=False)


class _Alteration:
    """One request of a leader, processed so far."""

    def __init__(
        self, image: ClusterImage, context: ControllerContext, leader_id: int, version: int
    ) -> None:
        self.records: list[VersionedRecord] = []
        self._image = image
        self._context = context
        self._leader_id = leader_id
        self._version = version

    def result(
        self, topic: AlterPartitionRequestTopicData, asked: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        """Change a partition, or say why not."""
        index = asked.partition_index
        try:
            after = self._altered(self._image.topic_by_id(topic.topic_id), asked)
        except KafkaError as error:
            return AlterPartitionResponsePartitionData(partition_index=index, error_code=error.code)
        return AlterPartitionResponsePartitionData(
            partition_index=index,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=after.isr,
            leader_recovery_state=after.leader_recovery_state,
            partition_epoch=after.partition_epoch,
        )

    def _altered(
        self, topic: TopicImage | None, asked: AlterPartitionRequestPartitionData
    ) -> PartitionImage:
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        index = asked.partition_index
        before = topic.partitions.get(index)
        if before is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index}")
        members = self._members(asked)
        _check_epochs(before, asked, self._leader_id)
        recovery = _checked_recovery(before, members, asked)
        _check_members(self._image, members)
        isr = tuple(member.broker_id for member in members)
        wanted = replace(before, isr=isr, leader_recovery_state=recovery)
        record = partition_update(self._image, self._context, topic, index, wanted)
        if record is None:
            return before
        self.records.append(record)
        change = record.record
        assert isinstance(change, PartitionChangeRecord)
        if change.leader not in (NO_LEADER_CHANGE, self._leader_id):
            # It completes a reassignment, which takes the leadership away.
            raise KafkaError(ErrorCode.NEW_LEADER_ELECTED, f"broker {change.leader} leads now")
        return before.changed_by(change)

    def _members(self, asked: AlterPartitionRequestPartitionData) -> Sequence[BrokerState]:
        if self._version >= _TELLS_EPOCHS:
            return asked.new_isr_with_epochs
        return [BrokerState(broker_id=broker_id) for broker_id in asked.new_isr]


def _check_epochs(
    before: PartitionImage, asked: AlterPartitionRequestPartitionData, leader_id: int
) -> None:
    """Refuse what is not about the present state; the order of the checks is Kafka's."""
    if asked.leader_epoch > before.leader_epoch or asked.partition_epoch > before.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "the leader knows more than this controller")
    if asked.leader_epoch < before.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {before.leader_epoch}"
        )
    if leader_id != before.leader:
        raise _invalid(f"broker {before.leader} leads")
    if asked.partition_epoch < before.partition_epoch:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {before.partition_epoch}"
        )


def _checked_recovery(
    before: PartitionImage,
    members: Sequence[BrokerState],
    asked: AlterPartitionRequestPartitionData,
) -> LeaderRecoveryState:
    isr = [member.broker_id for member in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(before.replicas):
        raise _invalid(f"{isr} are not some of the replicas {before.replicas}")
    if before.leader not in isr:
        raise _invalid("the leader is not in its ISR")
    if asked.leader_recovery_state not in set(LeaderRecoveryState):
        raise _invalid(f"there is no recovery state {asked.leader_recovery_state}")
    recovery = LeaderRecoveryState(asked.leader_recovery_state)
    if recovery is LeaderRecoveryState.RECOVERING:
        if len(isr) > 1:
            raise _invalid("nobody can be in sync with a leader that has yet to recover")
        if before.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            raise _invalid("the leader has recovered before")
    return recovery


def _check_members(image: ClusterImage, members: Sequence[BrokerState]) -> None:
    for member in members:
        broker = image.broker(member.broker_id)
        if broker is None or not broker.is_active:
            raise KafkaError(
                ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} is not active"
            )
        if member.broker_epoch not in (_ANY_EPOCH, broker.epoch):
            raise KafkaError(
                ErrorCode.INELIGIBLE_REPLICA,
                f"broker {member.broker_id} is in epoch {broker.epoch}, not {member.broker_epoch}",
            )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
