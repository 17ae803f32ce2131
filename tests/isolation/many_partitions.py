"""Topics of thousands of partitions, created, deleted and written to."""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.interop.wire import Wire, batch_of

#: Of one topic.
PARTITIONS, MANY_PARTITIONS = 2_000, 7_000
WRITTEN_TOPICS = 5
WIDE = "wide"
PATIENCE_S = 300.0
_WRITTEN_AT_A_TIME = 200


def create(bootstrap: str, partitions: int) -> None:
    with Wire(bootstrap) as wire:
        wire.socket.settimeout(PATIENCE_S)
        wire.create_topic(WIDE, partitions)


def deletion() -> DeleteTopicsRequest:
    topic = DeleteTopicState(name=TopicName(WIDE))
    return DeleteTopicsRequest(topics=(topic,), timeout_ms=300_000)


def write_to_all(bootstrap: str) -> None:
    """Create thousands of partitions, and write a record to each."""
    with Wire(bootstrap) as wire:
        wire.socket.settimeout(PATIENCE_S)
        for topic in (f"{WIDE}{number}" for number in range(WRITTEN_TOPICS)):
            wire.create_topic(topic, PARTITIONS)
            for start in range(0, PARTITIONS, _WRITTEN_AT_A_TIME):
                parts = tuple(
                    PartitionProduceData(index=index, records=batch_of(b"written"))
                    for index in range(start, start + _WRITTEN_AT_A_TIME)
                )
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=(TopicProduceData(name=TopicName(topic), partition_data=parts),),
                )
                (answer,) = wire.ask(request, ProduceResponse, 8).responses
                assert {each.error_code for each in answer.partition_responses} == {0}
