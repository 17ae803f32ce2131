"""AlterPartition (56): each thing that can be wrong, in the order in which it is looked at."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.steps import finish
from dohle.metadata.alter_partition import alter_partition
from dohle.metadata.brokers import begin_controlled_shutdown, fence_broker, unfence_broker
from dohle.metadata.partition import LeaderRecoveryState
from dohle.metadata.reassignments import alter_partition_reassignments
from dohle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord
from tests.metadata import one_topic
from tests.metadata.cluster import Cluster, registration, uuid
from tests.metadata.one_topic import JAYS, ids, partition

with_topic = partial(one_topic.with_topic, brokers=4)


def members(made: Cluster, *broker_ids: int) -> tuple[BrokerState, ...]:
    return tuple(
        BrokerState(broker_id=each, broker_epoch=made.image.brokers[each].epoch)
        for each in ids(*broker_ids)
    )


def asked(made: Cluster, *isr: int, sender: int | None = None, **fields: Any) -> Any:
    """Return a request of the partition's leader, as it should be but for some fields."""
    now = partition(made)
    leader = BrokerId(now.leader if sender is None else sender)
    data = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=now.leader_epoch,
        new_isr_with_epochs=members(made, *isr),
        partition_epoch=now.partition_epoch,
    ).replace(**fields)
    topic = AlterPartitionRequestTopicData(topic_id=made.topic("jays").id, partitions=(data,))
    return AlterPartitionRequest(
        broker_id=leader, broker_epoch=made.image.brokers[leader].epoch, topics=(topic,)
    )


def alter(made: Cluster, request: AlterPartitionRequest, version: int = 3) -> Any:
    """Return the only result."""
    reply = made.commit(alter_partition(made.image, request, made.context, version=version))
    assert reply.error_code == 0
    return reply.topics[0].partitions[0]


def test_a_smaller_and_a_larger_isr_are_answered_with_the_state_after_them() -> None:
    """C31, C1: partition epoch +1, leader epoch as it was."""
    made = with_topic(1, 2, 3)
    before = partition(made)
    answer = alter(made, asked(made, 1, 3))
    after = partition(made)
    assert (after.isr, after.partition_epoch) == (ids(1, 3), before.partition_epoch + 1)
    assert after.leader_epoch == before.leader_epoch
    assert answer == AlterPartitionResponsePartitionData(
        partition_index=0,
        leader_id=BrokerId(1),
        leader_epoch=after.leader_epoch,
        isr=ids(1, 3),
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        partition_epoch=after.partition_epoch,
    )
    assert alter(made, asked(made, 1, 3, 2)).isr == ids(1, 3, 2)


def test_an_isr_that_is_already_so_changes_nothing() -> None:
    """C3: no record, and the present state as answer."""
    made = with_topic(1, 2)
    offset, now = made.image.offset, partition(made)
    answer = alter(made, asked(made, 1, 2))
    assert (answer.error_code, answer.partition_epoch) == (0, now.partition_epoch)
    assert made.image.offset == offset


def test_version_2_tells_no_epochs_of_members() -> None:
    """C31: ids without epochs count as any."""
    made = with_topic(1, 2, 3)
    request = asked(made, new_isr=ids(1, 2))
    assert alter(made, request, version=2).isr == ids(1, 2)


def test_a_broker_of_another_epoch_is_refused_as_a_whole() -> None:
    """C30: 77 at the top."""
    made = with_topic(1, 2)
    for request in (
        asked(made, 1).replace(broker_epoch=1),
        asked(made, 1).replace(broker_id=BrokerId(9)),
    ):
        decision = finish(alter_partition(made.image, request, made.context, version=3))
        assert decision.reply == AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        assert decision.records == ()


