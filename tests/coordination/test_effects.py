"""Putting the effects of two steps together."""

from __future__ import annotations

from dohle.coordination.effects import Effects
from dohle.protocol.messages.records.classic_group import OffsetCommitKey
from dohle.protocol.record_framing import CoordinatorRecord
from tests.coordination.driver import encoded

_RECORD = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=1))


def test_bytes_that_are_not_those_of_all_records_are_forgotten() -> None:
    def effects() -> Effects:
        return Effects([_RECORD], encoded=[encoded(_RECORD)])

    assert effects().and_then(Effects()).encoded == [encoded(_RECORD)]
    assert effects().and_then(Effects([_RECORD])).encoded is None
    assert Effects([_RECORD]).and_then(effects()).encoded is None
