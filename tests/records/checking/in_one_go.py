"""Checking a batch in one go, where the server takes steps."""

from __future__ import annotations

from dohle.core.steps import finish
from dohle.records.batch import RecordBatch
from dohle.records.checking.fast_check import FastCheckedBatch, begin_fast_check
from dohle.records.checking.validation import ValidationRules, validating


def fast_check(
    view: memoryview, rules: ValidationRules, now_ms: int, *, is_transactional: bool = False
) -> FastCheckedBatch | None:
    """Return the batch if it needs no other check."""
    check = begin_fast_check(view, rules, now_ms, is_transactional=is_transactional)
    return check if check is None or isinstance(check, FastCheckedBatch) else finish(check)


def validate_batch(batch: RecordBatch, rules: ValidationRules, now_ms: int) -> RecordBatch:
    """Return the batch to append."""
    return finish(validating(batch, rules, now_ms))
