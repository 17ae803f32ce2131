"""UnregisterBroker of the broker that runs, and a reassignment to it, over a real connection."""

from __future__ import annotations

from pathlib import Path

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dohle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce

_ME = BrokerId(1)


def test_a_partition_reassigned_to_its_only_broker_stays_in_use(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        target = ReassignablePartition(partition_index=0, replicas=(_ME,))
        topic = ReassignableTopic(name=TopicName("t"), partitions=(target,))
        answer = await wire.send(AlterPartitionReassignmentsRequest(topics=(topic,)))
        assert answer.responses[0].partitions[0].error_code == 0
        assert (await produce(wire, "t", batch(b"v"))).error_code == 0

    on_node(tmp_path, scenario)


def test_a_broker_that_runs_is_not_unregistered(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        refused = await wire.send(UnregisterBrokerRequest(broker_id=_ME))
        assert ErrorCode(refused.error_code) is ErrorCode.INVALID_REQUEST
        assert "is running" in refused.error_message
        assert (await produce(wire, "t", batch(b"v"))).error_code == 0

    on_node(tmp_path, scenario)
