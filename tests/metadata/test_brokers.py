"""The life of a broker, and who leads meanwhile."""

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.steps import finish
from dohle.metadata.brokers import (
    begin_controlled_shutdown,
    broker_heartbeat,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from dohle.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from dohle.protocol.messages.records.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from dohle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.metadata.cluster import CLUSTER_ID, Cluster, cluster, registration, uuid


def leaders(made: Cluster, topic: str = "jays") -> list[int]:
    return [partition.leader for partition in made.topic(topic).partitions.values()]


def isrs(made: Cluster, topic: str = "jays") -> list[set[int]]:
    return [set(partition.isr) for partition in made.topic(topic).partitions.values()]


def heartbeat(made: Cluster, broker_id: int = 1, **wants: bool) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=BrokerId(broker_id),
        broker_epoch=made.image.brokers[BrokerId(broker_id)].epoch,
        current_metadata_offset=made.image.offset,
    ).replace(**wants)


def test_a_broker_registers_fenced_with_the_next_offset_as_its_epoch() -> None:
    made = Cluster()
    made.bootstrap()
    epoch = made.image.offset + 1
    reply = made.register(registration(rack="attic"))
    assert (reply.error_code, reply.broker_epoch) == (0, epoch)
    broker = made.image.brokers[BrokerId(1)]
    assert (broker.epoch, broker.fenced, broker.rack) == (epoch, True, "attic")
    assert broker.endpoints["PLAINTEXT"].port == 9092
    assert made.write(unfence_broker(made.image, 1, made.context)) == [
        BrokerRegistrationChangeRecord(broker_id=BrokerId(1), broker_epoch=epoch, fenced=-1)
    ]
    assert made.write(unfence_broker(made.image, 1, made.context)) == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_single_broker_that_restarts_leads_again_once_it_is_unfenced(is_clean: bool) -> None:
    """C13, C17, U2: by its eligibility after a clean stop, else as the last known leader."""
    made = cluster()
    made.create_topic("jays", 2)
    epoch = made.image.brokers[BrokerId(1)].epoch if is_clean else -1
    made.register(registration(incarnation=2, previous_epoch=epoch))
    partition = made.topic("jays").partitions[0]
    assert (partition.elr, partition.last_known_elr) == ((1,) if is_clean else (), (1,))
    assert (leaders(made), isrs(made)) == ([-1, -1], [set(), set()])
    made.write(unfence_broker(made.image, 1, made.context))
    assert (leaders(made), isrs(made)) == ([1, 1], [{1}, {1}])
    partition = made.topic("jays").partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (2, 2)
    assert (partition.elr, partition.last_known_elr) == ((), ())
    assert partition.leader_recovery_state == int(not is_clean)


def test_the_same_life_of_a_broker_only_amends_its_registration() -> None:
    made = cluster()
    made.create_topic("jays")
    epoch = made.image.brokers[BrokerId(1)].epoch
    amended = registration(port=9999)
    decision = finish(
        register_broker(made.image, amended, made.context, next_offset=99, session_alive=True)
    )
    assert made.commit(decision).broker_epoch == epoch
    assert [type(each.record) for each in decision.records] == [RegisterBrokerRecord]
    broker = made.image.brokers[BrokerId(1)]
    assert (broker.fenced, broker.endpoints["PLAINTEXT"].port) == (False, 9999)
    assert leaders(made) == [1]


