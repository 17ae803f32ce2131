"""A cluster whose partitions wander from broker to broker while nodes fail and clients go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from dohle.client import Admin, Cluster
from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.workload import CLIENT, TOPICS, Program
from tests.server.replicas.failovers import Failovers
from tests.server.replicas.strikes import KINDS

NODES = 4
RECORDS = ("produce", "produce", "consume", "join")
_INTERNAL = ("__consumer_offsets", "__transaction_state")
_PARTITIONS = 2


class Reassigning(Failovers):
    """As failovers, with one more node, and somebody who reassigns partitions all the time."""

    def __init__(
        self,
        seed: int,
        *,
        active_s: float = 40.0,
        kinds: Sequence[str] = KINDS,
        roles: Sequence[str] = RECORDS,
    ) -> None:
        everybody = (*roles, "reassign")
        super().__init__(seed, active_s=active_s, kinds=kinds, roles=everybody, nodes=NODES)
        self.begun = 0

    def roles(self) -> dict[str, Program]:
        return {**super().roles(), "reassign": self._reassign}

    async def _reassign(self, host: SimulatedHost) -> None:
        async with Cluster(self.cluster.bootstrap, CLIENT, host=host) as cluster:
            while not self.is_over:
                with suppress(KafkaError):
                    results = await Admin(cluster).alter_partition_reassignments(
                        {self._somewhere(host): self._target(host)}
                    )
                    self.begun += len(results.done)
                await asyncio.sleep(host.rng.random() * 3)

    def _somewhere(self, host: SimulatedHost) -> TopicPartition:
        name = host.rng.choice((*TOPICS, *_INTERNAL))
        return TopicPartition(TopicName(name), host.rng.randrange(_PARTITIONS))

    def _target(self, host: SimulatedHost) -> list[int] | None:
        if host.rng.random() < 0.15:
            return None
        brokers = sorted(self.cluster.machines)
        host.rng.shuffle(brokers)
        return [*brokers[: host.rng.choice((2, 3, 3, 4))]]
