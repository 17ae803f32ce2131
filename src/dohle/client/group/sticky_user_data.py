"""What members of a group with the assignor ``sticky`` say of their last assignment.

They revoke everything before they join (it is an eager assignor), so the partitions that a
subscription calls owned are none. What they had travels in the subscription's user data, in the
form of Java's StickyAssignor: version 1 has the generation, version 0 had none, and neither says
which it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from dohle.client.group.consumer_protocol import NO_GENERATION, by_topic
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.fields import array, int32, string
from dohle.protocol.schema import Data, Struct


class StickyTopicAssignment(Struct):
    """The partitions of one topic."""

    topic: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class StickyUserData(Data, versions="0-1", flexible="none"):
    """A member's last assignment, and the generation in which it had it."""

    previous_assignment: tuple[StickyTopicAssignment, ...] = array(StickyTopicAssignment, "0+")
    generation: int = int32("1+", default=NO_GENERATION, ignorable=True)


def write_user_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode what a member had."""
    data = StickyUserData(
        previous_assignment=tuple(
            StickyTopicAssignment(topic=topic, partitions=some)
            for topic, some in by_topic(partitions).items()
        ),
        generation=generation,
    )
    return data.encode(StickyUserData.VERSIONS.highest)


def read_user_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Return what a member had, and when; nothing, if that cannot be read."""
    for version in (1, 0):
        try:
            found, end = StickyUserData.decode(version, data)
        except MalformedMessage:
            continue
        if end == len(data):
            had = tuple(
                TopicPartition(topic.topic, number)
                for topic in found.previous_assignment
                for number in topic.partitions
            )
            return had, found.generation
    return (), NO_GENERATION