#: What can be wrong, and the code for it, in the order of the checks (C30).
WRONG: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"topic_id": uuid(99)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ({"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"leader_epoch": 8}, ErrorCode.NOT_CONTROLLER),
    ({"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
    ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    ({"sender": 2}, ErrorCode.INVALID_REQUEST),
    ({"partition_epoch": 4}, ErrorCode.INVALID_UPDATE_VERSION),
    ({"isr": (1, 1)}, ErrorCode.INVALID_REQUEST),
    ({"isr": (1, 4)}, ErrorCode.INVALID_REQUEST),
    ({"isr": (2, 3)}, ErrorCode.INVALID_REQUEST),
    ({"isr": (1, 2), "leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    ({"isr": (1,), "leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    ({"isr": (1,), "leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ({"isr": (1, 3)}, ErrorCode.INELIGIBLE_REPLICA),
]


def changed(made: Cluster, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=made.topic("jays").id).replace(**fields)


def at_epoch_5() -> Cluster:
    """Return a cluster whose partition has had some leaders; broker 3 is fenced."""
    made = with_topic(1, 2, 3)
    made.write(fence_broker(made.image, 3, made.context))
    change = changed(made, leader=BrokerId(1))
    while partition(made).leader_epoch < 5:
        made.replay(change)
    while partition(made).partition_epoch < 5:
        made.replay(change.replace(leader=BrokerId(-2), isr=ids(1, 2)))
    return made


def wrong_request(made: Cluster, wrong: dict[str, Any]) -> AlterPartitionRequest:
    fields = dict(wrong)
    isr = fields.pop("isr", (1, 2))
    sender = fields.pop("sender", 1)
    topic_id = fields.pop("topic_id", made.topic("jays").id)
    fields.setdefault("leader_epoch", 5)
    now = partition(made).partition_epoch
    fields["partition_epoch"] = now + fields.get("partition_epoch", 5) - 5
    request: AlterPartitionRequest = asked(made, *isr, sender=sender, **fields)
    topic = request.topics[0].replace(topic_id=topic_id)
    return request.replace(topics=(topic,))


@pytest.mark.parametrize(("wrong", "expected"), WRONG)
def test_each_thing_that_is_wrong_has_its_error(wrong: dict[str, Any], expected: ErrorCode) -> None:
    """C30, T2."""
    made = at_epoch_5()
    offset = made.image.offset
    assert alter(made, wrong_request(made, wrong)).error_code == expected
    assert made.image.offset == offset


@pytest.mark.parametrize("first", range(len(WRONG)))
def test_of_two_wrong_things_the_earlier_is_told(first: int) -> None:
    """C30, T2: the order of the checks."""
    made = at_epoch_5()
    wrong, expected = WRONG[first]
    for other, _ in WRONG[first + 1 :]:
        if not wrong.keys() & other.keys():
            both = {**other, **wrong}
            assert alter(made, wrong_request(made, both)).error_code == expected, both


def test_members_must_be_active_and_in_the_life_that_the_leader_knows() -> None:
    """C30: fenced, shutting down, unregistered, or another epoch → 107; -1 is any epoch."""
    made = with_topic(1, 2, 3)
    old = members(made, 1, 2, 3)
    made.write(fence_broker(made.image, 3, made.context))
    assert alter(made, asked(made, new_isr_with_epochs=old)).error_code == 107
    made.register(registration(3, incarnation=2))
    made.write(unfence_broker(made.image, 3, made.context))
    assert alter(made, asked(made, new_isr_with_epochs=old)).error_code == 107
    any_epoch = tuple(each.replace(broker_epoch=-1) for each in old)
    assert alter(made, asked(made, new_isr_with_epochs=any_epoch)).error_code == 0
    made.write(begin_controlled_shutdown(made.image, 3, made.context))
    assert alter(made, asked(made, 1, 2, 3)).error_code == 107


def test_h8_a_broker_that_came_back_with_an_empty_disk_does_not_join_by_an_earlier_wish() -> None:
    """KAFKA-14139: the leader's request was made for the life before, and arrives after."""
    made = with_topic(1, 2, 3)
    made.write(fence_broker(made.image, 3, made.context))
    made.write(unfence_broker(made.image, 3, made.context))
    in_flight = asked(made, 1, 2, 3)
    made.write(fence_broker(made.image, 3, made.context))
    made.register(registration(3, incarnation=2))
    made.write(unfence_broker(made.image, 3, made.context))
    assert alter(made, in_flight).error_code in (ErrorCode.INELIGIBLE_REPLICA, 95)
    now = partition(made).partition_epoch
    stale = in_flight.topics[0].partitions[0].new_isr_with_epochs
    again = asked(made, new_isr_with_epochs=stale, partition_epoch=now)
    assert alter(made, again).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert partition(made).isr == ids(1, 2)
    assert alter(made, asked(made, 1, 2, 3)).error_code == 0, "it has caught up in its new life"


def test_h9_who_leaves_by_a_controlled_shutdown_does_not_come_back_into_the_isr() -> None:
    """KAFKA-13916: it goes on fetching, so that its leader may propose it, and is not elected."""
    made = with_topic(1, 2, 3)
    made.write(begin_controlled_shutdown(made.image, 2, made.context))
    assert partition(made).isr == ids(1, 3)
    assert alter(made, asked(made, 1, 2, 3)).error_code == ErrorCode.INELIGIBLE_REPLICA
    made.write(fence_broker(made.image, 1, made.context))
    assert (partition(made).leader, partition(made).isr) == (3, ids(3))


def test_the_first_request_of_an_unclean_leader_ends_its_recovery() -> None:
    """C16: RECOVERING until the leader says otherwise."""
    made = with_topic(1, 2)
    made.replay(changed(made, leader_recovery_state=1))
    still = alter(made, asked(made, 1, leader_recovery_state=1))
    assert (still.error_code, still.leader_recovery_state) == (0, 1)
    refused = alter(made, asked(made, 1, 2, leader_recovery_state=1))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert alter(made, asked(made, 1, 2)).leader_recovery_state == 0
    assert partition(made).leader_recovery_state is LeaderRecoveryState.RECOVERED


def reassign(made: Cluster, *replicas: int) -> None:
    wanted = ReassignablePartition(partition_index=0, replicas=ids(*replicas))
    topic = ReassignableTopic(name=JAYS, partitions=(wanted,))
    request = AlterPartitionReassignmentsRequest(topics=(topic,))
    made.commit(alter_partition_reassignments(made.image, request, made.context))


def test_a_reassignment_is_completed_when_all_its_replicas_are_in_sync() -> None:
    """C42, C32, C2: W3 of the facts; the leader that goes is told 108, and the record is there."""
    made = with_topic(1, 2, 3)
    before = partition(made)
    reassign(made, 4, 2, 3)
    begun = partition(made)
    assert (begun.replicas, begun.adding_replicas) == (ids(4, 2, 3, 1), ids(4))
    assert (begun.removing_replicas, begun.leader_epoch) == (ids(1), before.leader_epoch)
    assert alter(made, asked(made, 1, 2, 3, 4)).error_code == ErrorCode.NEW_LEADER_ELECTED
    after = partition(made)
    assert (after.replicas, set(after.isr), after.leader) == (ids(4, 2, 3), {2, 3, 4}, 4)
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert after.leader_epoch == begun.leader_epoch + 1


def test_a_leader_that_stays_has_a_new_epoch_when_a_replica_goes() -> None:
    """C2: so that the one that goes is fenced; the answer tells it."""
    made = with_topic(1, 2)
    reassign(made, 1, 3)
    begun = partition(made)
    answer = alter(made, asked(made, 1, 2, 3))
    assert (answer.error_code, answer.leader_id) == (0, 1)
    assert answer.leader_epoch == begun.leader_epoch + 1
    assert partition(made).replicas == ids(1, 3)


def test_a_reassignment_waits_for_all_of_its_replicas() -> None:
    """C42: one that is missing in the ISR is enough."""
    made = with_topic(1, 2)
    reassign(made, 3, 4)
    assert alter(made, asked(made, 1, 2, 3)).error_code == 0
    assert partition(made).replicas == ids(3, 4, 1, 2)
    assert alter(made, asked(made, 1, 2, 3, 4)).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert partition(made).replicas == ids(3, 4)


def test_what_an_earlier_reassignment_adds_stays_if_a_new_one_adds_nothing() -> None:
    """C41: empty lists leave the stored ones."""
    made = with_topic(1, 2, 3)
    reassign(made, 4, 2, 3)
    reassign(made, 2, 3, 1, 4)
    now = partition(made)
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == (
        ids(2, 3, 1, 4),
        ids(4),
        ids(1),
    )
