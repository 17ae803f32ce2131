"""What a partition counts of the fetches that it is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce

VALUE = bytes(500)


@pytest.mark.parametrize(
    ("version", "conversions"), [(0, 1), (3, 1), (4, 0), (12, 0)], ids=lambda number: f"v{number}"
)
@pytest.mark.parametrize("max_wait_ms", [0, 10])
def test_the_bytes_that_are_sent_are_counted_converted_or_not(
    tmp_path: Path, version: int, conversions: int, max_wait_ms: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        assert (await produce(wire, "t", batch(VALUE))).error_code == 0
        asked = FetchPartition(partition=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 << 20,
            topics=(FetchTopic(topic=TopicName("t"), partitions=(asked,)),),
        )
        ((found,),) = ((each.partitions) for each in (await wire.send(request, version)).responses)
        partition = node.broker.partitions.get(TopicName("t"), 0)
        assert partition is not None
        traffic = partition.traffic
        assert traffic.bytes_out == len(found.records) > len(VALUE)
        assert (traffic.fetch_requests, traffic.fetch_conversions) == (1, conversions)

    on_node(tmp_path, scenario)
