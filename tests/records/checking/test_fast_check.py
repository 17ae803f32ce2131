"""A plain batch is one that validation takes as it is."""

from __future__ import annotations

import struct
from dataclasses import replace

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import ProducerId
from dohle.records.builder import BatchBuilder
from dohle.records.checking.fast_check import allows_fast_check
from dohle.records.checking.validation import ValidationRules, produced_batch
from dohle.records.compression.codecs import Codec
from tests.records.checking.in_one_go import fast_check, validate_batch

NOW_MS = 1_700_000_000_000
RULES = ValidationRules()


def built(
    *sizes: int,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
    key: bytes | None = None,
) -> bytearray:
    builder = BatchBuilder(
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    for size in sizes:
        builder.append(NOW_MS, key, bytes(size))
    return builder.build()


@pytest.mark.parametrize("sizes", [(0,), (10, 10, 700), (600,) * 20, (100,) * 200])
def test_a_good_batch_is_plain(sizes: tuple[int, ...]) -> None:
    view = memoryview(built(*sizes, producer_id=7, sequence=3))
    plain = fast_check(view, RULES, NOW_MS)
    assert plain == (view, len(sizes) - 1, NOW_MS, 7, 0, 3, False)


@pytest.mark.parametrize("codec", Codec)
def test_a_compressed_batch_is_plain_where_the_producer_chooses_the_codec(codec: Codec) -> None:
    view = memoryview(built(*(100,) * 30, producer_id=7, sequence=3, codec=codec))
    assert fast_check(view, RULES, NOW_MS) == (view, 29, NOW_MS, 7, 0, 3, False)
    uncompressed = replace(RULES, codec=Codec.NONE)
    assert (fast_check(view, uncompressed, NOW_MS) is None) is (codec is not Codec.NONE)
    small = replace(RULES, decompressed_bytes_max=1_000)
    assert (fast_check(view, small, NOW_MS) is None) is (codec is not Codec.NONE)


def test_a_batch_is_plain_for_who_expects_it_to_belong_to_a_transaction_or_not() -> None:
    for is_transactional in (False, True):
        view = memoryview(built(10, producer_id=7, sequence=3, is_transactional=is_transactional))
        plain = fast_check(view, RULES, NOW_MS, is_transactional=is_transactional)
        assert plain == (view, 0, NOW_MS, 7, 0, 3, is_transactional)
        assert fast_check(view, RULES, NOW_MS, is_transactional=not is_transactional) is None


def test_memory_that_cannot_be_written_is_left_to_the_general_way() -> None:
    assert fast_check(memoryview(bytes(built(1))), RULES, NOW_MS) is None


def test_a_batch_is_plain_up_to_the_largest_size_and_timestamp() -> None:
    view = memoryview(built(10))
    for size, offset_ms, taken in ((0, 0, True), (-1, 0, False), (0, -1, False)):
        rules = replace(RULES, max_message_bytes=len(view) + size)
        now_ms = NOW_MS - rules.timestamp_after_max_ms + offset_ms
        assert (fast_check(view, rules, now_ms) is not None) is taken
    rules = replace(RULES, timestamp_before_max_ms=500)
    assert fast_check(view, rules, NOW_MS + 500) is not None
    assert fast_check(view, rules, NOW_MS + 501) is None


def test_no_records_are_left_to_the_general_way_whatever_their_times() -> None:
    empty = built(0)[:61]
    struct.pack_into(">i", empty, 8, 61 - 12)
    struct.pack_into(">iqq", empty, 23, -1, 2**63 - 1, -1)
    struct.pack_into(">i", empty, 57, 0)
    empty[17:21] = crc32c.crc32c(memoryview(empty)[21:]).to_bytes(4, "big")
    rules = replace(RULES, timestamp_before_max_ms=2**63 - 1)
    assert fast_check(memoryview(empty), rules, NOW_MS) is None


def test_a_producer_without_a_sequence_is_left_to_the_general_way() -> None:
    numbered = built(1, producer_id=7, sequence=0)
    struct.pack_into(">i", numbered, 53, -1)
    numbered[17:21] = crc32c.crc32c(memoryview(numbered)[21:]).to_bytes(4, "big")
    assert fast_check(memoryview(numbered), RULES, NOW_MS) is None


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (RULES, True),
        (replace(RULES, codec=Codec.NONE), True),
        (replace(RULES, codec=Codec.ZSTD), False),
        (replace(RULES, compacted=True), True),
        (replace(RULES, log_append_time=True), False),
    ],
)
def test_rules_that_ask_for_more_know_no_plain_batch(rules: ValidationRules, taken: bool) -> None:
    assert allows_fast_check(rules) is taken


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_knows_plain_batches_whose_records_all_have_keys(codec: Codec) -> None:
    rules = replace(RULES, compacted=True)
    for keyless in (None, 0, 3, 29):
        builder = BatchBuilder(codec=codec)
        for number in range(30):
            builder.append(NOW_MS, None if number == keyless else b"%d" % number, b"v")
        is_plain = fast_check(memoryview(builder.build()), rules, NOW_MS) is not None
        assert is_plain is (keyless is None)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=500)
def test_what_is_plain_is_accepted_and_not_changed(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 60, 70]), min_size=1, max_size=6))
    key = data.draw(st.none() | st.just(b"k"))
    changed = built(*sizes, codec=data.draw(st.sampled_from(Codec)), key=key)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    if data.draw(st.booleans()):
        changed[17:21] = crc32c.crc32c(memoryview(changed)[21:]).to_bytes(4, "big")
    view = memoryview(changed)
    before = bytes(view)
    rules = replace(RULES, compacted=data.draw(st.booleans()))
    if fast_check(view, rules, NOW_MS) is not None:
        batch = produced_batch(view, 9)
        assert validate_batch(batch, rules, NOW_MS) is batch
        batch.ensure_valid()
        assert batch.size == len(view)
    assert bytes(view) == before
