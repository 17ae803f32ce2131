"""Dead letters go back to where they came from, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dohle.client import (
    Beginning,
    Cluster,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    Producer,
    run,
)
from dohle.core.ids import TopicName, TopicPartition
from dohle.records.record import Header, Record
from dohle.spark.pipelines.replay import Letter, Replayed, replay
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName


def letter_headers(origin: str, offset: int) -> list[Header]:
    return [
        ("own", b"kept"),
        ("__connect.errors.topic", origin.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"%d" % offset),
        ("__connect.errors.exception.message", b"not JSON"),
    ]


async def write(
    cluster: Cluster, topic: str, records: Sequence[tuple[bytes, Sequence[Header]]]
) -> None:
    async with Producer(cluster) as producer:
        for value, headers in records:
            await producer.send_soon(topic, value, key=b"key", headers=headers)


async def read(cluster: Cluster, topic: str) -> list[Record]:
    config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED, fetch_max_wait_ms=20)
    async with Consumer(cluster, config) as consumer:
        partition = TopicPartition(TopicName(topic), 0)
        await consumer.assign({partition: Beginning()}, stop_at_end=True)
        return [found.record async for found in consumer]


def test_each_letter_is_sent_once_without_what_made_it_one(
    broker: Broker, new_topic: NewTopicName
) -> None:
    dead, origin = new_topic(), new_topic()

    async def work() -> tuple[list[Replayed], list[Record]]:
        async with Cluster(broker.bootstrap) as cluster:
            letters = [(b"%d" % n, letter_headers(origin, n)) for n in range(3)]
            await write(cluster, dead, letters)
            first = await replay(cluster, dead, group="one")
            again = await replay(cluster, dead, group="one")
            await write(cluster, dead, [(b"3", [*letter_headers(origin, 3), REPLAYED])])
            more = await replay(cluster, dead, group="one")
            return [first, again, more], await read(cluster, origin)

    done, found = run(work())
    assert [one.sent for one in done] == [3, 0, 1]
    assert [record.value for record in found] == [b"0", b"1", b"2", b"3"]
    assert {record.key for record in found} == {b"key"}
    assert found[0].headers == (("own", b"kept"), ("dohle.replays", b"1"))
    assert found[3].headers == (("own", b"kept"), ("dohle.replays", b"8"))


REPLAYED: Header = ("dohle.replays", b"7")


def test_letters_can_be_counted_looked_at_and_sent_elsewhere(
    broker: Broker, new_topic: NewTopicName
) -> None:
    dead, elsewhere = new_topic(), new_topic()

    async def work() -> tuple[Replayed, list[Letter], Replayed, list[Record]]:
        async with Cluster(broker.bootstrap) as cluster:
            await write(cluster, dead, [(b"%d" % n, letter_headers("gone", n)) for n in range(5)])
            seen: list[Letter] = []
            looked = await replay(cluster, dead, group="two", is_dry=True, on_letter=seen.append)
            sent = await replay(cluster, dead, group="two", to=elsewhere, limit=2)
            return looked, seen, sent, await read(cluster, elsewhere)

    looked, seen, sent, found = run(work())
    assert (looked.sent, sent.sent) == (5, 2)
    assert [(one.origin, one.error, one.offset) for one in seen] == [
        ("gone", "not JSON", offset) for offset in range(5)
    ]
    assert [record.value for record in found] == [b"0", b"1"]


def test_a_letter_without_an_origin_stays(broker: Broker, topic: str) -> None:
    async def work() -> Replayed:
        async with Cluster(broker.bootstrap) as cluster:
            await write(cluster, topic, [(b"value", [])])
            return await asyncio.wait_for(replay(cluster, topic, group="three"), 30)

    assert run(work()) == Replayed(sent=0, without_origin=1)
