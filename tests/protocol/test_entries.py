"""The entries of a message outlive it in a list, to be let go of in steps."""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.protocol.apis import APIS
from dohle.protocol.entries import entries_of
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)


def test_entries_of_entries_are_found_too() -> None:
    partitions = tuple(FetchPartition(partition=index) for index in range(3))
    topics = tuple(FetchTopic(topic=TopicName(name), partitions=partitions) for name in "ab")
    forgotten = ForgottenTopic(topic=TopicName("c"), partitions=(1_000, 2_000))
    request = FetchRequest(topics=topics, forgotten_topics_data=(forgotten,))
    found = finish(entries_of(request))
    expected = [*topics, *partitions, *partitions, forgotten, *forgotten.partitions]
    assert sorted(map(id, found)) == sorted(map(id, expected))


def test_every_message_can_be_asked() -> None:
    for api in APIS.values():
        assert finish(entries_of(api.request()())) == []
        assert finish(entries_of(api.response()())) == []


def test_entries_of_an_array_that_many_entries_share_are_found_once() -> None:
    partitions = tuple(FetchPartition(partition=index) for index in range(100))
    topics = tuple(FetchTopic(topic=TopicName(name), partitions=partitions) for name in "abc")
    found = finish(entries_of(FetchRequest(topics=topics)))
    assert sorted(map(id, found)) == sorted(map(id, [*topics, *partitions]))
