"""What tests of metrics have clients do."""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.server.wire import Wire

TOPIC = "orders"


def fetch_request(offset: int, *, topic: str = TOPIC, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    asked = FetchTopic(topic=TopicName(topic), partitions=(partition,))
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=(asked,))


async def delete_topic(wire: Wire, name: str) -> None:
    state = DeleteTopicState(name=TopicName(name))
    answer = await wire.send(DeleteTopicsRequest(topics=(state,), timeout_ms=10_000))
    assert answer.responses[0].error_code == 0
