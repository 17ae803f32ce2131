"""What consumers of a classic group tell each other in JoinGroup and SyncGroup.

It is opaque to the coordinator, except for the topics that a group subscribes to. An int16 version
comes first, and every version begins with the fields of the one before, so that what a newer client
writes can be read as far as it is known here.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from dohle.protocol.errors import MalformedMessage
from dohle.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = struct.Struct(">h")
_PREFIX_VERSION = 0


def consumer_protocol_version(data: bytes) -> int:
    """Return the version of an encoded subscription or assignment."""
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except struct.error:
        raise MalformedMessage("a consumer's metadata has no version") from None
    if version < _PREFIX_VERSION:
        raise MalformedMessage(f"a consumer's metadata of version {version}")
    return version


def subscribed_topics(metadata: bytes) -> tuple[str, ...]:
    """Return the topics that a consumer subscribes to, whatever the version of its subscription."""
    consumer_protocol_version(metadata)
    subscription, _ = ConsumerProtocolSubscription.decode(_PREFIX_VERSION, metadata, _VERSION.size)
    return subscription.topics


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode a consumer's subscription, as far as the versions known here go."""
    subscription, _ = ConsumerProtocolSubscription.decode(
        _known_version(metadata), metadata, _VERSION.size
    )
    return subscription


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode the assignment that a leader made for a consumer."""
    assignment, _ = ConsumerProtocolAssignment.decode(_known_version(data), data, _VERSION.size)
    return assignment


def write(
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int
) -> bytes:
    """Encode a message after its version."""
    return _VERSION.pack(version) + message.encode(version)


def write_subscription(topics: Collection[str]) -> bytes:
    """Encode the subscription of a consumer of these topics."""
    subscription = ConsumerProtocolSubscription(topics=tuple(topics))
    return write(subscription, _PREFIX_VERSION)


def write_assignment(assignment: ConsumerProtocolAssignment, metadata: bytes) -> bytes:
    """Encode an assignment in the version of its consumer's subscription."""
    return write(assignment, _known_version(metadata))


def _known_version(data: bytes) -> int:
    return min(consumer_protocol_version(data), ConsumerProtocolSubscription.VERSIONS.highest)
