"""Checking and converting batches in one go, where the server takes steps."""

from __future__ import annotations

from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import finish
from dohle.records.batch import RecordBatch
from dohle.records.checking.fast_check import FastCheckedBatch, begin_fast_check
from dohle.records.checking.validation import RecordRules, ValidationRules, validating
from dohle.records.compression.codecs import Codec
from dohle.records.down_conversion import converting_down
from dohle.records.up_conversion import converting_up

PARTITION = TopicPartition(TopicName("records"), 3)


def fast_check(
    view: memoryview, rules: ValidationRules, now_ms: int, *, is_transactional: bool = False
) -> FastCheckedBatch | None:
    """Return the batch if it needs no other check."""
    check = begin_fast_check(view, rules, now_ms, is_transactional=is_transactional)
    return check if check is None or isinstance(check, FastCheckedBatch) else finish(check)


def validate_batch(batch: RecordBatch, rules: ValidationRules, now_ms: int) -> RecordBatch:
    """Return the batch to append."""
    return finish(validating(batch, rules, now_ms, PARTITION))


def to_v2(
    message_set: memoryview | bytes,
    *,
    codec: Codec | None = None,
    rules: ValidationRules | None = None,
    now_ms: int = 0,
) -> bytearray:
    """Return the batch that an old producer's messages become."""
    of_each = None if rules is None else RecordRules(rules, now_ms, PARTITION)
    return finish(converting_up(message_set, codec=codec, rules=of_each))


def down_convert(
    records: memoryview | bytes | bytearray,
    to_magic: int,
    *,
    first_offset: int,
    max_bytes: int | None = None,
) -> bytes:
    """Return what an old consumer gets."""
    steps = converting_down(records, to_magic, first_offset=first_offset, max_bytes=max_bytes)
    return finish(steps)
