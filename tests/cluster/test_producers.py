"""Forty faults under producers of three makers: nothing is lost, doubled, or in another order.

Three nodes, a replica on each, min.insync.replicas 2, acks=all, idempotence. Each round one fault
strikes and is mended after a moment; the next one comes when every producer goes on, whether or not
the victim has recovered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from dohle.testing.check.faults import FaultInjector, FaultKind
from dohle.testing.check.inspection import create_topics, leader_of
from dohle.testing.check.load import PARTITIONS
from dohle.testing.check.nodes import CLUSTERS, Nodes
from tests.cluster.feeds import FeedProcess, feeding
from tests.interop.waiting import wait_until

TOPIC = "fed"
#: Faults of each kind; a rolling restart stops all nodes, one after the other.
KINDS = {
    FaultKind.KILL: 12,
    FaultKind.PAUSE: 9,
    FaultKind.CUT: 9,
    FaultKind.STOP: 4,
    FaultKind.FULL_DISK: 4,
}
ROLLING = 2
#: Some are longer than the session of a broker (3 s), and cost it its partitions.
FAULT_S_MAX = 4.0
#: When a fault is mended, every producer goes on within this time: a busy machine is slow.
GOES_ON_S = 90.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    running = Nodes(CLUSTERS["dohle"], tmp_path, tmp_path, None)
    try:
        running.start(with_disks=True)
        yield running
    finally:
        running.close()


def await_more(feeds: list[FeedProcess]) -> None:
    """Wait until each producer was acknowledged something that it has sent from now on."""
    goals = [(feed, feed.sent + 1) for feed in feeds]

    def go_on() -> bool:
        for feed, _ in goals:
            assert feed.failures == [], feed.name
        return all(feed.acknowledged >= goal for feed, goal in goals)

    began = monotonic()
    try:
        wait_until(go_on, GOES_ON_S)
    except AssertionError as error:
        told = {feed.name: (feed.acknowledged, feed.sent, goal) for feed, goal in goals}
        raise AssertionError(f"{told} after {monotonic() - began:.0f} s: {error}") from None


def roll(nodes: Nodes) -> None:
    """Stop and start all nodes in turn, each when the others have it back."""
    for node in nodes.makers:
        # One that takes too long is killed, which is a fault like others.
        nodes.stop(node)
        nodes.spawn(node)
        nodes.wait_until_ready()


def read_all(bootstrap: str) -> dict[tuple[str, int], list[int]]:
    """Return the numbers of each producer in each partition, in the order of their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    left = set(range(PARTITIONS))
    try:
        while left:
            message = consumer.poll(60)
            assert message is not None, "all can be read"
            partition, value, error = message.partition(), message.value(), message.error()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(partition)
                continue
            assert isinstance(value, bytes)
            name, number = value.decode().split(" ")
            found[name, partition].append(int(number))
    finally:
        consumer.close()
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_doubled_or_moved_in_forty_faults(nodes: Nodes, seed: int) -> None:
    create_topics(nodes.bootstrap, [TOPIC], GOES_ON_S)
    rng = Random(seed)
    rounds: list[FaultKind | None] = [kind for kind, times in KINDS.items() for _ in range(times)]
    rounds += [None] * ROLLING
    assert len(rounds) == 40
    rng.shuffle(rounds)
    faults = FaultInjector(
        nodes, [], rng, monotonic, lambda: leader_of(nodes.bootstrap, TOPIC, 0), FAULT_S_MAX
    )
    with feeding(nodes.bootstrap, TOPIC, PARTITIONS) as feeds:
        try:
            for kind in rounds:
                await_more(feeds)
                if kind is None:
                    faults.start_missing()
                    roll(nodes)
                elif kind is FaultKind.FULL_DISK and nodes.no_disks:
                    # The right to mount disks is not had everywhere.
                    faults.strike(FaultKind.KILL)
                else:
                    faults.strike(kind)
            await_more(feeds)
        finally:
            faults.finish()
        nodes.wait_until_ready()
        await_more(feeds)
    assert faults.surprises == []
    for feed in feeds:
        assert feed.failures == []
        assert feed.acknowledged == feed.sent
    found = read_all(nodes.bootstrap)
    for feed in feeds:
        for partition in range(PARTITIONS):
            sent = list(range(partition, feed.sent, PARTITIONS))
            assert found[feed.name, partition] == sent, (feed.name, partition)
    for node in nodes.makers:
        assert "Traceback" not in nodes.log(node), nodes.log(node)
