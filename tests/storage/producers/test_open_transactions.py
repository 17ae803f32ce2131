from __future__ import annotations

from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import RecordBatch
from dohle.records.builder import build_empty_batch
from dohle.storage.producers.state import NO_VERIFICATION, AppendOrigin
from tests.storage.producers.marker_scenarios import late_marker, marker_of_a_deposed_coordinator
from tests.storage.producers.producer_partition import (
    CLIENT,
    COORDINATOR,
    NOW_MS,
    PID,
    REPLICATION,
    Partition,
    data,
    marker,
    plain,
)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(str(tmp_path))


def test_a_transaction_holds_the_stable_offset_until_its_marker_is_replicated(
    partition: Partition,
) -> None:
    state = partition.state
    partition.append(plain(0, 5))
    partition.append(data(5, 0, 2, transactional=True))
    partition.append(data(7, 2, transactional=True))
    assert partition.unstable_and_undecided() == (5, 5)
    assert partition.entry().current_txn_first_offset == 5
    assert state.has_ongoing_transaction(PID, 0)
    partition.end(marker(8))
    assert not state.has_ongoing_transaction(PID, 0)
    assert partition.entry().current_txn_first_offset == -1
    assert partition.unstable_and_undecided() == (5, None)
    state.on_high_watermark_updated(8)
    assert partition.unstable_and_undecided() == (5, None)
    state.on_high_watermark_updated(9)
    assert partition.unstable_and_undecided() == (None, None)


def test_the_oldest_transaction_counts_whether_decided_or_not(partition: Partition) -> None:
    state = partition.state
    for pid in range(3):
        partition.append(data(pid, 0, pid=pid, transactional=True))
    partition.end(marker(3, pid=1))
    assert partition.unstable_and_undecided() == (0, 0)
    partition.end(marker(4, pid=0))
    assert partition.unstable_and_undecided() == (0, 2)
    # The marker of 1 is replicated, that of 0 is not.
    state.on_high_watermark_updated(4)
    assert state.first_unstable_offset == 0
    state.on_high_watermark_updated(5)
    assert state.first_unstable_offset == 2
    partition.end(marker(5, pid=2))
    state.on_high_watermark_updated(6)
    assert state.first_unstable_offset is None


def test_an_ongoing_transaction_of_another_epoch_is_not_the_producers(
    partition: Partition,
) -> None:
    partition.append(data(0, 0, transactional=True))
    assert not partition.state.has_ongoing_transaction(PID, 1)
    assert not partition.state.has_ongoing_transaction(99, 0)


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR, REPLICATION])
def test_a_producer_writes_nothing_outside_its_open_transaction(
    partition: Partition, origin: AppendOrigin
) -> None:
    partition.append(data(0, 0, transactional=True))
    partition.refuses(ErrorCode.INVALID_TXN_STATE, data(1, 1), origin=origin)
    partition.end(marker(1))
    partition.append(data(2, 1), origin=origin)


def test_an_abort_goes_to_the_index_and_a_commit_does_not(partition: Partition) -> None:
    partition.append(data(0, 0, transactional=True))
    partition.end(marker(1, commit=True))
    assert partition.aborted == []
    partition.append(data(2, 1, 3, transactional=True))
    partition.end(marker(5, commit=False))
    assert partition.aborted == [(PID, 2, 5, 6)]


def test_an_abort_of_a_transaction_without_data_here_is_not_in_the_index(
    partition: Partition,
) -> None:
    plan = partition.end(marker(0, commit=False, epoch=4, coordinator_epoch=2, timestamp=NOW_MS))
    assert plan.aborted == []
    assert partition.state.first_unstable_offset is None
    assert partition.entry() == (PID, 4, 2, NOW_MS, -1, ())


def test_an_aborts_stable_offset_is_the_start_of_the_next_open_transaction(
    partition: Partition,
) -> None:
    for pid in range(3):
        partition.append(data(pid, 0, pid=pid, transactional=True))
    partition.end(marker(3, pid=1, commit=False))
    partition.end(marker(4, pid=0, commit=False))
    partition.end(marker(5, pid=2, commit=False))
    assert partition.aborted == [(1, 1, 3, 0), (0, 0, 4, 2), (2, 2, 5, 6)]


