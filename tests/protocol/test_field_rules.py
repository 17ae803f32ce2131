"""What a field's declaration means: versions, null, defaults, tags, and what may get lost."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from dohle.protocol.fields import array, int32, string, struct, uuid
from dohle.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from dohle.protocol.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from dohle.protocol.messages.header import RequestHeader
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.protocol.messages.records.consumer_group import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from dohle.protocol.schema import Data, Struct


class Inner(Struct):
    number: int = int32("0+", default=7)


class Sample(Data, versions="0-3", flexible="2+"):
    plain: int = int32("0+")
    early: str = string("0-1")
    late: str | None = string("1+", nullable="2+", default="x")
    optional: int = int32("3+", default=-1, ignorable=True)
    inner: Inner = struct(Inner, "2+", tag=4)
    maybe: Inner | None = struct(Inner, "2+", nullable=True, default=None)
    ids: tuple[Uuid, ...] = array(uuid, "2+", tag=9)


def test_a_field_stands_only_in_its_versions() -> None:
    assert Sample(plain=1, early="e").encode(0) == b"\0\0\0\1\0\1e"
    assert Sample(plain=1, early="e").encode(1) == b"\0\0\0\1\0\1e\0\1x"
    assert Sample(plain=1).encode(2) == b"\0\0\0\1\2x\xff\0"
    assert Sample(plain=1, optional=2).encode(3) == b"\0\0\0\1\2x\0\0\0\2\xff\0"


def test_an_absent_field_is_decoded_as_its_default() -> None:
    decoded = Sample.from_bytes(0, b"\0\0\0\1\0\1e")
    assert decoded == Sample(plain=1, early="e")
    assert (decoded.late, decoded.optional, decoded.inner) == ("x", -1, Inner())


@pytest.mark.parametrize(
    ("values", "version"),
    [
        ({"early": "e"}, 2),
        ({"late": "y"}, 0),
        ({"late": None}, 0),
        ({"inner": Inner(number=8)}, 1),
        ({"maybe": Inner()}, 1),
        ({"ids": (Uuid(bytes(16)),)}, 1),
        ({"unknown_tags": ((1, b""),)}, 1),
    ],
)
def test_a_value_that_a_version_cannot_carry_is_refused(
    values: dict[str, Any], version: int
) -> None:
    with pytest.raises(UnsupportedVersion, match="Sample"):
        Sample(**values).encode(version)


def test_the_error_names_the_field_and_its_versions() -> None:
    with pytest.raises(
        UnsupportedVersion, match=r"Sample\.early exists in versions 0-1: version 2"
    ):
        Sample(early="e").encode(2)


def test_an_ignorable_field_is_dropped() -> None:
    assert Sample(optional=5).encode(2) == Sample().encode(2)
    request = HeartbeatRequest(group_id=GroupId("g"), group_instance_id="i")
    with pytest.raises(UnsupportedVersion):
        request.encode(2)
    assert FetchRequest(rack_id="r", max_bytes=5).encode(2) == FetchRequest().encode(2)


def test_rules_hold_in_nested_structs_too() -> None:
    topic = FetchTopic(topic=TopicName("t"), topic_id=Uuid(bytes(15) + b"\1"))
    decoded = FetchRequest.from_bytes(4, FetchRequest(topics=(topic,)).encode(4))
    assert decoded.topics == (FetchTopic(topic=TopicName("t")),)
    tagged = MetadataRequest(topics=(MetadataRequestTopic(unknown_tags=((1, b"x"),)),))
    with pytest.raises(UnsupportedVersion, match="MetadataRequestTopic"):
        tagged.encode(8)
    assert MetadataRequest.from_bytes(9, tagged.encode(9)) == tagged


def test_null_is_for_versions_that_allow_it() -> None:
    assert Sample(late=None).encode(2) == b"\0\0\0\0\0\xff\0"
    assert Sample.from_bytes(2, b"\0\0\0\0\0\xff\0").late is None
    with pytest.raises(UnencodableMessage, match="null"):
        Sample(late=None).encode(1)
    with pytest.raises(MalformedMessage, match="null"):
        Sample.from_bytes(1, b"\0\0\0\0\0\0\xff\xff")
    assert MetadataRequest.from_bytes(1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(MalformedMessage, match="null"):
        MetadataRequest.from_bytes(0, b"\xff\xff\xff\xff")


def test_a_nullable_struct_has_a_marker() -> None:
    present = Sample(maybe=Inner(number=1))
    assert present.encode(2) == b"\0\0\0\0\2x\1\0\0\0\1\0\0"
    assert Sample.from_bytes(2, present.encode(2)) == present
    response = ConsumerGroupHeartbeatResponse(assignment=None)
    assert response.encode(0).endswith(b"\xff\0")
    response = ConsumerGroupHeartbeatResponse(assignment=Assignment())
    assert response.encode(0).endswith(b"\1\1\0\0")


def test_a_tagged_field_is_written_only_if_it_is_not_the_default() -> None:
    head = b"\0\0\0\0\2x\xff"
    assert Sample(inner=Inner(number=7)).encode(2) == head + b"\0"
    assert Sample(inner=Inner(number=8)).encode(2) == head + b"\1\4\5\0\0\0\x08\0"
    with_ids = Sample(inner=Inner(number=8), ids=(Uuid(bytes(16)),))
    assert with_ids.encode(2) == head + b"\2\4\5\0\0\0\x08\0\x09\x11\2" + bytes(16)
    assert Sample.from_bytes(2, with_ids.encode(2)) == with_ids
    request = FetchRequest(replica_state=ReplicaState(replica_epoch=3))
    assert FetchRequest.from_bytes(15, request.encode(15)) == request


def test_a_tagged_struct_that_may_be_null_carries_its_marker() -> None:
    """As Kafka reads its own schema, the default is the empty struct, so null is written out.

    Outside of tags the marker is an int8, -1 for null; here it is an unsigned varint.
    """
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert null.encode(0).endswith(b"\1\0\1\0")
    assert ConsumerGroupMemberMetadataValue.from_bytes(0, null.encode(0)) == null
    metadata = ClassicMemberMetadata(session_timeout_ms=5)
    full = ConsumerGroupMemberMetadataValue(classic_member_metadata=metadata)
    assert full.encode(0).endswith(b"\1\0\7\1\0\0\0\5\1\0")
    assert ConsumerGroupMemberMetadataValue.from_bytes(0, full.encode(0)) == full


def test_unknown_tags_are_kept_and_written_back_in_order() -> None:
    head = b"\0\0\0\0\2x\xff"
    encoded = head + b"\3\1\1a\4\5\0\0\0\x08\0\x83\1\2bc"
    decoded = Sample.from_bytes(2, encoded)
    assert decoded == Sample(inner=Inner(number=8), unknown_tags=((1, b"a"), (131, b"bc")))
    assert decoded.encode(2) == encoded
    shuffled = decoded.replace(unknown_tags=((131, b"bc"), (1, b"a")))
    assert shuffled.encode(2) == encoded


def test_the_tags_of_a_later_version_are_unknown_to_an_earlier_one() -> None:
    later = FetchRequest(replica_state=ReplicaState(replica_epoch=3)).encode(15)
    section = later[-16:]  # one tag of thirteen bytes
    earlier = FetchRequest.from_bytes(14, FetchRequest().encode(14)[:-1] + section)
    assert earlier == FetchRequest(unknown_tags=((1, section[3:]),))
    assert earlier.encode(14).endswith(section)


def test_the_client_id_keeps_its_old_length_in_every_header() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, client_id="me")
    assert header.encode(1) == b"\0\x12\0\3\0\0\0\0\0\2me"
    assert header.encode(2) == b"\0\x12\0\3\0\0\0\0\0\2me\0"
    assert header.replace(client_id=None).encode(2) == b"\0\x12\0\3\0\0\0\0\xff\xff\0"
    assert header.encode(0) == b"\0\x12\0\3\0\0\0\0"


def test_an_equal_default_struct_is_a_default_though_not_the_same_object() -> None:
    assert FetchRequest(replica_state=ReplicaState()).encode(15) == FetchRequest().encode(15)
    assert Sample(inner=Inner()).encode(1) == Sample().encode(1)
