from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.storage.producers.entry import BatchMetadata
from tests.storage.producers.producer_partition import (
    CLIENT,
    COORDINATOR,
    NOW_MS,
    PID,
    RAFT_LEADER,
    REPLICATION,
    Partition,
    data,
    marker,
    plain,
)

SEQUENCE_MAX = 2**31 - 1


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(str(tmp_path))


# Sequences and epochs


def test_batches_without_a_producer_only_move_the_end(partition: Partition) -> None:
    partition.append(plain(0, 5))
    partition.append(plain(5), plain(6, 4), origin=REPLICATION)
    assert partition.state.is_empty
    assert partition.state.map_end_offset == 10


def test_no_batches_change_nothing(partition: Partition) -> None:
    partition.state.map_end_offset = 7
    partition.state.commit(partition.state.validate((), REPLICATION))
    assert partition.state.map_end_offset == 7


def test_an_append_is_remembered(partition: Partition) -> None:
    partition.append(data(10, 0, 5, epoch=2, timestamp=NOW_MS + 1))
    assert partition.entry() == (PID, 2, -1, NOW_MS + 1, -1, ((4, 14, 4, NOW_MS + 1),))
    assert partition.entry().last_data_offset == 14
    assert partition.entry().last_sequence == 4
    assert partition.entry().last_offset_delta == 4
    assert not partition.state.is_empty
    assert partition.state.map_end_offset == 15


def test_nothing_is_remembered_of_a_plan_that_is_not_committed(partition: Partition) -> None:
    plan = partition.state.validate((data(0, 0),), CLIENT)
    assert plan.next_offset == 1
    assert partition.state.is_empty
    assert partition.state.map_end_offset == 0


def test_only_the_last_five_batches_are_remembered(partition: Partition) -> None:
    for number in range(7):
        partition.append(data(number, number))
    assert [batch.last_sequence for batch in partition.entry().batches] == [2, 3, 4, 5, 6]


def test_a_gap_in_the_sequence_is_refused(partition: Partition) -> None:
    partition.append(data(0, 0, 3))
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(3, 4))
    partition.append(data(3, 3))


def test_an_overlap_with_known_sequences_is_refused(partition: Partition) -> None:
    partition.append(data(0, 0, 3))
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(3, 2, 3))
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(3, 0, 2))


def test_an_unknown_producer_may_start_anywhere(partition: Partition) -> None:
    partition.append(data(0, 4711, 2, epoch=5))
    partition.append(data(2, 4713, epoch=5))
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(3, 4715, epoch=5))


def test_an_old_epoch_is_fenced(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=3))
    partition.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, data(1, 1, epoch=2))
    partition.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, data(1, 1, epoch=2), origin=COORDINATOR)
    partition.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, data(1, 1, epoch=2), origin=RAFT_LEADER)


def test_a_new_epoch_starts_at_zero_and_forgets_the_batches_before(partition: Partition) -> None:
    for number in range(3):
        partition.append(data(number, number))
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(3, 3, epoch=1))
    partition.append(data(3, 0, epoch=1))
    assert partition.entry().producer_epoch == 1
    assert len(partition.entry().batches) == 1


@pytest.mark.parametrize("last", [SEQUENCE_MAX, SEQUENCE_MAX - 2])
def test_after_the_largest_sequence_comes_zero(partition: Partition, last: int) -> None:
    partition.append(data(0, last - 4, 5))
    if last == SEQUENCE_MAX:
        partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(5, 1))
        partition.append(data(5, 0, 2))
        partition.append(data(7, 2))
    else:
        # This batch has the last two sequences, and then 0, 1 and 2.
        partition.append(data(5, SEQUENCE_MAX - 1, 5))
        assert partition.entry().last_sequence == 2
        assert partition.entry().batches[-1].first_sequence == SEQUENCE_MAX - 1
        assert partition.append(data(10, SEQUENCE_MAX - 1, 5)).duplicate is not None
        partition.append(data(10, 3))


def test_sequences_of_group_offsets_are_not_checked(partition: Partition) -> None:
    partition.config.transaction_partition_verification_enable = False
    partition.append(data(0, 0, transactional=True), origin=COORDINATOR)
    partition.append(data(1, 0, transactional=True), origin=COORDINATOR)
    assert partition.state.map_end_offset == 2


def test_a_follower_takes_what_its_leader_took(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    partition.append(data(0, 5, epoch=3), data(1, 9, epoch=3), origin=REPLICATION)
    assert caplog.record_tuples == []
    partition.append(data(2, 0, epoch=1), origin=REPLICATION)
    assert partition.entry().producer_epoch == 1
    assert [record[:2] for record in caplog.record_tuples] == [("dohle.storage", logging.WARNING)]


def test_an_append_may_hold_batches_of_many_producers(partition: Partition) -> None:
    batches = [plain(0), data(1, 0), data(2, 0, pid=18), data(3, 1, 2), plain(5)]
    partition.append(*batches, origin=REPLICATION)
    assert partition.state.map_end_offset == 6
    assert [batch.last_sequence for batch in partition.entry().batches] == [0, 2]
    assert partition.entry(18).last_data_offset == 2


def test_the_batches_of_one_append_follow_each_other(partition: Partition) -> None:
    partition.append(data(0, 0), data(1, 1))
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(2, 2), data(3, 4))
    assert partition.entry().last_sequence == 1


# Duplicates


def test_a_batch_sent_again_is_answered_with_its_first_append(partition: Partition) -> None:
    partition.append(data(10, 0, 5, timestamp=NOW_MS + 7))
    plan = partition.append(data(99, 0, 5))
    assert plan.duplicate == BatchMetadata(4, 14, 4, NOW_MS + 7)
    assert plan.duplicate is not None
    assert (plan.duplicate.first_offset, plan.duplicate.last_offset) == (10, 14)
    assert partition.state.map_end_offset == 15


def test_a_duplicate_cannot_be_committed(partition: Partition) -> None:
    partition.append(data(0, 0))
    plan = partition.append(data(1, 0))
    with pytest.raises(ValueError, match="duplicate"):
        partition.state.commit(plan)


def test_each_of_the_last_five_batches_is_known_again_but_no_older_one(
    partition: Partition,
) -> None:
    for number in range(6):
        partition.append(data(number, number))
    for number in range(1, 6):
        plan = partition.append(data(6, number))
        assert plan.duplicate is not None
        assert plan.duplicate.last_offset == number
    partition.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(6, 0))


def test_the_same_sequences_in_another_epoch_are_no_duplicate(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=0))
    assert partition.append(data(1, 0, epoch=1)).duplicate is None
    partition.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, data(2, 0, epoch=0))


def test_a_follower_does_not_look_for_duplicates(partition: Partition) -> None:
    for origin in (REPLICATION, RAFT_LEADER):
        partition.append(data(0, 0), origin=origin)
        assert partition.append(data(1, 0), origin=origin).duplicate is None


def test_a_batch_of_a_transaction_is_known_again_after_its_marker(partition: Partition) -> None:
    partition.append(data(0, 0, transactional=True))
    partition.end(marker(1))
    assert partition.append(data(2, 0, transactional=True)).duplicate is not None
