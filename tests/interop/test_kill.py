"""kill -9 under load: what was acknowledged is there, once, in order, at its offset.

Librdkafka's producers write while the broker is killed at random moments, some of them during its
recovery, and started again on the same data and port. What they were told is then compared with
what the log has, by the checks that judge the simulator's runs too.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.load import PARTITIONS, Load, check_load
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Closed, Wire, batch_of
from tests.ports import free_port

ROUNDS, LONG_ROUNDS = 5, 20
CREATION_ROUNDS = 6
#: Every so many rounds the broker is killed once more before it has come up.
KILL_IN_RECOVERY_EVERY = 4
RECORDS_PER_ROUND_MAX = 4_000


def kill_rounds(broker: BrokerProcess, loads: list[Load], rng: random.Random, rounds: int) -> None:
    pause = threading.Event()
    for number in range(rounds):
        for load in loads:
            load.await_more(rng.randrange(1, RECORDS_PER_ROUND_MAX))
        # So that the moment does not follow from an acknowledgement.
        pause.wait(rng.uniform(0, 0.03))
        broker.kill()
        if number % KILL_IN_RECOVERY_EVERY == 0:
            broker.spawn()
            pause.wait(rng.uniform(0.1, 0.6))
            broker.kill()
        broker.start()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.long)])
def test_acknowledged_records_survive_kills(tmp_path: Path, rounds: int) -> None:
    with BrokerProcess(tmp_path, port=free_port()) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("once", PARTITIONS)
            wire.create_topic("at-least-once", PARTITIONS, segment_bytes=str(1 << 20))
        loads = [
            Load(broker.bootstrap, "once", 1, idempotent=True),
            Load(broker.bootstrap, "at-least-once", 2, idempotent=False),
        ]
        for load in loads:
            load.start()
        try:
            kill_rounds(broker, loads, random.Random(rounds), rounds)
        finally:
            for load in loads:
                load.finish()

        for load in loads:
            assert load.failures == []
            assert load.acknowledged_count == sum(load.written.values())
            check_load(broker, load)
        assert broker.stop() == 0
        assert broker.failures == []

        # And after a stop that was clean.
        broker.start()
        for load in loads:
            check_load(broker, load)


class Creating:
    """Creates topics one after the other, in a thread, until the broker goes away."""

    def __init__(self, bootstrap: str, names: Iterator[str]) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self._bootstrap = bootstrap
        self._names = names
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(Closed, OSError), Wire(self._bootstrap) as wire:
            for name in self._names:
                topic = CreatableTopic(name=TopicName(name), num_partitions=2, replication_factor=1)
                reply = wire.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 7)
                assert reply.topics[0].error_code == 0
                self.topic_ids[name] = reply.topics[0].topic_id

    def await_some(self, goal: int) -> None:
        wait_until(lambda: len(self.topic_ids) >= goal)

    def join(self) -> None:
        self._thread.join()


def test_created_topics_survive_kills(tmp_path: Path) -> None:
    rng = random.Random(4)
    names = (f"topic-{number}" for number in count())
    created: dict[str, bytes] = {}
    with BrokerProcess(tmp_path, port=free_port()) as broker:
        for _ in range(CREATION_ROUNDS):
            creating = Creating(broker.bootstrap, names)
            creating.await_some(rng.randrange(1, 20))
            broker.kill()
            creating.join()
            created |= creating.topic_ids
            broker.start()

            with Wire(broker.bootstrap) as wire:
                reply = wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
                found = {topic.name: topic.topic_id for topic in reply.topics}
                # One more may be there: written, but not yet answered.
                assert created.items() <= found.items()
                assert all(len(topic.partitions) == 2 for topic in reply.topics)
                for name in creating.topic_ids:
                    assert wire.produce(name, batch_of(b"value"), partition=1).base_offset == 0
        assert broker.failures == []
