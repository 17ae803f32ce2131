"""Fetches that repeat themselves but for the offset, as consumers without a session send them.

A broker may recognise them and answer in a shorter way. Whether it does must not show: the answer
is the one that a first request on a new connection gets, whatever has happened in between.
"""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from dohle.protocol.messages.fetch import FetchRequest, FetchResponse
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from dohle.records.batch import batches
from dohle.records.compression.codecs import Codec
from dohle.testing import Broker
from tests.interop.conftest import NewTopic
from tests.interop.wire import Wire, batch_of, fetch_request

#: Small, and large enough to go from file to socket.
VALUES = (b"a", bytes(100_000), b"b", b"c" * 20_000, b"d")
OFFSETS = (0, 1, 2, 3, 4, 5, 0, 6, -1, 2, 2, 5, 1)


def topic_id_of(wire: Wire, topic: str) -> Uuid:
    asked = MetadataRequest(
        topics=(MetadataRequestTopic(name=TopicName(topic)),), allow_auto_topic_creation=False
    )
    return wire.ask(asked, MetadataResponse, 12).topics[0].topic_id


def fetch_of(
    topic: str, topic_id: Uuid, offset: int, *, bytes_max: int, committed: bool = False
) -> FetchRequest:
    request = fetch_request(topic, offset, bytes_max=bytes_max)
    (asked,) = request.topics
    return request.replace(
        topics=(asked.replace(topic_id=topic_id),), isolation_level=int(committed)
    )


def plain(response: FetchResponse) -> FetchResponse:
    """Make two answers comparable: their records are views into different buffers."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    partition = partition.replace(records=bytes(partition.records or b""))
    return response.replace(responses=(topic.replace(partitions=(partition,)),))


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("bytes_max", [1, 150_000, 1 << 25])
@pytest.mark.parametrize("version", range(4, 19))
def test_a_repeated_fetch_is_answered_like_the_first(
    broker: Broker, topic: str, version: int, bytes_max: int, committed: bool
) -> None:
    with Wire(broker.bootstrap) as repeating:
        topic_id = topic_id_of(repeating, topic)
        for value in VALUES:
            repeating.produce(topic, batch_of(value))
        for offset in OFFSETS:
            request = fetch_of(topic, topic_id, offset, bytes_max=bytes_max, committed=committed)
            again = repeating.ask(request, FetchResponse, version)
            with Wire(broker.bootstrap) as fresh:
                first = fresh.ask(request, FetchResponse, version)

            assert plain(again) == plain(first)


def test_repeated_fetches_see_what_was_deleted(broker: Broker, topic: str) -> None:
    with Wire(broker.bootstrap) as wire:
        for value in (b"a", b"b", b"c"):
            wire.produce(topic, batch_of(value))
        for _ in range(3):
            assert wire.fetch(topic, 1).log_start_offset == 0
        partition = DeleteRecordsPartition(partition_index=0, offset=2)
        asked = DeleteRecordsTopic(name=TopicName(topic), partitions=(partition,))
        wire.ask(DeleteRecordsRequest(topics=(asked,), timeout_ms=10_000), DeleteRecordsResponse, 2)

        assert wire.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert wire.fetch(topic, 2).log_start_offset == 2
        assert wire.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [4, 12, 13, 17])
def test_repeated_fetches_see_that_a_topic_is_gone_or_another(
    broker: Broker, topic: str, version: int
) -> None:
    with Wire(broker.bootstrap) as wire:

        def fetch(topic_id: Uuid) -> tuple[int, list[bytes | None]]:
            request = fetch_of(topic, topic_id, 0, bytes_max=1 << 20)
            found = wire.ask(request, FetchResponse, version).responses[0].partitions[0]
            records = [record for batch in batches(found.records or b"") for record in batch]
            return found.error_code, [record.value for record in records]

        first_id = topic_id_of(wire, topic)
        wire.produce(topic, batch_of(b"first life"))
        for _ in range(3):
            assert fetch(first_id) == (0, [b"first life"])
        wire.ask(
            DeleteTopicsRequest(topic_names=(TopicName(topic),), timeout_ms=10_000),
            DeleteTopicsResponse,
            5,
        )
        by_id = version >= 13
        gone = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert fetch(first_id) == (gone, [])
        wire.create_topic(topic)
        second_id = topic_id_of(wire, topic)
        assert second_id != first_id
        assert fetch(second_id) == (0, [])
        wire.produce(topic, batch_of(b"second life"))
        for _ in range(3):
            assert fetch(second_id) == (0, [b"second life"])
        assert fetch(first_id) == ((gone, []) if by_id else (0, [b"second life"]))


def test_repeated_fetches_see_a_codec_that_they_do_not_know(
    broker: Broker, new_topic: NewTopic
) -> None:
    topic = new_topic(compression_type="zstd")
    with Wire(broker.bootstrap) as wire:
        wire.produce(topic, batch_of(b"value" * 100, codec=Codec.GZIP))
        for _ in range(3):
            found = wire.fetch(topic, version=9)
            assert found.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            assert wire.fetch(topic, version=10).records
