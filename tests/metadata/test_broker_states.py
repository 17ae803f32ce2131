"""The life of a broker at the controller: the tables of registrations and heartbeats."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.steps import finish
from dohle.metadata.brokers import (
    begin_controlled_shutdown,
    broker_heartbeat,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from dohle.metadata.decision import Decision
from dohle.metadata.image import BrokerRegistration
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import Feature
from dohle.protocol.messages.records.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from dohle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.metadata.cluster import Cluster, cluster, registration, uuid


def broker(made: Cluster, broker_id: int) -> BrokerRegistration:
    return made.image.brokers[BrokerId(broker_id)]


def heartbeat(
    made: Cluster,
    *,
    read: int | None = None,
    controlled_shutdown_offset: int | None = None,
    lowest_active_offset: int = 2**63 - 1,
    **wants: Any,
) -> Decision[BrokerHeartbeatResponse]:
    request = BrokerHeartbeatRequest(
        broker_id=BrokerId(2),
        broker_epoch=broker(made, 2).epoch,
        current_metadata_offset=made.image.offset if read is None else read,
    ).replace(**wants)
    return finish(
        broker_heartbeat(
            *(made.image, request, made.context),
            controlled_shutdown_offset=controlled_shutdown_offset,
            lowest_active_offset=lowest_active_offset,
        )
    )


def state(reply: BrokerHeartbeatResponse) -> str:
    if reply.should_shut_down:
        assert reply.is_fenced
        return "shut down now"
    return "fenced" if reply.is_fenced else "unfenced"


def two_brokers(*, leads: bool) -> Cluster:
    """Return a cluster in which broker 2 leads a partition, or none."""
    made = cluster(2)
    if leads:
        while not made.image.topics or all(
            partition.leader != 2
            for topic in made.image.topics.values()
            for partition in topic.partitions.values()
        ):
            made.create_topic(f"t{len(made.image.topics)}", 1, 2)
    return made


@pytest.mark.parametrize(
    ("fence", "stop", "behind", "expected"),
    [
        (False, True, 0, "shut down now"),
        (True, True, 0, "shut down now"),
        (False, False, 0, "unfenced"),
        (False, False, 1, "fenced"),
        (True, False, 0, "fenced"),
    ],
)
def test_heartbeats_of_a_fenced_broker(fence: bool, stop: bool, behind: int, expected: str) -> None:
    """A41, T3: it is unfenced at the offset of its registration's record, not one before."""
    made = cluster(1)
    made.register(registration(2))
    offset = broker(made, 2).offset
    decision = heartbeat(made, read=offset - behind, want_fence=fence, want_shut_down=stop)
    assert state(decision.reply) == expected
    assert decision.reply.is_caught_up == (not behind)
    made.commit(decision)
    assert broker(made, 2).fenced == (expected != "unfenced")


@pytest.mark.parametrize(
    ("fence", "stop", "leads", "expected"),
    [
        (True, True, True, "shut down now"),
        (True, False, True, "fenced"),
        (False, True, True, "unfenced"),
        (False, True, False, "shut down now"),
        (False, False, True, "unfenced"),
    ],
)
def test_heartbeats_of_an_unfenced_broker(
    fence: bool, stop: bool, leads: bool, expected: str
) -> None:
    """A41, T3; A42: those that go leave their ISRs before they are fenced."""
    made = two_brokers(leads=leads)
    decision = heartbeat(made, want_fence=fence, want_shut_down=stop)
    assert state(decision.reply) == expected
    made.commit(decision)
    shuts_down = stop and leads and not fence
    assert broker(made, 2).in_controlled_shutdown == shuts_down
    kinds = [type(each.record) for each in decision.records]
    if shuts_down:
        assert kinds[0] is BrokerRegistrationChangeRecord
        assert set(kinds[1:]) == {PartitionChangeRecord}
    elif expected != "unfenced":
        assert kinds[-1] is BrokerRegistrationChangeRecord
    else:
        assert not kinds


