"""How messages are stored as records: the framing of Kafka's internal topics.

The metadata logs (``__cluster_metadata``, ``__remote_log_metadata``) have no record keys; a value
is three unsigned varints (frame version 1, api key, version) and the message. Coordinators
(``__consumer_offsets``, ``__transaction_state``, ``__share_group_state``) have keyed records: the
key is an int16 record type and the key message, the value an int16 version and the value message,
or null for a tombstone.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

from dohle.protocol.apis import (
    Coordinator,
    cluster_metadata_record,
    coordinator_record,
    remote_log_metadata_record,
)
from dohle.protocol.codec.unsigned_varint import read_uvarint, uvarint
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.schema import Buffer, CoordinatorKey, CoordinatorValue, Message, MetadataRecord

FRAME_VERSION = 1

T = TypeVar("T", bound=Message)

_INT16 = struct.Struct(">h")
_KEY_VERSION = 0  # keys of all types have this version; the bytes hold the type in its place


class MetadataRecordHead(NamedTuple):
    """The head of a metadata record, and the offset of its message."""

    api_key: int
    version: int
    body_offset: int


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic; without a value it is a tombstone that deletes the key."""

    key: CoordinatorKey
    value: CoordinatorValue | None = None
    value_version: int | None = None


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """Return the value of a record that holds this metadata record."""
    head = uvarint(FRAME_VERSION) + uvarint(record.API_KEY) + uvarint(version)
    return head + record.encode(version)


def metadata_record_head(value: Buffer) -> MetadataRecordHead:
    """Parse the key and the version of a metadata record."""
    view = value if type(value) is bytes else memoryview(value)
    try:
        frame_version, pos = read_uvarint(view, 0)
        if frame_version != FRAME_VERSION:
            raise MalformedMessage(
                f"a metadata record of the unknown frame version {frame_version}"
            )
        api_key, pos = read_uvarint(view, pos)
        version, pos = read_uvarint(view, pos)
    except (struct.error, IndexError) as reason:
        raise MalformedMessage(f"the head of a metadata record: {reason}") from None
    return MetadataRecordHead(api_key, version, pos)


def decode_metadata_record(value: Buffer) -> MetadataRecord:
    """Decode a record of the cluster metadata log."""
    head = metadata_record_head(value)
    return _decode_rest(
        cluster_metadata_record(head.api_key), head.version, value, head.body_offset
    )


def decode_remote_log_metadata_record(value: Buffer) -> MetadataRecord:
    """Decode a record of the remote log metadata topic."""
    head = metadata_record_head(value)
    schema = remote_log_metadata_record(head.api_key)
    return _decode_rest(schema, head.version, value, head.body_offset)


def encode_coordinator_key(key: CoordinatorKey) -> bytes:
    """Return the key of a coordinator's record."""
    return _INT16.pack(key.RECORD_TYPE) + key.encode(_KEY_VERSION)


def encode_coordinator_value(value: CoordinatorValue, version: int) -> bytes:
    """Return the value of a coordinator's record."""
    return _INT16.pack(version) + value.encode(version)


def decode_coordinator_record(
    coordinator: Coordinator, key: Buffer, value: Buffer | None
) -> CoordinatorRecord:
    """Decode a record of a coordinator's topic.

    :class:`~dohle.protocol.errors.UnknownRecordType` marks a record of a newer release, which a
    coordinator skips when it loads its state.
    """
    key_schema, value_schema = coordinator_record(coordinator, _read_int16(key, "key"))
    decoded_key = _decode_rest(key_schema, _KEY_VERSION, key, 2)
    if value is None:
        return CoordinatorRecord(decoded_key)
    version = _read_int16(value, "value")
    return CoordinatorRecord(decoded_key, _decode_rest(value_schema, version, value, 2), version)


def _read_int16(data: Buffer, what: str) -> int:
    try:
        number: int = _INT16.unpack_from(data)[0]
    except struct.error:
        raise MalformedMessage(f"the {what} of a coordinator's record is too short") from None
    return number


def _decode_rest(schema: type[T], version: int, data: Buffer, offset: int) -> T:
    message, end = schema.decode(version, data, offset)
    if end != len(data):
        raise MalformedMessage(
            f"{schema.__name__} version {version}: {len(data) - end} trailing bytes"
        )
    return message
