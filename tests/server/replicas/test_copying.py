"""Sharing out what a leader sent, and appending it to a real log (F14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import batches
from dohle.server.replicas import copying
from dohle.server.replicas.copying import append_fetched, in_pieces
from tests.storage.logs import LEADER_EPOCH, Node, batch, log_batches


@given(sizes=st.lists(st.integers(0, 40), max_size=30), cut=st.integers(0, 200))
def test_pieces_are_whole_batches_in_order_and_all_of_them(sizes: list[int], cut: int) -> None:
    sent = b"".join(
        batch(value=bytes(size), base_offset=offset) for offset, size in enumerate(sizes)
    )
    sent = sent[: max(len(sent) - cut, 0)]
    whole = sum(found.size for found in batches(sent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "BATCHES_AT_ONCE", 4)
        found = list(in_pieces(memoryview(sent)))
    assert b"".join(found) == sent[:whole]
    assert all(sum(1 for _ in batches(piece)) <= 4 for piece in found)


def test_f14_an_empty_log_begins_with_the_batch_that_holds_the_leaders_start() -> None:
    log = Node().log
    log.truncate_fully_and_start_at(7)
    sent = batch([1, 2, 3, 4], base_offset=5, leader_epoch=LEADER_EPOCH)
    append_fetched(log, memoryview(sent), LEADER_EPOCH)
    assert (log.log_start_offset, log.log_end_offset) == (7, 9)
    assert [found.base_offset for found in log_batches(log)] == [5]
    following = batch([5], base_offset=9, leader_epoch=LEADER_EPOCH)
    append_fetched(log, memoryview(following), LEADER_EPOCH)
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)


def test_what_is_appended_is_what_was_sent() -> None:
    log = Node().log
    sent = b"".join(
        batch([1, 2], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in ((0, 1), (2, 1), (4, 3))
    )
    append_fetched(log, memoryview(sent), 2)
    assert log.log_end_offset == 4, "a later leader's batch is left out"
    append_fetched(log, memoryview(sent)[-len(sent) // 3 :], 3)
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (6, 3)
