"""Messages as Python values: made by keyword, compared by value, shown briefly."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from dohle.core.ids import GroupId, TopicName
from dohle.protocol.messages.fetch import FetchResponse, PartitionData
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.records.classic_group import OffsetCommitKey
from dohle.protocol.schema import VersionRange, version_range


def test_every_field_has_a_default() -> None:
    request = HeartbeatRequest()
    assert (request.group_id, request.generation_id, request.group_instance_id) == ("", 0, None)
    assert request.unknown_tags == ()


def test_messages_are_equal_by_value_and_class() -> None:
    assert HeartbeatRequest(member_id="m") == HeartbeatRequest(member_id="m")
    assert HeartbeatRequest(member_id="m") != HeartbeatRequest(member_id="n")
    assert HeartbeatRequest() != HeartbeatRequest(unknown_tags=((1, b""),))
    assert HeartbeatRequest() != HeartbeatResponse()
    assert HeartbeatRequest() != "HeartbeatRequest()"


def test_records_compare_by_their_bytes() -> None:
    assert PartitionData(records=b"abc") == PartitionData(records=memoryview(b"abc"))


def test_a_message_can_be_the_key_of_a_dictionary() -> None:
    key = OffsetCommitKey(group=GroupId("g"), topic=TopicName("t"), partition=1)
    again = OffsetCommitKey(group=GroupId("g"), topic=TopicName("t"), partition=1)
    assert {key: 1}[again] == 1


def test_a_field_that_does_not_exist_is_refused() -> None:
    cls: Any = HeartbeatRequest
    with pytest.raises(TypeError, match="nonsense"):
        cls(nonsense=1)
    with pytest.raises(TypeError, match="positional"):
        cls("group")
    with pytest.raises(AttributeError, match="nonsense"):
        cls().nonsense = 1


def test_repr_shows_what_is_not_default() -> None:
    assert repr(HeartbeatRequest(member_id="m")) == "HeartbeatRequest(member_id='m')"
    tagged = HeartbeatRequest(unknown_tags=((1, b"x"),))
    assert repr(tagged) == "HeartbeatRequest(unknown_tags=((1, b'x'),))"
    assert eval(repr(tagged)) == tagged


def test_replace_makes_a_changed_copy() -> None:
    request = HeartbeatRequest(member_id="m", unknown_tags=((1, b"x"),))
    changed = request.replace(generation_id=3)
    assert changed == HeartbeatRequest(member_id="m", generation_id=3, unknown_tags=((1, b"x"),))
    assert request.generation_id == 0


def test_messages_can_be_copied_and_pickled() -> None:
    request = HeartbeatRequest(member_id="m")
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_default_structs_are_shared() -> None:
    assert PartitionData().diverging_epoch is PartitionData().diverging_epoch
    decoded = FetchResponse.from_bytes(12, FetchResponse().encode(12))
    assert decoded == FetchResponse()


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("0+", VersionRange(0, 32767)),
        ("3+", VersionRange(3, 32767)),
        ("1-4", VersionRange(1, 4)),
        ("2", VersionRange(2, 2)),
        ("none", VersionRange(0, -1)),
    ],
)
def test_version_ranges_read_and_show_themselves(text: str, versions: VersionRange) -> None:
    assert version_range(text) == versions
    assert str(versions) == text
    assert versions.covers(versions.lowest) is (text != "none")
    assert not versions.covers(-1)
