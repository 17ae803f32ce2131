"""Sends dead letters back to their origin, each once.

A letter and the fact that it was sent are one transaction: after an interruption the replay
continues with the letters that were not sent. A second replay with the same group stops the first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from dohle.client import (
    Admin,
    At,
    Beginning,
    Cluster,
    ConsumedRecord,
    Consumer,
    ConsumerConfig,
    GroupMetadata,
    IsolationLevel,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
    Start,
)
from dohle.core.ids import GroupId, TopicName, TopicPartition
from dohle.records.record import Header
from dohle.spark import letter_headers as names

DEFAULT_GROUP = "dohle-replay"
_LETTERS_PER_TRANSACTION = 500
_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, and what its headers say about it."""

    topic: str
    partition: int
    offset: int
    #: Its origin; None if unknown.
    origin: str | None
    error: str | None
    key: bytes | None
    value: bytes | None
    #: Its original headers, with the count of replays.
    headers: tuple[Header, ...]


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    sent: int = 0
    #: Letters without an origin: they are not sent.
    without_origin: int = 0


def read_letter(found: ConsumedRecord) -> Letter:
    """Parse the headers of a dead letter."""
    texts: dict[str, str] = {}
    kept: list[Header] = []
    replays = 0
    for name, value in found.record.headers:
        if names.is_of_letter(name):
            texts[name] = (value or b"").decode(errors="replace")
        elif name == names.REPLAYS:
            replays = int(value) if value and value.isdigit() else 0
        else:
            kept.append((name, value))
    kept.append((names.REPLAYS, str(replays + 1).encode()))
    return Letter(
        topic=found.topic,
        partition=found.partition,
        offset=found.record.offset,
        origin=texts.get(names.TOPIC),
        error=texts.get(names.ERROR),
        key=found.record.key,
        value=found.record.value,
        headers=tuple(kept),
    )


async def replay(
    cluster: Cluster,
    topic: str,
    *,
    group: str = DEFAULT_GROUP,
    to: str | None = None,
    limit: int | None = None,
    is_dry: bool = False,
    on_letter: Callable[[Letter], None] | None = None,
) -> Replayed:
    """Send the letters of a topic that the group has not sent yet, up to its current end."""
    done = Replayed()
    starts = await _starts(cluster, TopicName(topic), group)
    if is_dry:
        async for letters in _letters(cluster, starts, limit):
            for letter in letters:
                _count(done, letter, to)
                if on_letter is not None:
                    on_letter(letter)
        return done
    config = ProducerConfig(transactional_id=f"{group}-{topic}")
    async with Producer(cluster, config) as producer:
        await producer.init_transactions()
        # Only from here on is there no other replay: what it has sent counts.
        starts = await _starts(cluster, TopicName(topic), group)
        async for letters in _letters(cluster, starts, limit):
            producer.begin_transaction()
            next_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
            for letter in letters:
                if target := _count(done, letter, to):
                    await producer.send_soon(
                        target, letter.value, key=letter.key, headers=letter.headers
                    )
                partition = TopicPartition(TopicName(letter.topic), letter.partition)
                next_offsets[partition] = OffsetAndMetadata(letter.offset + 1)
                if on_letter is not None:
                    on_letter(letter)
            metadata = GroupMetadata(GroupId(group))
            await producer.send_offsets_to_transaction(next_offsets, metadata)
            await producer.commit_transaction()
    return done


def _count(done: Replayed, letter: Letter, to: str | None) -> str | None:
    target = to or letter.origin
    if target is None:
        done.without_origin += 1
    else:
        done.sent += 1
    return target


async def _starts(cluster: Cluster, topic: TopicName, group: str) -> dict[TopicPartition, Start]:
    """Return the group's position in each partition of the topic."""
    info = await cluster.topic(topic)
    # Waits for what an earlier replay has sent but not finished committing.
    offsets = await Admin(cluster).list_group_offsets(group, require_stable=True)
    committed = offsets.done
    starts: dict[TopicPartition, Start] = {}
    for number in info.partitions:
        partition = TopicPartition(topic, number)
        offset = committed.get(partition)
        starts[partition] = Beginning() if offset is None else At(offset.offset)
    return starts


async def _letters(
    cluster: Cluster, starts: dict[TopicPartition, Start], limit: int | None
) -> AsyncIterator[list[Letter]]:
    config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
    left = limit
    async with Consumer(cluster, config) as consumer:
        await consumer.assign(starts, stop_at_end=True)
        while not consumer.is_done and left != 0:
            most = _LETTERS_PER_TRANSACTION if left is None else min(left, _LETTERS_PER_TRANSACTION)
            found = await consumer.poll(timeout_ms=_POLL_MS, max_records=most)
            if found:
                yield [read_letter(one) for one in found]
            if left is not None:
                left -= len(found)
