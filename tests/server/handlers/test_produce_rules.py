"""What a leader asks before it takes records."""

from __future__ import annotations

import time
from pathlib import Path

from dohle.core.ids import TopicName
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.records.builder import BatchBuilder
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce


def test_no_more_replicas_must_be_in_sync_than_there_are(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "orders", configs={"min.insync.replicas": "2"})
        assert (await produce(wire, "orders", batch(b"v"))).error_code == 0

    on_node(tmp_path, scenario)


def test_an_answer_lists_a_limited_number_of_refused_records(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "orders", partitions=12)
        builder = BatchBuilder()
        builder.append_all(int(time.time() * 1000) + 2 * 3_600_000, [(b"k", b"v")] * 1_500)
        records = bytes(builder.build())
        data = tuple(PartitionProduceData(index=index, records=records) for index in range(12))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(name=TopicName("orders"), partition_data=data),),
        )
        answer = await wire.send(request, 12)
        (topic,) = answer.responses
        found = [len(one.record_errors) for one in topic.partition_responses]
        assert found == [1_000] * 10 + [1, 1]
        assert {one.error_code for one in topic.partition_responses} == {32}

    on_node(tmp_path, scenario)