@pytest.mark.parametrize(
    ("still_leads", "lowest", "expected"),
    [
        (False, 50, "shut down now"),
        (False, 49, "unfenced"),
        (True, 50, "unfenced"),
    ],
)
@pytest.mark.parametrize("fence", [False, True])
@pytest.mark.parametrize("stop", [False, True])
def test_heartbeats_during_a_controlled_shutdown(
    still_leads: bool, lowest: int, expected: str, fence: bool, stop: bool
) -> None:
    """A41, T3: whatever it wants; until all active brokers have read up to where it began."""
    made = two_brokers(leads=True)
    made.write(begin_controlled_shutdown(made.image, 2, made.context))
    if still_leads:
        topic = next(iter(made.image.topics.values()))
        record = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=BrokerId(2))
        made.replay(record.replace(isr=(BrokerId(2),)))
    decision = heartbeat(
        made,
        controlled_shutdown_offset=50,
        lowest_active_offset=lowest,
        want_fence=fence,
        want_shut_down=stop,
    )
    assert state(decision.reply) == expected


def test_a_broker_that_was_fenced_while_shutting_down_may_stop_at_once() -> None:
    """A43."""
    made = two_brokers(leads=True)
    made.write(begin_controlled_shutdown(made.image, 2, made.context))
    made.write(fence_broker(made.image, 2, made.context))
    decision = heartbeat(made, controlled_shutdown_offset=50, want_shut_down=True)
    assert state(decision.reply) == "shut down now"


def test_a_new_life_has_the_offset_at_which_its_event_begins_as_its_epoch() -> None:
    """A32: cleanup comes first, so the epoch is below the record's offset, up to which it reads."""
    made = cluster(2)
    made.create_topic("jays", 3, 2)
    decision = finish(
        register_broker(
            made.image, registration(2, incarnation=2), made.context, next_offset=made.next_offset
        )
    )
    kinds = [type(each.record) for each in decision.records]
    assert kinds == [PartitionChangeRecord] * 3 + [RegisterBrokerRecord]
    assert not decision.is_atomic
    first = made.next_offset
    made.commit(decision)
    now = broker(made, 2)
    assert (now.epoch, now.offset, now.fenced) == (first, first + 3, True)
    behind = heartbeat(made, read=now.epoch)
    assert (behind.reply.is_caught_up, behind.reply.is_fenced) == (False, True)


def test_the_same_life_keeps_its_state_when_it_registers_again() -> None:
    """A33: epoch, fenced and controlled shutdown stay; addresses and directories are new."""
    made = two_brokers(leads=True)
    made.write(begin_controlled_shutdown(made.image, 2, made.context))
    before = broker(made, 2)
    again = registration(2, port=7, log_dirs=(uuid(20_000), uuid(20_001)))
    assert made.register(again).broker_epoch == before.epoch
    after = broker(made, 2)
    assert (after.fenced, after.in_controlled_shutdown) == (False, True)
    assert (after.endpoints["PLAINTEXT"].port, len(after.log_dirs)) == (7, 2)


#: What can be wrong with a registration, in the order of the checks, and its code.
WRONG: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ({"incarnation_id": uuid(77)}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
    (
        {"features": (Feature(name="group.version", max_supported_version=0),)},
        ErrorCode.UNSUPPORTED_VERSION,
    ),
]


@pytest.mark.parametrize("first", range(len(WRONG)))
def test_of_several_things_that_are_wrong_the_first_is_told(first: int) -> None:
    """A30, T4."""
    made = cluster(2)
    request = registration(2)
    for wrong, _ in WRONG[first:]:
        request = request.replace(**wrong)
    decision = finish(
        register_broker(made.image, request, made.context, next_offset=99, session_alive=True)
    )
    assert decision.reply.error_code == WRONG[first][1]
    assert (decision.records, decision.reason is None) == ((), False)