def test_a_follower_finds_the_stable_offsets_of_its_leader_whatever_it_fetches_at_once(
    tmp_path: Path,
) -> None:
    batches = [
        data(0, 0, pid=1, transactional=True),
        marker(1, pid=1, commit=False),
        data(2, 1, pid=1, transactional=True),
        data(3, 0, pid=2, transactional=True),
        marker(4, pid=1, commit=False),
        marker(5, pid=2, commit=False),
    ]
    leader = Partition(str(tmp_path / "leader"))
    for batch in batches:
        leader.append(batch, origin=COORDINATOR if batch.is_control else CLIENT)
    assert leader.aborted == [(1, 0, 1, 2), (1, 2, 4, 3), (2, 3, 5, 6)]
    follower = Partition(str(tmp_path / "follower"))
    follower.append(*batches, origin=REPLICATION)
    assert follower.aborted == leader.aborted
    assert follower.state.producers == leader.state.producers
    assert follower.state.first_undecided_offset is None
    assert follower.state.first_unstable_offset == 0


def test_the_abort_of_an_old_epoch_ends_a_transaction_before_new_data(
    partition: Partition,
) -> None:
    partition.append(data(0, 0, transactional=True))
    # The coordinator fences the producer and aborts for it with the next epoch.
    partition.end(marker(1, commit=False, epoch=1))
    assert partition.aborted == [(PID, 0, 1, 2)]
    partition.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, data(2, 1, transactional=True))
    partition.append(data(2, 0, epoch=1, transactional=True))


def test_a_marker_of_the_same_epoch_keeps_the_sequence_going(partition: Partition) -> None:
    partition.append(data(0, 0, 3, transactional=True))
    partition.end(marker(3))
    partition.append(data(4, 3, transactional=True))


def test_a_marker_of_a_new_epoch_makes_the_sequence_start_again(partition: Partition) -> None:
    partition.append(data(0, 0, 3, transactional=True))
    partition.end(marker(3, epoch=1), version=2)
    assert partition.entry().batches == ()
    partition.refuses(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, data(4, 3, epoch=1, transactional=True)
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_of_an_old_epoch_is_refused(partition: Partition, version: int) -> None:
    partition.append(data(0, 0, epoch=5, transactional=True))
    partition.refuses(
        ErrorCode.INVALID_PRODUCER_EPOCH, marker(1, epoch=4), origin=COORDINATOR, version=version
    )


def test_under_transactions_v2_a_marker_must_raise_the_epoch(partition: Partition) -> None:
    late_marker(partition)


def test_under_transactions_v2_a_marker_sent_again_is_written_again(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=5, transactional=True))
    partition.end(marker(1, epoch=6), version=2)
    plan = partition.end(marker(2, epoch=6, commit=False), version=2)
    assert plan.aborted == []
    assert partition.state.map_end_offset == 3


@pytest.mark.parametrize("version", [0, 1])
def test_before_transactions_v2_a_marker_has_the_epoch_of_its_data(
    partition: Partition, version: int
) -> None:
    partition.append(data(0, 0, epoch=5, transactional=True))
    partition.end(marker(1, epoch=5), version=version)
    assert partition.entry().producer_epoch == 5


def test_a_leader_must_be_told_the_transaction_version_of_a_marker(partition: Partition) -> None:
    with pytest.raises(ValueError, match="transaction version"):
        partition.state.validate((marker(0),), COORDINATOR)


def test_a_marker_of_a_deposed_coordinator_is_refused(partition: Partition) -> None:
    marker_of_a_deposed_coordinator(partition)


def test_a_follower_takes_any_marker(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=5, transactional=True), origin=REPLICATION)
    partition.append(marker(1, epoch=5, coordinator_epoch=7), origin=REPLICATION)
    partition.append(marker(2, epoch=4, coordinator_epoch=6), origin=REPLICATION)
    assert partition.entry().producer_epoch == 4
    assert partition.entry().coordinator_epoch == 6


