"""Exactly once, with everything dying: input to output in transactions, killed with -9 at random.

Librdkafka's consumers and transactional producers copy records from one topic to another, in
processes of their own. Workers and the broker are killed at random moments and started again. In
the end the output is the input, each record once and in order by key, for a reader of committed
records; one of uncommitted records has seen the aborted ones too.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.exactly_once import (
    PARTITIONS,
    Reader,
    WorkerProcess,
    check_exactly_once,
    commit_beginnings,
    write_input,
)
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire
from tests.ports import free_port

RECORDS = 100_000
WORKERS = 2
WORKER_KILLS = 10
BROKER_KILLS = 4
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.initial.task.delay.ms": "500",
}


def kill_at_random(broker: BrokerProcess, workers: list[WorkerProcess], reader: Reader) -> None:
    """Kill whoever's turn it is, spread over the whole work."""
    rng = random.Random(7)
    victims = ["worker"] * WORKER_KILLS + ["broker"] * BROKER_KILLS
    rng.shuffle(victims)
    pause = threading.Event()
    for number, victim in enumerate(victims):
        goal = RECORDS * (number + 1) // (len(victims) + 2)

        def has_come_far_enough(goal: int = goal) -> bool:
            for worker in workers:
                worker.ensure_running()
            return len(reader.values) >= goal

        wait_until(has_come_far_enough, 120)
        pause.wait(rng.uniform(0, 0.05))
        if victim == "worker":
            rng.choice(workers).kill()
        else:
            broker.kill()
            broker.start()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_output_is_the_input_exactly_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, CONFIG, port=free_port()) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("input", PARTITIONS)
            wire.create_topic("output", PARTITIONS)
        write_input(broker.bootstrap, RECORDS)
        commit_beginnings(broker.bootstrap)
        workers = [
            WorkerProcess(broker.bootstrap, number, tmp_path / "workers.log")
            for number in range(WORKERS)
        ]
        with (
            Reader(broker.bootstrap, "read_committed") as committed,
            Reader(broker.bootstrap, "read_uncommitted") as uncommitted,
        ):
            try:
                kill_at_random(broker, workers, committed)

                def is_complete() -> bool:
                    for worker in workers:
                        worker.ensure_running()
                    return len(committed.values) >= RECORDS

                wait_until(is_complete, 120)
            finally:
                for worker in workers:
                    worker.stop()
            wait_until(lambda: len(uncommitted.values) >= RECORDS)
        check_exactly_once(committed.values, RECORDS)
        with Reader(broker.bootstrap, "read_committed") as afterwards:
            wait_until(lambda: len(afterwards.values) >= RECORDS)
        check_exactly_once(afterwards.values, RECORDS)
        extra = Counter(uncommitted.values) - Counter(committed.values)
        assert extra, "workers abort and die within transactions: somebody must have seen that"
        assert not Counter(committed.values) - Counter(uncommitted.values)
        assert broker.stop() == 0
        assert broker.failures == []
