"""Records whose keys and values are protocol messages, decoded by name with all their fields.

A record of an unknown type or version was written by a newer release: it is shown as
:class:`Undecoded`. Bytes that do not match their head raise UndecodableRecord. Field names are
Kafka's. A field is left out if its version lacks it, and if it is tagged and has its default, which
is not written either.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from dohle.cli.dump.items import DecoderName
from dohle.cli.values import DecodedMessage, Json, Undecoded, bytes_to_json
from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.static import base_name
from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_to_text
from dohle.protocol.apis import Coordinator, load_message
from dohle.protocol.errors import MalformedMessage, UnsupportedVersion
from dohle.protocol.messages.records.classic_group import GroupMetadataValue, MemberMetadata
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    UserScramCredentialRecord,
)
from dohle.protocol.record_framing import (
    decode_coordinator_record,
    decode_metadata_record,
    decode_remote_log_metadata_record,
    metadata_record_head,
)
from dohle.protocol.schema import Field, Message, MetadataRecord, Struct
from dohle.records.control import ControlRecordType, decode_control_key, parse_txn_marker
from dohle.records.errors import InvalidRecord
from dohle.records.record import Record

Shown = DecodedMessage | Undecoded | bytes | None

#: In place of what nobody should see.
_HIDDEN = "(hidden)"
#: The type of resource that brokers are.
_BROKER = 4
_INT16 = struct.Struct(">h")
_TOPICS = {
    "__cluster_metadata": DecoderName.CLUSTER_METADATA,
    "__consumer_offsets": DecoderName.OFFSETS,
    "__transaction_state": DecoderName.TRANSACTION_LOG,
    "__share_group_state": DecoderName.SHARE_GROUP_STATE,
    "__remote_log_metadata": DecoderName.REMOTE_LOG_METADATA,
}
_COORDINATORS = {
    DecoderName.OFFSETS: Coordinator.GROUP,
    DecoderName.TRANSACTION_LOG: Coordinator.TRANSACTION,
    DecoderName.SHARE_GROUP_STATE: Coordinator.SHARE,
}
_QUORUM_MESSAGES = {
    ControlRecordType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlRecordType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlRecordType.KRAFT_VOTERS: "VotersRecord",
}
#: Members of classic groups have embedded messages, if they are consumers.
_CONSUMER_PROTOCOL = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}


class UndecodableRecord(Exception):
    """A key or value that is not the message it claims to be."""


def decoder_of_topic(topic: str) -> DecoderName | None:
    """Return the decoder for the records of a topic; None for ordinary topics."""
    return _TOPICS.get(topic)


def decode_record(decoder: DecoderName, record: Record) -> tuple[Shown, Shown]:
    """Return the key and the value of a record as messages."""
    coordinator = _COORDINATORS.get(decoder)
    if coordinator is not None:
        return _decode_coordinator_record(coordinator, record)
    decode = decode_metadata_record
    if decoder is DecoderName.REMOTE_LOG_METADATA:
        decode = decode_remote_log_metadata_record
    return record.key, _decode_metadata_record(record.value, decode)


def _decode_metadata_record(
    value: bytes | None, decode: Callable[[bytes], MetadataRecord]
) -> Shown:
    if value is None:
        raise UndecodableRecord("a metadata record has no value")
    try:
        version = metadata_record_head(value).version
        message = decode(value)
    except UnsupportedVersion as error:
        return Undecoded(value, error.args[0])
    except MalformedMessage as error:
        raise UndecodableRecord(str(error)) from None
    shown = message_to_json(message, version)
    return DecodedMessage(type(message).__name__, version, {**shown, **_hidden(message)})


def _hidden(record: MetadataRecord) -> dict[str, Json]:
    """Return what takes the place of keys of users, and of configs that are or may be passwords."""
    if isinstance(record, UserScramCredentialRecord):
        return dict.fromkeys(("salt", "storedKey", "serverKey"), _HIDDEN)
    if isinstance(record, ConfigRecord):
        key = BROKER_CONFIGS.get(base_name(record.name))
        # DescribeConfigs does not show what it does not know of a broker, either.
        if record.resource_type == _BROKER if key is None else key.is_sensitive:
            return {"value": _HIDDEN}
    return {}


def _decode_coordinator_record(coordinator: Coordinator, record: Record) -> tuple[Shown, Shown]:
    if record.key is None:
        raise UndecodableRecord(f"a record of the {coordinator} coordinator has no key")
    try:
        # The key separately, since its type may be known even if the value's version is not.
        key = decode_coordinator_record(coordinator, record.key, None).key
    except UnsupportedVersion as error:
        return Undecoded(record.key, error.args[0]), record.value
    except MalformedMessage as error:
        raise UndecodableRecord(str(error)) from None
    shown_key = DecodedMessage(type(key).__name__, None, message_to_json(key, 0))
    if record.value is None:
        return shown_key, None
    try:
        found = decode_coordinator_record(coordinator, record.key, record.value)
    except UnsupportedVersion as error:
        return shown_key, Undecoded(record.value, error.args[0])
    except MalformedMessage as error:
        raise UndecodableRecord(str(error)) from None
    assert found.value is not None
    assert found.value_version is not None
    data = message_to_json(found.value, found.value_version)
    if isinstance(found.value, GroupMetadataValue) and found.value.protocol_type == "consumer":
        data["members"] = [
            _member_to_json(member, found.value_version) for member in found.value.members
        ]
    return shown_key, DecodedMessage(type(found.value).__name__, found.value_version, data)


def _member_to_json(member: MemberMetadata, version: int) -> dict[str, Json]:
    """Return a member of a consumer group, with its subscription and assignment decoded."""
    shown = message_to_json(member, version)
    for name, message in _CONSUMER_PROTOCOL.items():
        raw = getattr(member, name)
        if len(raw) >= _INT16.size:
            shown[name] = _decode_embedded(message, raw) or shown[name]
    return shown


def _decode_embedded(name: str, raw: bytes) -> dict[str, Json] | None:
    schema = load_message(name)
    # Later versions only append fields, so the known ones can be read.
    version = min(_INT16.unpack_from(raw)[0], schema.VERSIONS.highest)
    try:
        message, _ = schema.decode(version, raw, _INT16.size)
    except (MalformedMessage, UnsupportedVersion):
        return None
    return {"name": name, "version": version, "data": message_to_json(message, version)}


def decode_control_record(record: Record) -> tuple[str, Shown]:
    """Return the type of a control record and its content."""
    try:
        type = decode_control_key(record.key)
        if type in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            epoch = parse_txn_marker(record).coordinator_epoch
            return type.name, DecodedMessage("EndTxnMarker", None, {"coordinatorEpoch": epoch})
    except InvalidRecord as error:
        raise UndecodableRecord(error.args[0]) from None
    if type is ControlRecordType.UNKNOWN:
        assert record.key is not None
        (number,) = _INT16.unpack_from(record.key, _INT16.size)
        return f"UNKNOWN({number})", record.value
    return type.name, _decode_quorum_message(_QUORUM_MESSAGES[type], record.value)


def _decode_quorum_message(name: str, value: bytes | None) -> Shown:
    if value is None or len(value) < _INT16.size:
        raise UndecodableRecord(f"a {name} has {0 if value is None else len(value)} bytes")
    # The message's first field is its own version.
    (version,) = _INT16.unpack_from(value)
    try:
        message = load_message(name).from_bytes(version, value)
    except UnsupportedVersion as error:
        return Undecoded(value, error.args[0])
    except MalformedMessage as error:
        raise UndecodableRecord(str(error)) from None
    return DecodedMessage(name, version, message_to_json(message, version))


def message_to_json(message: Struct | Message, version: int) -> dict[str, Json]:
    """Return the fields that a message has in a version, under Kafka's names."""
    shown: dict[str, Json] = {}
    for name, field in message.FIELDS.items():
        value = getattr(message, name)
        if not field.versions.covers(version):
            continue
        if field.tag is not None and value == field.default_value:
            continue
        shown[_kafka_name(name)] = _field_to_json(field, value, version)
    if message.unknown_tags:
        shown["unknownTags"] = {
            str(tag): bytes_to_json(bytes(data)) for tag, data in message.unknown_tags
        }
    return shown


def _field_to_json(field: Field, value: object, version: int) -> Json:
    kind = field.kind
    if kind == "array" and value is not None:
        assert isinstance(value, tuple)
        element = field.element if isinstance(field.element, str) else "struct"
        return [_scalar_to_json(element, item, version) for item in value]
    return _scalar_to_json(kind, value, version)


def _scalar_to_json(kind: str, value: object, version: int) -> Json:
    match value:
        case Struct():
            return message_to_json(value, version)
        case bytes() if kind == "uuid":
            return uuid_to_text(Uuid(value))
        case bytes() | memoryview():
            return bytes_to_json(bytes(value))
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"a field of kind {kind} is {value!r}")


def _kafka_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
