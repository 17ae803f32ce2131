"""Putting the effects of two steps together."""

from __future__ import annotations

import pytest

from dohle.coordination.effects import Effects, PreparedBatch
from dohle.protocol.messages.records.classic_group import OffsetCommitKey
from dohle.protocol.record_framing import CoordinatorRecord
from dohle.records.builder import BatchBuilder

_RECORD = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=1))


def prepared() -> Effects:
    return Effects(prepared=[PreparedBatch(BatchBuilder(), lambda: None)])


def test_a_prepared_batch_counts_as_records() -> None:
    assert prepared().has_records
    assert Effects([_RECORD]).has_records
    assert not Effects().has_records


@pytest.mark.parametrize("other", [Effects(), Effects([_RECORD]), prepared()])
def test_nothing_is_written_together_with_a_prepared_batch(other: Effects) -> None:
    with pytest.raises(ValueError, match="by itself"):
        prepared().and_then(other)
    with pytest.raises(ValueError, match="by itself"):
        other.and_then(prepared())
