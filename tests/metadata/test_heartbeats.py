"""What heartbeats alone tell the controller, and how a broker goes."""

from __future__ import annotations

from dohle.core.ids import BrokerId
from dohle.metadata.brokers import broker_heartbeat, fence_broker
from dohle.metadata.heartbeats import BrokerHeartbeats
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tests.metadata.cluster import Cluster, cluster, registration


class Brokers:
    """The brokers of a cluster, as they send heartbeats."""

    def __init__(self, made: Cluster, own_id: int = 100) -> None:
        self.made = made
        self.heartbeats = BrokerHeartbeats(9_000, own_id)

    def stale(self, now_ms: int) -> int | None:
        found = self.heartbeats.find_stale(self.made.image, now_ms)
        return None if found is None else found.id

    def has_session(self, broker_id: int, now_ms: int) -> bool:
        broker = self.made.image.brokers[BrokerId(broker_id)]
        return self.heartbeats.has_session(broker, now_ms)

    def heartbeat(
        self,
        broker_id: int,
        *,
        read: int | None = None,
        want_shut_down: bool = False,
        now_ms: int = 0,
    ) -> BrokerHeartbeatResponse:
        made = self.made
        request = BrokerHeartbeatRequest(
            broker_id=BrokerId(broker_id),
            broker_epoch=made.image.brokers[BrokerId(broker_id)].epoch,
            current_metadata_offset=made.image.offset if read is None else read,
            want_shut_down=want_shut_down,
        )
        self.heartbeats.note(made.image, request, now_ms=now_ms)
        offset = self.heartbeats.controlled_shutdown_offset(made.image, broker_id)
        reply = made.commit(
            broker_heartbeat(
                made.image,
                request,
                made.context,
                controlled_shutdown_offset=offset,
                lowest_active_offset=self.heartbeats.lowest_active_offset(made.image),
            )
        )
        broker = made.image.brokers[BrokerId(broker_id)]
        if broker.in_controlled_shutdown and not broker.fenced:
            self.heartbeats.began_shutdown(broker, made.image.offset)
        return reply


def leaders(made: Cluster) -> list[int]:
    return [partition.leader for partition in made.topic("jays").partitions.values()]


def test_a_broker_may_go_when_all_others_know_that_it_does_not_lead_any_more() -> None:
    made = cluster(3)
    made.create_topic("jays", 4, 3)
    brokers = Brokers(made)
    for broker_id in (1, 2, 3):
        brokers.heartbeat(broker_id)
    before = made.image.offset
    assert not brokers.heartbeat(1, want_shut_down=True).should_shut_down
    assert 1 not in leaders(made)
    shutdown = made.image.offset
    brokers.heartbeat(2, read=shutdown)
    brokers.heartbeat(3, read=before)
    assert not brokers.heartbeat(1, want_shut_down=True).should_shut_down
    brokers.heartbeat(3, read=shutdown)
    assert brokers.heartbeat(1, want_shut_down=True).should_shut_down
    registered = made.image.brokers[BrokerId(1)]
    assert (registered.fenced, registered.in_controlled_shutdown) == (True, True)


def test_what_is_written_after_a_shutdown_began_does_not_hold_it_up() -> None:
    made = cluster(2)
    made.create_topic("jays", 2, 2)
    brokers = Brokers(made)
    brokers.heartbeat(1, want_shut_down=True)
    shutdown = made.image.offset
    assert not brokers.heartbeat(1, want_shut_down=True).should_shut_down
    made.create_topic("magpies", 1, 1)
    brokers.heartbeat(2, read=shutdown)
    assert brokers.heartbeat(1, want_shut_down=True).should_shut_down


def test_nobody_waits_for_a_broker_that_is_fenced() -> None:
    made = cluster(2)
    made.create_topic("jays", 2, 2)
    brokers = Brokers(made)
    brokers.heartbeat(2, read=0)
    made.write(fence_broker(made.image, 2, made.context))
    brokers.heartbeat(1, want_shut_down=True)
    assert brokers.heartbeat(1, want_shut_down=True).should_shut_down


def test_the_only_broker_goes_in_two_steps_and_is_left_fenced() -> None:
    made = cluster()
    made.create_topic("jays")
    brokers = Brokers(made)
    assert not brokers.heartbeat(1, want_shut_down=True).should_shut_down
    assert brokers.heartbeat(1, want_shut_down=True).should_shut_down
    assert made.image.brokers[BrokerId(1)].fenced
    assert leaders(made) == [-1]


def test_a_new_life_of_a_broker_has_read_nothing_and_is_not_leaving() -> None:
    made = cluster(2)
    made.create_topic("jays", 2, 2)
    brokers = Brokers(made)
    brokers.heartbeat(2)
    brokers.heartbeat(1, want_shut_down=True)
    brokers.heartbeat(1, want_shut_down=True)
    assert brokers.heartbeats.controlled_shutdown_offset(made.image, 1) is not None
    made.register(registration(1, incarnation=2))
    assert brokers.heartbeats.controlled_shutdown_offset(made.image, 1) is None
    assert not brokers.heartbeat(1).is_fenced
    made.register(registration(2, incarnation=2))
    brokers.heartbeat(1)
    assert brokers.heartbeats.lowest_active_offset(made.image) == made.image.offset


def test_a_heartbeat_of_a_former_life_is_not_taken_in() -> None:
    made = cluster(2)
    brokers = Brokers(made)
    brokers.heartbeat(1)
    brokers.heartbeat(2)
    lowest = brokers.heartbeats.lowest_active_offset(made.image)
    stale = BrokerHeartbeatRequest(broker_id=BrokerId(2), broker_epoch=0, current_metadata_offset=0)
    brokers.heartbeats.note(made.image, stale, now_ms=0)
    assert brokers.heartbeats.lowest_active_offset(made.image) == lowest


def test_any_broker_is_stale_when_its_heartbeats_stay_away_that_of_the_same_process_too() -> None:
    """A43."""
    brokers = Brokers(cluster(2), own_id=1)
    brokers.heartbeat(1)
    for now_ms in range(0, 9_001, 1_000):
        brokers.heartbeat(2, now_ms=now_ms)
        assert brokers.stale(now_ms) is None
    assert brokers.stale(9_001) == 1


def test_a_new_controller_waits_for_a_session_before_it_takes_anybody_for_dead() -> None:
    """A2."""
    made = cluster(2)
    brokers = Brokers(made, own_id=1)
    brokers.heartbeats.take_over(made.image, 500)
    brokers.heartbeat(2, now_ms=4_000)
    assert [brokers.stale(ms) for ms in range(0, 9_501, 1_000)] == [None] * 10
    assert brokers.stale(9_501) == 1


def test_a_broker_may_register_at_once_if_its_own_node_has_just_become_the_controller() -> None:
    made = cluster(2)
    brokers = Brokers(made, own_id=1)
    brokers.heartbeats.take_over(made.image, 0)
    assert (brokers.has_session(1, 100), brokers.has_session(2, 100)) == (False, True)
    brokers.heartbeat(1, now_ms=100)
    assert brokers.has_session(1, 100)


def test_a_controller_that_was_paused_listens_before_it_takes_anybody_for_dead() -> None:
    brokers = Brokers(cluster(2))
    brokers.heartbeat(1)
    brokers.heartbeat(2)
    assert brokers.stale(1_000) is None
    assert brokers.stale(60_000) is None
    brokers.heartbeat(2, now_ms=61_000)
    assert [brokers.stale(ms) for ms in range(61_000, 69_001, 1_000)] == [None] * 9
    assert brokers.stale(69_001) == 1
