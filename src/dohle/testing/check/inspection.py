"""What is there at the end of a round: records and offsets, once no transaction is open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, KafkaException, NewTopic

from dohle.client import Admin, ClientConfig, Cluster, End, IsolationLevel
from dohle.core.errors import KafkaError as OwnError
from dohle.core.ids import TopicName
from dohle.core.ids import TopicPartition as OwnPartition
from dohle.testing.asking import run_apart
from dohle.testing.check.load import CLIENT, PARTITIONS
from dohle.testing.checking.history import History, Partition

_REPLICAS = 3
_CONFIG = {"min.insync.replicas": "2"}
_CALL_S = 30.0
_ASK = ClientConfig(request_timeout_ms=5_000, api_timeout_ms=20_000)


class NoProgress(Exception):
    """Something has not come to an end, although nothing goes wrong any more."""


def create_topics(bootstrap: str, topics: Sequence[str], timeout_s: float) -> None:
    """Make topics, and wait until all their partitions are led."""
    admin = AdminClient({**CLIENT, "bootstrap.servers": bootstrap})
    deadline_s = monotonic() + timeout_s
    while True:
        made = admin.create_topics(
            [NewTopic(topic, PARTITIONS, _REPLICAS, config=_CONFIG) for topic in topics],
            request_timeout=_CALL_S,
        )
        errors = [future.exception() for future in made.values()]
        codes = [error.args[0].code() for error in errors if isinstance(error, KafkaException)]
        if codes == [KafkaError.TOPIC_ALREADY_EXISTS] * len(topics):
            return
        if monotonic() > deadline_s:
            raise NoProgress(f"topics cannot be made: {errors}")
        sleep(0.5)


def delete_topics(bootstrap: str, topics: Sequence[str]) -> None:
    """Delete topics; what cannot be deleted stays."""
    admin = AdminClient({**CLIENT, "bootstrap.servers": bootstrap})
    for future in admin.delete_topics(list(topics), request_timeout=_CALL_S).values():
        with suppress(KafkaException):
            future.result(_CALL_S)


def leader_of(bootstrap: str, topic: str, partition: int) -> int | None:
    """Return who leads a partition, if that can be told at once."""
    admin = AdminClient({**CLIENT, "bootstrap.servers": bootstrap})
    try:
        found = admin.list_topics(topic, timeout=3).topics[topic].partitions
    except KafkaException:
        return None
    return int(found[partition].leader) if partition in found else None


def inspect(
    bootstrap: str, topics: Sequence[str], groups: Sequence[str], history: History, timeout_s: float
) -> None:
    """Note what a reader of committed records finds, and the groups' offsets."""
    deadline_s = monotonic() + timeout_s
    partitions = [Partition(topic, number) for topic in topics for number in range(PARTITIONS)]
    run_apart(_until_stable(bootstrap, partitions, deadline_s))
    _read_all(bootstrap, partitions, history, deadline_s)
    for group in groups:
        consumer = _reader(bootstrap, group)
        try:
            asked = [TopicPartition(*each) for each in partitions]
            found = _committed(consumer, asked, deadline_s)
        finally:
            consumer.close()
        for each in found:
            offset = each.offset if each.offset >= 0 else None
            history.looked(group, Partition(each.topic, each.partition), offset)


async def _until_stable(bootstrap: str, partitions: Sequence[Partition], deadline_s: float) -> None:
    ends = {OwnPartition(TopicName(each.topic), each.number): End() for each in partitions}
    stable: Any = None
    every: Any = None
    async with Cluster(bootstrap, _ASK) as cluster:
        admin = Admin(cluster)
        while monotonic() < deadline_s:
            with suppress(OwnError):
                committed = IsolationLevel.READ_COMMITTED
                stable = (await admin.list_offsets(ends, isolation_level=committed)).ok()
                every = (await admin.list_offsets(ends)).ok()
                if stable == every:
                    return
            await asyncio.sleep(0.5)
    raise NoProgress(f"transactions stay open: ends are {every}, and stable is {stable}")


def _reader(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )


def _read_all(
    bootstrap: str, partitions: Sequence[Partition], history: History, deadline_s: float
) -> None:
    history.final = {each: [] for each in partitions}
    left = set(partitions)
    consumer = _reader(bootstrap, "inspection")
    try:
        consumer.assign([TopicPartition(*each, 0) for each in partitions])
        while left:
            if monotonic() > deadline_s:
                raise NoProgress(f"{', '.join(map(str, sorted(left)))} cannot be read to the end")
            for message in consumer.consume(500, 1.0):
                where = Partition(str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    place = int(message.offset() or 0), message.value() or b""
                    history.final[where].append(place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(where)
    finally:
        consumer.close()


def _committed(consumer: Consumer, asked: list[Any], deadline_s: float) -> list[Any]:
    while True:
        try:
            found: list[Any] = consumer.committed(asked, timeout=10)
        except KafkaException as error:
            failure: object = error
        else:
            failure = next((each.error for each in found if each.error is not None), None)
            if failure is None:
                return found
        if monotonic() > deadline_s:
            raise NoProgress(f"a group's offsets cannot be looked up: {failure}")
        sleep(0.5)
