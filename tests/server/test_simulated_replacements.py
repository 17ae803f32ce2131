"""A new machine takes the place of one that is lost, with its id and an empty disk."""

from __future__ import annotations

import logging

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from tests.server.replicas.simulated_cluster import committed_bytes
from tests.server.simulated_cluster import (
    BROKERS,
    CONTROLLERS,
    DYNAMIC,
    STATIC,
    SimulatedCluster,
)
from tests.server.simulated_records import (
    create_topic,
    image,
    is_in_sync,
    produce,
    read,
    replica,
)

_RECORDS = [b"%d" % number for number in range(50)]
_SESSION_S = 9


@pytest.mark.parametrize("lost", BROKERS, ids=["leader", "follower"])
@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_a_broker_with_an_old_id_and_an_empty_disk_copies_all_that_it_is_to_have(
    quorum: dict[str, str], lost: int
) -> None:
    """A30, A34, U2: it is not in the ISR before it has caught up, so it leads nothing it lacks."""
    with SimulatedCluster(21, quorum) as cluster:
        cluster.await_started()
        create_topic(cluster, leader=4)
        produce(cluster, *_RECORDS)
        former = cluster.image(cluster.await_active()).brokers[BrokerId(lost)]
        cluster.kill(lost)
        other = next(id for id in BROKERS if id != lost)
        cluster.world.run_until(lambda: image(cluster).isr == (other,), 3 * _SESSION_S)
        produce(cluster, b"meanwhile")
        cluster.replace(lost)
        cluster.start(lost)

        def leads_only_what_it_has() -> bool:
            seen = image(cluster)
            found = replica(cluster, lost) if lost in cluster.started else None
            if BrokerId(lost) in seen.isr or seen.leader == lost:
                assert found is not None
                assert found.log.log_end_offset == len(_RECORDS) + 1
            return is_in_sync(cluster)

        cluster.world.run_until(leads_only_what_it_has, 60)
        now = cluster.image(cluster.await_active()).brokers[BrokerId(lost)]
        assert now.epoch > former.epoch
        assert now.incarnation_id != former.incarnation_id
        assert now.log_dirs != former.log_dirs
        assert not now.fenced
        found = [replica(cluster, id) for id in BROKERS]
        assert len({committed_bytes(each) for each in found if each is not None}) == 1
        # What it has copied is all there is: it serves without the other one.
        cluster.kill(other)
        cluster.world.run_until(lambda: image(cluster).leader == lost, 3 * _SESSION_S)
        assert read(cluster) == [*_RECORDS, b"meanwhile"]


def test_it_waits_until_the_session_of_the_one_before_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A30, A36: 101 while that may be alive; its log says whom it waits for, once."""
    caplog.set_level(logging.INFO, logger="dohle.server")
    with SimulatedCluster(22, STATIC) as cluster:
        cluster.await_started()
        create_topic(cluster, leader=4)
        produce(cluster, *_RECORDS)
        cluster.kill(5)
        cluster.replace(5)
        begun = cluster.world.now_s
        cluster.start(5)
        cluster.world.run_until(lambda: 5 in cluster.started, 3 * _SESSION_S)
        assert cluster.world.now_s - begun > _SESSION_S / 2
        cluster.world.run_until(lambda: is_in_sync(cluster), 30)
    told = [each for each in caplog.messages if "its former process is still taken" in each]
    assert len(told) == 1


def test_a_machine_of_another_cluster_does_not_take_over() -> None:
    """A30: 104; what is there goes on without it."""
    with SimulatedCluster(23, STATIC) as cluster:
        cluster.await_started()
        create_topic(cluster, leader=4)
        produce(cluster, *_RECORDS)
        cluster.kill(5)
        cluster.world.run_until(lambda: image(cluster).isr == (4,), 3 * _SESSION_S)
        former = cluster.image(cluster.await_active()).brokers[BrokerId(5)]
        cluster.replace(5, cluster_id="of-another-one")
        cluster.start(5)
        machine = cluster.machine(5)
        cluster.world.run_until(machine.main.done, 120)
        with pytest.raises(KafkaError) as refused:
            machine.main.result()
        assert refused.value.code in (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            ErrorCode.REQUEST_TIMED_OUT,
        )
        cluster.world.errors.clear()
        assert cluster.image(cluster.await_active()).brokers[BrokerId(5)] == former
        assert read(cluster) == _RECORDS


def test_a_controller_with_an_old_id_and_an_empty_disk_reads_all_of_the_metadata_again() -> None:
    """R2: of a static quorum, while the others run; the topics are known to it afterwards."""
    with SimulatedCluster(24, STATIC) as cluster:
        cluster.await_started()
        create_topic(cluster)
        lost = next(id for id in CONTROLLERS if id != cluster.await_active())
        cluster.kill(lost)
        cluster.replace(lost)
        cluster.start(lost)
        cluster.await_started()
        cluster.world.run_until(
            lambda: cluster.image(lost).topics == cluster.image(cluster.await_active()).topics, 30
        )
        # It counts as a voter again: with one of the others gone, there is a majority.
        cluster.kill(cluster.await_active())
        cluster.await_active()
        produce(cluster, b"a")
        assert read(cluster) == [b"a"]
