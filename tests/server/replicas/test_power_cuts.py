"""All machines of a cluster lose their power at once: what was flushed is there afterwards.

Kafka promises no more (rule X2: replicas, not disks, keep what is acknowledged), and so do we. With
flush.messages=1 everything that was acknowledged was flushed, by every replica in sync.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from dohle.client import Cluster, Producer, ProducerConfig
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import SECOND_NS
from tests.server.replicas.stage import CLIENT, TOPIC, WITHIN_S, Stage, on_stage

#: With these seeds a power cut takes everything that was not synced, or chance decides.
_ALL_UNSYNCED, _SOME_UNSYNCED = 2, 1
_FLUSH_S = 0.2


class Acknowledged(NamedTuple):
    offset: int
    value: bytes
    at_ns: int


def written_until_the_power_fails(stage: Stage, seconds: float, seed: int) -> list[Acknowledged]:
    """Let a producer write, cut everybody's power, and return what it was told is written."""
    cluster, world = stage.cluster, stage.cluster.world
    found: list[Acknowledged] = []

    async def produce(host: SimulatedHost) -> None:
        config = ProducerConfig(linger_ms=0, batch_size=1)
        async with Cluster(cluster.bootstrap, CLIENT, host=host) as client:
            producer = Producer(client, config)
            for number in range(1 << 20):
                value = b"%d" % number
                sent = await producer.send(TOPIC, value, partition=0)
                found.append(Acknowledged(sent.offset, value, world.time.now_ns))

    producer = world.machine("producer")
    producer.start(produce)
    world.run_for(seconds)
    for node_id, machine in cluster.machines.items():
        machine.power_off(Random(seed))
        cluster.gone(node_id)
    producer.kill()
    return found


def all_return(stage: Stage) -> list[bytes]:
    """Start all nodes, and return what there is to read."""
    cluster, world = stage.cluster, stage.cluster.world
    for node_id in cluster.machines:
        cluster.start(node_id)
        # One after the other, so that none of them is the last of all that are expected.
        world.run_for(1)
    world.run_until(lambda: cluster.is_up, WITHIN_S)
    stage.await_in_sync()
    return stage.read()


@pytest.mark.parametrize("seed", [_ALL_UNSYNCED, _SOME_UNSYNCED])
@pytest.mark.parametrize("seconds", [2.0, 3.3])
def test_what_was_flushed_before_its_answer_survives_a_power_cut_of_all(
    seconds: float, seed: int
) -> None:
    """X2, U2, C13: log.flush.interval.messages=1, on leaders and on followers."""
    with on_stage(log_flush_interval_messages="1") as stage:
        written = written_until_the_power_fails(stage, seconds, seed)
        assert len(written) > 20
        there = all_return(stage)
        assert [
            each for each in written if there[each.offset : each.offset + 1] != [each.value]
        ] == []
        assert there == [b"%d" % number for number in range(len(there))]
        assert stage.produce(b"more") == [len(there)]


def test_with_an_interval_of_flushes_only_what_is_younger_may_go() -> None:
    """log.flush.interval.ms: what was acknowledged before the last interval was flushed by all."""
    with on_stage(log_flush_interval_ms=f"{_FLUSH_S * 1000:g}") as stage:
        written = written_until_the_power_fails(stage, 4, _ALL_UNSYNCED)
        # An interval, and as much for the flush itself.
        safe_ns = stage.cluster.world.time.now_ns - round(2 * _FLUSH_S * SECOND_NS)
        there = all_return(stage)
        older = [each for each in written if each.at_ns < safe_ns]
        assert len(older) > 20
        assert [
            each for each in older if there[each.offset : each.offset + 1] != [each.value]
        ] == []
        assert there == [b"%d" % number for number in range(len(there))]


def test_what_nobody_has_flushed_may_be_lost_to_all_and_what_stays_is_a_beginning() -> None:
    """The promise is no stronger than docs/guarantees.md says, and these tests can fail."""
    with on_stage() as stage:
        written = written_until_the_power_fails(stage, 2, _ALL_UNSYNCED)
        there = all_return(stage)
        assert len(there) < len(written)
        assert there == [each.value for each in written[: len(there)]]
        assert stage.produce(b"more") == [len(there)]
