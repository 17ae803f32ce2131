"""Exactly once in a cluster: workers and nodes are killed with -9, the output is the input.

Whoever is killed leads partitions, coordinates groups and transactions, and may be the active
controller: each node is all of that.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.interop.cluster import FAILOVER_S, ClusterProcesses
from tests.interop.exactly_once import (
    PARTITIONS,
    Reader,
    WorkerProcess,
    check_exactly_once,
    commit_beginnings,
    write_input,
)
from tests.interop.waiting import wait_until

RECORDS = 100_000
WORKERS = 2
NODE_KILLS = 5
WORKER_KILLS = 5
CONFIG = {
    "group_initial_rebalance_delay_ms": "0",
    "group_min_session_timeout_ms": "500",
    "min_insync_replicas": "2",
    "broker_session_timeout_ms": "4000",
    "broker_heartbeat_interval_ms": "500",
    "offsets_topic_num_partitions": "6",
    "transaction_state_log_num_partitions": "6",
}


class Copy:
    """The work, and its end."""

    def __init__(self, bootstrap: str, log: Path, reader: Reader) -> None:
        self.workers = [WorkerProcess(bootstrap, number, log) for number in range(WORKERS)]
        self._reader = reader

    def await_records(self, count: int) -> None:
        """Wait until so many can be read, with workers that end being started again."""

        def is_so() -> bool:
            for worker in self.workers:
                worker.ensure_running()
            return len(self._reader.values) >= count

        wait_until(is_so, 3 * FAILOVER_S)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


def kill_at_random(cluster: ClusterProcesses, copy: Copy) -> None:
    rng = random.Random(5)
    victims = ["worker"] * WORKER_KILLS + ["node"] * NODE_KILLS
    rng.shuffle(victims)
    for number, victim in enumerate(victims):
        copy.await_records(RECORDS * (number + 1) // (len(victims) + 2))
        if victim == "worker":
            rng.choice(copy.workers).kill()
            continue
        node = cluster.nodes[rng.choice(sorted(cluster.nodes))]
        node.kill()
        # Half of the time it is back before it is given up.
        if rng.random() < 0.5:
            copy.await_records(RECORDS * (2 * number + 3) // (2 * len(victims) + 4))
        node.start()
        cluster.await_in_sync("output")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_output_is_the_input_though_nodes_and_workers_are_killed(tmp_path: Path) -> None:
    """H1-H7 with real processes and librdkafka: replication factor 3, min.insync.replicas 2."""
    with ClusterProcesses(tmp_path, 3, **CONFIG) as cluster:
        for topic in ("input", "output"):
            cluster.create_topic(topic, PARTITIONS)
        write_input(cluster.bootstrap, RECORDS)
        commit_beginnings(cluster.bootstrap)
        with Reader(cluster.bootstrap, "read_committed") as committed:
            copy = Copy(cluster.bootstrap, tmp_path / "workers.log", committed)
            try:
                kill_at_random(cluster, copy)
                copy.await_records(RECORDS)
            finally:
                copy.stop()
        check_exactly_once(committed.values, RECORDS)
        with Reader(cluster.bootstrap, "read_committed") as afterwards:
            wait_until(lambda: len(afterwards.values) >= RECORDS, FAILOVER_S)
        check_exactly_once(afterwards.values, RECORDS)
        for node in cluster.nodes.values():
            assert node.failures == []
