"""Topics, created over the wire and served before anything is measured, and deleted again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bench.coordinators.client import answer_of, expect
from bench.raw_client import METADATA_VERSION, call, connect, frame
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_CREATE_VERSION, _DELETE_VERSION, _OFFSETS_VERSION = 7, 6, 7
_EARLIEST = -2
_TIMEOUT_S = 60
#: Ten thousand logs take a busy machine minutes.
_SERVED_WITHIN_S = 300
_RETRY_S = 0.02


class Place(NamedTuple):
    """A topic, and where its partitions are served."""

    address: str
    topic: TopicName
    topic_id: Uuid


def create_topic(
    address: str, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> Uuid:
    """Create a topic, wait until all its partitions are served, and return its id."""
    topic = TopicName(name)
    create(
        address,
        CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ),
        ),
    )
    await_served(address, topic, range(partitions))
    return describe(address, topic).topic_id


def place(address: str, name: str, partitions: int = 1) -> Place:
    """Create a topic that one server serves."""
    return Place(address, TopicName(name), create_topic(address, name, partitions))


def create(address: str, topic: CreatableTopic) -> None:
    """Ask for a topic until there is one.

    A server that has just answered for the first time may not be registered yet.
    """
    request = frame(CreateTopicsRequest(topics=(topic,), timeout_ms=30_000), _CREATE_VERSION)
    with connect(address) as sock:
        persist(lambda: _create_codes(call(sock, request)))


def await_served(address: str, topic: TopicName, partitions: Iterable[int]) -> None:
    """Wait until a server leads these partitions and has their logs."""
    asked = tuple(
        ListOffsetsPartition(partition_index=index, timestamp=_EARLIEST) for index in partitions
    )
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=asked),))
    with connect(address) as sock:
        persist(lambda: _offset_codes(call(sock, frame(request, _OFFSETS_VERSION))))


def describe(address: str, topic: TopicName) -> MetadataResponseTopic:
    """Return what a server knows of a topic."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    with connect(address) as sock:
        answer = call(sock, frame(request, METADATA_VERSION))
    return answer_of(MetadataResponse, METADATA_VERSION, answer).topics[0]


def delete_topics(address: str, *names: str) -> None:
    """Delete topics."""
    topics = tuple(DeleteTopicState(name=TopicName(name)) for name in names)
    with connect(address) as sock:
        request = DeleteTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_S * 1_000)
        answer = call(sock, frame(request, _DELETE_VERSION))
    response = answer_of(DeleteTopicsResponse, _DELETE_VERSION, answer)
    expect("DeleteTopics", (one.error_code for one in response.responses))


def _create_codes(answer: bytes) -> set[int]:
    return {
        one.error_code for one in answer_of(CreateTopicsResponse, _CREATE_VERSION, answer).topics
    }


def _offset_codes(answer: bytes) -> set[int]:
    response = answer_of(ListOffsetsResponse, _OFFSETS_VERSION, answer)
    return {one.error_code for topic in response.topics for one in topic.partitions}


def persist(codes: Callable[[], set[int]]) -> None:
    """Try until there are no other error codes than NONE."""
    deadline = time.monotonic() + _SERVED_WITHIN_S
    while failed := codes() - {ErrorCode.NONE}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a topic is not served: {', '.join(map(str, failed))}")
        time.sleep(_RETRY_S)
