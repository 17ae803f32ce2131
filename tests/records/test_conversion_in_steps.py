"""Converting in steps, from pieces: the same as with all messages in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import KafkaError
from dohle.records.batch import Codec, RecordBatch, batches
from dohle.records.builder import BatchBuilder
from dohle.records.errors import InvalidRecord
from dohle.records.legacy import LegacyBatch
from tests.records.checking.in_one_go import down_convert, to_v2
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

messages = st.lists(
    st.builds(
        Message,
        st.integers(-1, 1 << 40),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=200),
    ),
    min_size=1,
    max_size=20,
)


def converted_at_once(message_set: bytes) -> bytes:
    """What becomes of a sound message set, with all its messages in memory."""
    entries = [entry for entry in batches(message_set) if isinstance(entry, LegacyBatch)]
    if not entries or len({entry.magic for entry in entries}) > 1:
        raise InvalidRecord("the set is empty, or of several formats")
    codecs = {entry.compression for entry in entries}
    if codecs != {Codec.NONE} and len(entries) > 1:
        raise InvalidRecord("a compressed message is not the only one")
    builder = BatchBuilder(codec=codecs.pop())
    for entry in entries:
        entry.ensure_valid()
        for message in entry.messages():
            message.ensure_valid()
            if message.magic != entry.magic or (message is not entry and message.compression):
                raise InvalidRecord("a message that may not be inside this one")
            (record,) = message
            builder.append(record.timestamp, record.key, record.value)
    return bytes(builder.build())


@settings(max_examples=300)
@given(
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(OLD_CODECS),
    sent=messages,
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=1),
    cut=st.sampled_from([0, 0, 0, 1, 5]),
)
def test_a_message_set_is_converted_or_refused_as_if_all_of_it_were_in_memory(
    magic: int, codec: Codec, sent: list[Message], damage: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(build_message_set(magic, sent, codec=codec))
    for place, byte in damage:
        data[place % len(data)] = byte
    old = bytes(data[: len(data) - cut])
    try:
        expected = converted_at_once(old)
    except KafkaError:
        with pytest.raises(KafkaError):
            to_v2(old)
    else:
        assert to_v2(old) == expected


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_many_messages_are_converted_up_and_down_again(magic: int, codec: Codec) -> None:
    sent = [
        Message(-1 if magic == 0 else NOW_MS + number, b"%d" % number, b"v" * (number % 50))
        for number in range(20_000)
    ]
    up = RecordBatch(memoryview(to_v2(build_message_set(magic, sent, codec=codec))))
    assert [(one.timestamp, one.key, one.value) for one in up] == sent
    assert [one.offset for one in up] == list(range(20_000))
    down = [
        record
        for batch in batches(down_convert(up.buffer, magic, first_offset=0))
        for record in batch
    ]
    assert [(one.timestamp, one.key, one.value) for one in down] == sent
    assert [one.offset for one in down] == list(range(20_000))


def test_a_record_of_many_pieces_is_converted() -> None:
    value = bytes(range(256)) * 8_000
    old = build_message_set(1, [Message(NOW_MS, b"k", value)] * 2, codec=Codec.GZIP)
    up = RecordBatch(memoryview(to_v2(old)))
    assert [one.value for one in up] == [value] * 2
    assert [
        record.value
        for batch in batches(down_convert(up.buffer, 0, first_offset=0))
        for record in batch
    ] == [value] * 2
