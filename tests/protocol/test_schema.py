"""Messages as Python values: made by keyword, compared by value, shown briefly."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from dohle.core.ids import GroupId, TopicName
from dohle.protocol.fields import int32
from dohle.protocol.messages.fetch import FetchResponse, PartitionData
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.records.classic_group import OffsetCommitKey, OffsetCommitValue
from dohle.protocol.messages.records.cluster_metadata import TopicRecord
from dohle.protocol.schema import Data, Message, Request, Struct, VersionRange, version_range


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


def test_an_instance_of_a_base_changes_nothing_for_its_subclasses() -> None:
    class Base(Data, versions="0"):
        """As bare as the bases of the schema language."""

    class Late(Base, versions="0"):
        number: int = int32("0+", default=7)

    bases: tuple[Any, ...] = (Struct, Message, Request, Data, Base)
    for bare in bases:
        assert bare() == bare()
        with pytest.raises(TypeError, match="number"):
            bare(number=1)
    assert Late() == Late(number=7)
    assert Late(number=8).number == 8


def test_keys_and_record_types_are_those_of_the_declaration() -> None:
    assert (HeartbeatRequest.API_KEY, HeartbeatResponse.API_KEY) == (12, 12)
    assert VersionRange(0, 4) == HeartbeatRequest.VERSIONS
    assert VersionRange(4, 32767) == HeartbeatRequest.FLEXIBLE
    assert (TopicRecord.API_KEY, OffsetCommitKey.RECORD_TYPE) == (2, 1)
    assert OffsetCommitValue.RECORD_TYPE == 1


_FIRST_USES = """
import sys, threading
from dohle.protocol import fields
from dohle.protocol.schema import Data

def message(element):
    class Arrays(Data, versions="0", flexible="0+"):
        locals().update((f"array_{n}", fields.array(element, "0+")) for n in range(40))
    return Arrays()

KINDS = "uuid boolean int8 int16 int32 int64 uint16 uint32 float64"
MESSAGES = [message(getattr(fields, kind)) for kind in KINDS.split()]
start, failures = threading.Barrier(8), []

def use():
    for message in MESSAGES:
        cls, version = type(message), message.VERSIONS.highest
        try:
            start.wait()
            data = message.encode(version)
            start.wait()
            assert cls.from_bytes(version, data) == message
        except Exception as failure:
            failures.append(repr(failure))

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("; ".join(failures) or 0)
"""


def test_threads_may_use_a_message_for_the_first_time_at_once() -> None:
    # Whatever is made on first use must not have been made, so it takes a new process.
    run = subprocess.run([sys.executable, "-c", _FIRST_USES], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


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
