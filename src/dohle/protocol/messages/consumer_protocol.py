"""What consumers of a classic group tell each other.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.fields import array, binary, int32, string
from dohle.protocol.schema import Data, Struct


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ConsumerProtocolAssignment(Data, versions="0-3", flexible="none"):
    assigned_partitions: tuple[ConsumerProtocolAssignmentTopicPartition, ...] = array(
        ConsumerProtocolAssignmentTopicPartition, "0+"
    )
    user_data: bytes | None = binary("0+", nullable=True, default=None)


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: TopicName = string("1+")
    partitions: tuple[int, ...] = array(int32, "1+")


class ConsumerProtocolSubscription(Data, versions="0-3", flexible="none"):
    topics: tuple[str, ...] = array(string, "0+")
    user_data: bytes | None = binary("0+", nullable=True, default=None)
    owned_partitions: tuple[ConsumerProtocolSubscriptionTopicPartition, ...] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+", ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable=True, default=None, ignorable=True)