def test_a_second_broker_of_the_same_id_is_refused_while_the_first_is_alive() -> None:
    made = cluster()
    request = registration(incarnation=2)
    decision = finish(
        register_broker(made.image, request, made.context, next_offset=99, session_alive=True)
    )
    assert decision.reply.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert decision.records == ()
    assert decision.reason is not None


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (registration(2).replace(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(2, log_dirs=()), ErrorCode.INVALID_REGISTRATION),
        (registration(2, log_dirs=(uuid(2),)), ErrorCode.INVALID_REGISTRATION),
        (registration(2, log_dirs=(uuid(800), uuid(800))), ErrorCode.INVALID_REGISTRATION),
        (registration(2, log_dirs=(uuid(10_001),)), ErrorCode.INVALID_REGISTRATION),
        (registration(2).replace(features=()), ErrorCode.INVALID_REGISTRATION),
        (
            registration(2).replace(
                features=(
                    Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=28
                    ),
                )
            ),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (registration(2).replace(is_migrating_zk_broker=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_a_registration_that_does_not_fit_is_refused(
    request_: BrokerRegistrationRequest, code: ErrorCode
) -> None:
    made = cluster()
    assert request_.cluster_id in (CLUSTER_ID, "other")
    assert made.register(request_).error_code == code
    assert list(made.image.brokers) == [1]


def test_a_broker_must_know_all_features_that_are_finalized() -> None:
    made = cluster()
    made.replay(FeatureLevelRecord(name="transaction.version", feature_level=2))
    assert made.register(registration(2)).error_code == ErrorCode.NONE
    fewer = tuple(each for each in registration().features if each.name != "transaction.version")
    reply = made.register(registration(3).replace(features=fewer))
    assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_others_lead_when_a_broker_is_fenced_and_it_leaves_the_isr() -> None:
    made = cluster(3)
    made.create_topic("jays", 6, 3)
    made.write(fence_broker(made.image, 2, made.context))
    assert made.image.brokers[BrokerId(2)].fenced
    assert set(leaders(made)) == {1, 3}
    assert isrs(made) == [{1, 3}] * 6
    assert made.write(fence_broker(made.image, 2, made.context)) == []


def test_without_elr_the_last_in_sync_replica_stays_in_the_isr_without_leading() -> None:
    """C12, C17."""
    made = cluster(2, elr=False)
    made.create_topic("jays", 1, 2)
    made.write(fence_broker(made.image, 1, made.context))
    made.write(fence_broker(made.image, 2, made.context))
    assert (leaders(made), isrs(made)) == ([-1], [{2}])
    made.write(unfence_broker(made.image, 1, made.context))
    assert (leaders(made), isrs(made)) == ([-1], [{2}])
    made.write(unfence_broker(made.image, 2, made.context))
    assert (leaders(made), isrs(made)) == ([2], [{2}])


def test_an_unclean_election_takes_any_replica_and_marks_it() -> None:
    made = cluster(2)
    made.create_topic("jays", 1, 2)
    made.replay(
        ConfigRecord(
            resource_type=2,
            resource_name="jays",
            name="unclean.leader.election.enable",
            value="true",
        )
    )
    made.write(fence_broker(made.image, 1, made.context))
    made.write(fence_broker(made.image, 2, made.context))
    made.write(unfence_broker(made.image, 1, made.context))
    partition = made.topic("jays").partitions[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 1)


def with_a_minimum_of_two() -> Cluster:
    made = cluster(3, {"min.insync.replicas": "2"})
    made.create_topic("jays", 1, 3)
    return made


def test_elections_do_not_depend_on_the_properties_of_the_controller() -> None:
    elected = []
    for minimum in ("1", "3"):
        made = cluster(3, {"min.insync.replicas": minimum})
        made.replay(ConfigRecord(resource_type=4, name="min.insync.replicas", value="2"))
        made.create_topic("jays", 1, 3)
        first, second, _ = made.topic("jays").partitions[0].replicas
        made.write(fence_broker(made.image, first, made.context))
        made.write(fence_broker(made.image, second, made.context))
        partition = made.topic("jays").partitions[0]
        elected.append((len(partition.isr), len(partition.elr)))
    assert elected == [(1, 1), (1, 1)]


def test_with_elr_those_who_leave_below_the_minimum_stay_eligible() -> None:
    """C14."""
    made = with_a_minimum_of_two()
    first, second, third = made.topic("jays").partitions[0].replicas
    made.write(fence_broker(made.image, first, made.context))
    assert made.topic("jays").partitions[0].elr == ()
    made.write(fence_broker(made.image, second, made.context))
    partition = made.topic("jays").partitions[0]
    assert (partition.isr, partition.elr) == ((third,), (second,))
    made.write(fence_broker(made.image, third, made.context))
    partition = made.topic("jays").partitions[0]
    assert (partition.leader, partition.isr) == (-1, ())
    assert partition.elr == (second, third)
    assert partition.last_known_elr == (third,)
    made.write(unfence_broker(made.image, second, made.context))
    partition = made.topic("jays").partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (second, (second,), (third,))
    assert partition.last_known_elr == ()


def test_with_elr_a_crashed_broker_is_not_eligible_any_more() -> None:
    """U2."""
    made = with_a_minimum_of_two()
    first, second, third = made.topic("jays").partitions[0].replicas
    made.write(fence_broker(made.image, first, made.context))
    made.write(fence_broker(made.image, second, made.context))
    made.register(registration(second, incarnation=2))
    assert made.topic("jays").partitions[0].elr == ()
    epoch = made.image.brokers[third].epoch
    made.write(fence_broker(made.image, third, made.context))
    made.register(registration(third, incarnation=2, previous_epoch=epoch))
    assert made.topic("jays").partitions[0].elr == (third,)


def test_with_elr_the_last_leader_is_taken_when_nobody_is_eligible() -> None:
    """C13."""
    made = with_a_minimum_of_two()
    first, second, third = made.topic("jays").partitions[0].replicas
    for broker_id in (first, second, third):
        made.write(fence_broker(made.image, broker_id, made.context))
    for broker_id in (second, third):
        made.register(registration(broker_id, incarnation=2))
    partition = made.topic("jays").partitions[0]
    assert (partition.elr, partition.last_known_elr) == ((), (third,))
    made.write(unfence_broker(made.image, third, made.context))
    partition = made.topic("jays").partitions[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (
        third,
        (third,),
        1,
    )


def test_below_3_6_a_smaller_isr_needs_a_new_leader_epoch() -> None:
    """C2."""
    made = Cluster()
    made.bootstrap(11)
    for broker_id in (1, 2):
        made.start_broker(broker_id)
    made.create_topic("jays", 1, 2)
    leader = made.topic("jays").partitions[0].leader
    made.write(fence_broker(made.image, 3 - leader, made.context))
    partition = made.topic("jays").partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (leader, (leader,), 1)


def test_a_controlled_shutdown_moves_leaders_first() -> None:
    made = cluster(2)
    made.create_topic("jays", 4, 2)
    request = heartbeat(made, want_shut_down=True)
    reply = made.commit(broker_heartbeat(made.image, request, made.context))
    assert (reply.is_fenced, reply.should_shut_down) == (False, False)
    assert made.image.brokers[BrokerId(1)].in_controlled_shutdown
    assert leaders(made) == [2] * 4
    shutdown_offset = made.image.offset
    for seen, done in ((shutdown_offset - 1, False), (shutdown_offset, True)):
        decision = broker_heartbeat(
            made.image,
            heartbeat(made, want_shut_down=True),
            made.context,
            controlled_shutdown_offset=shutdown_offset,
            lowest_active_offset=seen,
        )
        assert made.commit(decision).should_shut_down is done
    assert made.image.brokers[BrokerId(1)].fenced


def test_a_controlled_shutdown_that_goes_on_writes_only_what_is_left_to_do() -> None:
    made = cluster()
    made.create_topic("jays")
    batch = made.write(begin_controlled_shutdown(made.image, 1, made.context))
    assert [type(record) for record in batch] == [
        BrokerRegistrationChangeRecord,
        PartitionChangeRecord,
    ]
    assert made.write(begin_controlled_shutdown(made.image, 1, made.context)) == []


def test_a_broker_that_shuts_down_leads_nothing_until_it_registers_again() -> None:
    made = cluster()
    made.create_topic("jays")
    made.write(begin_controlled_shutdown(made.image, 1, made.context))
    made.write(fence_broker(made.image, 1, made.context))
    made.write(unfence_broker(made.image, 1, made.context))
    assert leaders(made) == [-1]
    made.register(registration(incarnation=2))
    made.write(unfence_broker(made.image, 1, made.context))
    assert leaders(made) == [1]


def test_a_broker_is_unfenced_once_it_has_read_its_own_registration() -> None:
    made = Cluster()
    made.bootstrap()
    made.register(registration())
    behind = heartbeat(made).replace(current_metadata_offset=2)
    decision = finish(broker_heartbeat(made.image, behind, made.context))
    assert decision.records == ()
    assert (decision.reply.is_caught_up, decision.reply.is_fenced) == (False, True)
    fenced = heartbeat(made, want_fence=True)
    assert finish(broker_heartbeat(made.image, fenced, made.context)).records == ()
    reply = made.commit(broker_heartbeat(made.image, heartbeat(made), made.context))
    assert (reply.is_caught_up, reply.is_fenced) == (True, False)
    assert made.image.brokers[BrokerId(1)].is_active


def test_a_broker_may_ask_to_be_fenced_or_to_stop_at_once() -> None:
    for wants, stops in (
        ({"want_fence": True}, False),
        ({"want_fence": True, "want_shut_down": True}, True),
        ({"want_shut_down": True}, True),
    ):
        made = cluster()
        decision = broker_heartbeat(made.image, heartbeat(made, **wants), made.context)
        reply = made.commit(decision)
        assert (reply.is_fenced, reply.should_shut_down) == (True, stops)
        assert made.image.brokers[BrokerId(1)].fenced


def test_a_heartbeat_of_an_old_epoch_is_refused() -> None:
    made = cluster()
    old = heartbeat(made).replace(broker_epoch=1)
    assert made.commit(broker_heartbeat(made.image, old, made.context)).error_code == 77
    unknown = heartbeat(made).replace(broker_id=BrokerId(9))
    assert made.commit(broker_heartbeat(made.image, unknown, made.context)).error_code == 77


def test_a_lost_directory_takes_the_leaders_in_it_along() -> None:
    """D1."""
    made = Cluster()
    made.bootstrap()
    dirs = (uuid(701), uuid(702))
    made.register(registration(1, log_dirs=dirs))
    made.write(unfence_broker(made.image, 1, made.context))
    made.create_topic("jays", 2)

    def place(index: int, directory: Uuid) -> PartitionChangeRecord:
        topic_id = made.topic("jays").id
        return PartitionChangeRecord(
            partition_id=index, topic_id=topic_id, directories=(directory,)
        )

    made.replay(place(0, dirs[0]), place(1, dirs[1]))
    request = heartbeat(made).replace(offline_log_dirs=(dirs[0],))
    made.commit(broker_heartbeat(made.image, request, made.context))
    assert leaders(made) == [-1, 1]
    assert made.image.brokers[BrokerId(1)].log_dirs == (dirs[1],)


def test_a_broker_that_is_unfenced_does_not_lead_what_it_has_lost_meanwhile() -> None:
    made = Cluster()
    made.bootstrap()
    dirs = (uuid(701), uuid(702))
    made.register(registration(1, log_dirs=dirs))
    made.write(unfence_broker(made.image, 1, made.context))
    made.create_topic("jays", 1)
    topic_id = made.topic("jays").id
    made.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=dirs[:1]))
    made.write(fence_broker(made.image, 1, made.context))
    request = heartbeat(made).replace(offline_log_dirs=dirs[:1])
    assert not made.commit(broker_heartbeat(made.image, request, made.context)).is_fenced
    assert leaders(made) == [-1]


def test_an_unregistered_broker_leaves_its_partitions() -> None:
    made = cluster(2)
    made.create_topic("jays", 2, 2)
    request = UnregisterBrokerRequest(broker_id=BrokerId(2))
    decision = finish(unregister_broker(made.image, request, made.context))
    assert made.commit(decision).error_code == 0
    assert isinstance(decision.records[-1].record, UnregisterBrokerRecord)
    assert leaders(made) == [1, 1]
    assert list(made.image.brokers) == [1]
    again = made.commit(unregister_broker(made.image, request, made.context))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert made.image.topic(TopicName("jays")) is not None
