"""Attacks by topics of thousands of partitions: creating them, deleting them, and their files."""

from __future__ import annotations

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.interop.wire import Wire, batch_of
from tests.isolation.harness import assert_harmless

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(900)]

PARTITIONS = 2_000
WIDE = "wide"
STOPPED_PARTITIONS = 10_000
WRITTEN_AT_A_TIME = 200
#: Files go as soon as their topic does.
CONFIG = {"log.segment.delete.delay.ms": "0"}


def prepare(bootstrap: str) -> None:
    create(bootstrap)


def create(bootstrap: str) -> int:
    with Wire(bootstrap) as wire:
        wire.socket.settimeout(300)
        wire.create_topic(WIDE, PARTITIONS)
    return 0


def delete(bootstrap: str) -> int:
    topic = DeleteTopicState(name=TopicName(WIDE))
    with Wire(bootstrap) as wire:
        wire.socket.settimeout(300)
        request = DeleteTopicsRequest(topics=(topic,), timeout_ms=300_000)
        (result,) = wire.ask(request, DeleteTopicsResponse, 6).responses
        assert result.error_code == 0
        # The files are removed while others ask for this.
        for _ in range(1_000):
            wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
    return 0


def test_a_topic_of_many_partitions_is_created() -> None:
    assert_harmless(create, config=CONFIG)


def test_a_topic_of_many_partitions_is_deleted() -> None:
    assert_harmless(delete, prepare=prepare, config=CONFIG)


def write_to_all(bootstrap: str) -> None:
    """Create thousands of partitions, and write a record to each."""
    with Wire(bootstrap) as wire:
        wire.socket.settimeout(300)
        for topic in (f"{WIDE}{number}" for number in range(STOPPED_PARTITIONS // PARTITIONS)):
            wire.create_topic(topic, PARTITIONS)
            for start in range(0, PARTITIONS, WRITTEN_AT_A_TIME):
                parts = tuple(
                    PartitionProduceData(index=index, records=batch_of(b"written"))
                    for index in range(start, start + WRITTEN_AT_A_TIME)
                )
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=(TopicProduceData(name=TopicName(topic), partition_data=parts),),
                )
                (answer,) = wire.ask(request, ProduceResponse, 8).responses
                assert {each.error_code for each in answer.partition_responses} == {0}


def test_a_broker_with_very_many_written_partitions_stops_in_time() -> None:
    assert_harmless(lambda _: 0, prepare=write_to_all)
