"""Arrays of very many strings are encoded at once, to the bytes that one by one gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import GroupId, TopicName
from dohle.core.steps import finish
from dohle.protocol.codec.unsigned_varint import prepare_strings
from dohle.protocol.errors import UnencodableMessage
from dohle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

VERSION = 1
LONGEST_SHORT = 126


def request(names: list[str]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GroupId("g"), subscribed_topic_names=tuple(map(TopicName, names))
    )


#: Long enough for all to be taken at once, should the others allow that.
SHORT = st.lists(st.text("abc", max_size=3), min_size=70, max_size=90)
OTHER = st.sampled_from(["ü", "x" * LONGEST_SHORT, "x" * (LONGEST_SHORT + 1), "\x00", "\x7f", "𝛼"])


@given(SHORT, st.lists(OTHER, max_size=2))
def test_they_are_those_that_a_slow_encoder_writes(names: list[str], others: list[str]) -> None:
    message = request([*others, *names])
    encoded = message.encode(VERSION)
    assert encoded == b"".join(finish(message.encode_chunks_in_steps(VERSION)))
    decoded, end = ConsumerGroupHeartbeatRequest.decode(VERSION, encoded)
    assert decoded == message
    assert end == len(encoded)


@given(SHORT, st.lists(OTHER, max_size=2))
def test_they_may_be_encoded_ahead(names: list[str], others: list[str]) -> None:
    message = request([*names, *others])
    ahead = finish(prepare_strings([*names, *others]))
    assert message.replace(subscribed_topic_names=ahead).encode(VERSION) == message.encode(VERSION)


@pytest.mark.parametrize("wrong", [None, b"bytes", 7])
def test_one_that_is_no_string_is_refused(wrong: object) -> None:
    message = request(["a"] * 100)
    spoilt = message.replace(subscribed_topic_names=(*["a"] * 100, wrong))
    with pytest.raises(UnencodableMessage):
        spoilt.encode(VERSION)