@pytest.mark.parametrize(
    ("left_out", "kraft_version", "expected"),
    [
        ("metadata.version", 0, ErrorCode.INVALID_REGISTRATION),
        ("group.version", 0, ErrorCode.UNSUPPORTED_VERSION),
        ("share.version", 0, ErrorCode.NONE),
        ("kraft.version", 0, ErrorCode.NONE),
        ("kraft.version", 1, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_each_feature_that_is_finalized_must_be_listed(
    left_out: str, kraft_version: int, expected: ErrorCode
) -> None:
    """A30: kraft.version too, which is not in the image."""
    made = cluster(1)
    made.replay(FeatureLevelRecord(name="group.version", feature_level=1))
    features = tuple(each for each in registration().features if each.name != left_out)
    decision = finish(
        register_broker(
            *(made.image, registration(2).replace(features=features), made.context),
            next_offset=99,
            kraft_version=kraft_version,
        )
    )
    assert decision.reply.error_code == expected


@pytest.mark.parametrize("is_clean", [True, False])
def test_only_a_clean_stop_keeps_a_broker_eligible(is_clean: bool) -> None:
    """A34, U1-U2: the epoch of its former life proves it; else it leaves ISR and ELR."""
    made = cluster(3)
    made.create_topic("jays", 1, 3)
    for broker_id in (1, 2, 3):
        made.write(fence_broker(made.image, broker_id, made.context))
    last = made.topic("jays").partitions[0]
    assert (last.leader, last.isr, last.elr, last.last_known_elr) == (-1, (), (3,), (3,))
    epoch = broker(made, 3).epoch if is_clean else 1
    made.register(registration(3, incarnation=2, previous_epoch=epoch))
    assert made.topic("jays").partitions[0].elr == ((3,) if is_clean else ())
    made.write(unfence_broker(made.image, 3, made.context))
    after = made.topic("jays").partitions[0]
    assert (after.leader, after.isr, after.elr) == (3, (3,), ())
    assert after.leader_recovery_state == int(not is_clean)


def test_without_elr_a_crashed_broker_may_lead_again() -> None:
    """U3."""
    made = cluster(2, elr=False)
    made.create_topic("jays", 1, 2)
    made.write(fence_broker(made.image, 1, made.context))
    made.write(fence_broker(made.image, 2, made.context))
    made.register(registration(2, incarnation=2))
    made.write(unfence_broker(made.image, 2, made.context))
    assert (made.topic("jays").partitions[0].leader, made.image.is_elr_enabled) == (2, False)


def test_a_broker_is_unregistered_in_any_state_and_one_that_is_unknown_is_not() -> None:
    """A43: no condition; 102."""
    made = two_brokers(leads=True)
    request = UnregisterBrokerRequest(broker_id=BrokerId(2))
    assert made.commit(unregister_broker(made.image, request, made.context)).error_code == 0
    assert 2 not in made.image.brokers
    again = made.commit(unregister_broker(made.image, request, made.context))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_broker_of_the_controllers_own_process_is_unregistered_only_when_it_is_gone() -> None:
    made = cluster(1)
    request = UnregisterBrokerRequest(broker_id=made.context.node_id)
    refused = made.commit(unregister_broker(made.image, request, made.context))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    made.write(fence_broker(made.image, 1, made.context))
    assert made.commit(unregister_broker(made.image, request, made.context)).error_code == 0


def test_directories_are_lost_in_any_state() -> None:
    """A44, D1: a fenced broker tells too; what is not registered, or known, is nothing new."""
    made = cluster(1)
    dirs = uuid(20_000), uuid(20_001)
    made.register(registration(2, log_dirs=dirs))
    decision = heartbeat(made, read=0, offline_log_dirs=(dirs[0], uuid(5)))
    assert state(decision.reply) == "fenced"
    made.commit(decision)
    assert broker(made, 2).log_dirs == dirs[1:]
    assert not heartbeat(made, read=0, offline_log_dirs=dirs[:1]).records