def test_a_control_batch_emptied_by_compaction_says_nothing(partition: Partition) -> None:
    built = build_empty_batch(
        base_offset=3,
        last_offset=3,
        max_timestamp=NOW_MS,
        partition_leader_epoch=0,
        producer_id=PID,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assert partition.state.replay(RecordBatch(memoryview(built))) is None
    assert partition.state.is_empty
    assert partition.state.map_end_offset == 4


# Verification


def test_a_transaction_nobody_vouches_for_is_refused(partition: Partition) -> None:
    for origin in (CLIENT, COORDINATOR):
        partition.refuses(
            ErrorCode.INVALID_TXN_STATE, data(0, 0, transactional=True), origin=origin, verify=False
        )


def test_verification_can_be_switched_off(partition: Partition) -> None:
    partition.config.transaction_partition_verification_enable = False
    partition.append(data(0, 0, transactional=True), verify=False)
    assert partition.state.first_unstable_offset == 0


def test_a_follower_needs_no_verification(partition: Partition) -> None:
    partition.append(data(0, 0, transactional=True), origin=REPLICATION)
    assert partition.state.first_unstable_offset == 0


def test_a_guard_serves_the_first_append_and_is_not_needed_after(partition: Partition) -> None:
    state = partition.state
    guard = state.start_transaction_verification(PID, 0, 0, False, NOW_MS)
    assert guard != NO_VERIFICATION
    assert state.verification_guard(PID) == guard
    plan = state.validate((data(0, 0, transactional=True),), CLIENT, verification_guard=guard)
    assert state.verification_guard(PID) == guard
    state.commit(plan)
    assert state.verification_guard(PID) == NO_VERIFICATION
    assert state.start_transaction_verification(PID, 1, 0, False, NOW_MS) == NO_VERIFICATION
    partition.append(data(1, 1, transactional=True), verify=False)


def test_a_guard_drawn_before_an_abort_does_not_serve_after_it(partition: Partition) -> None:
    state = partition.state
    stale = state.start_transaction_verification(PID, 0, 0, False, NOW_MS)
    partition.end(marker(0, commit=False))
    assert state.verification_guard(PID) == NO_VERIFICATION
    fresh = state.start_transaction_verification(PID, 0, 0, False, NOW_MS)
    assert fresh != stale
    batch = data(1, 0, transactional=True)
    with pytest.raises(KafkaError) as caught:
        state.validate((batch,), CLIENT, verification_guard=stale)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    state.commit(state.validate((batch,), CLIENT, verification_guard=fresh))


def test_the_same_guard_serves_all_batches_that_wait(partition: Partition) -> None:
    state = partition.state
    first = state.start_transaction_verification(PID, 0, 0, False, NOW_MS)
    assert state.start_transaction_verification(PID, 1, 0, False, NOW_MS) == first


def test_a_fenced_producer_gets_no_guard(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=3))
    with pytest.raises(KafkaError) as caught:
        partition.state.start_transaction_verification(PID, 0, 2, False, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_fenced_producer_hears_of_its_epoch_before_its_transaction(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=3))
    partition.refuses(
        ErrorCode.INVALID_PRODUCER_EPOCH, data(1, 0, epoch=2, transactional=True), verify=False
    )


def test_the_lowest_sequence_that_waits_goes_first(partition: Partition) -> None:
    state = partition.state
    guard = state.start_transaction_verification(PID, 5, 0, False, NOW_MS)
    state.start_transaction_verification(PID, 3, 0, False, NOW_MS)
    state.start_transaction_verification(PID, 4, 0, False, NOW_MS)
    with pytest.raises(KafkaError) as caught:
        state.validate((data(0, 4, transactional=True),), CLIENT, verification_guard=guard)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.validate((data(0, 3, transactional=True),), CLIENT, verification_guard=guard)


def test_a_new_epoch_that_waits_counts_from_its_own_sequence(partition: Partition) -> None:
    state = partition.state
    state.start_transaction_verification(PID, 0, 0, False, NOW_MS)
    guard = state.start_transaction_verification(PID, 2, 1, False, NOW_MS)
    # A straggler of the old epoch changes nothing.
    state.start_transaction_verification(PID, 1, 0, False, NOW_MS)
    batch = data(0, 2, epoch=1, transactional=True)
    assert state.validate((batch,), CLIENT, verification_guard=guard).duplicate is None


def test_an_unknown_producer_of_transactions_v2_starts_at_zero(partition: Partition) -> None:
    state = partition.state
    guard = state.start_transaction_verification(PID, 3, 0, True, NOW_MS)
    with pytest.raises(KafkaError) as caught:
        state.validate((data(0, 3, transactional=True),), CLIENT, verification_guard=guard)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.validate((data(0, 0, transactional=True),), CLIENT, verification_guard=guard)


def test_a_late_marker_does_not_end_the_verification_of_the_next_transaction(
    partition: Partition,
) -> None:
    partition.append(data(0, 0, transactional=True))
    state = partition.state
    # Under transactions v2 the marker has the epoch that the next transaction uses.
    guard = state.start_transaction_verification(PID, 0, 1, True, NOW_MS)
    partition.end(marker(1, epoch=1), version=2)
    assert state.verification_guard(PID) == guard
    partition.end(marker(2, epoch=2), version=2)
    assert state.verification_guard(PID) == NO_VERIFICATION
