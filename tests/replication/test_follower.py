"""What a follower does with answers, rule by rule (F4, F12-F16), and losses of Kafka's past."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.fetch import EpochEndOffset, PartitionData
from dohle.replication.follower import (
    Append,
    CompareRange,
    Delay,
    Fail,
    Reaction,
    Restart,
    Truncate,
    beginning,
    in_range,
    react,
)
from tests.replication.model_log import ModelLog


def log_of(*records: tuple[int, str], high_watermark: int = 0) -> ModelLog:
    log = ModelLog()
    for record in records:
        log.append(*record)
    log.high_watermark = high_watermark
    return log


def answer(
    error: ErrorCode = ErrorCode.NONE, diverging: tuple[int, int] | None = None
) -> PartitionData:
    epoch = EpochEndOffset()
    if diverging is not None:
        epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return PartitionData(
        error_code=error,
        high_watermark=7,
        log_start_offset=2,
        diverging_epoch=epoch,
        records=b"records",
    )


def test_f12_a_fetch_begins_at_the_log_end_with_the_epoch_of_the_last_record() -> None:
    log = log_of((3, "a"), (5, "b"))
    asked = log.ask(6)
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (2, 5, 6)
    assert ModelLog().ask(0).last_fetched_epoch == -1


def test_f4_only_a_log_without_any_epoch_begins_at_the_high_watermark() -> None:
    log = log_of((0, "a"), (0, "b"), high_watermark=1)
    assert beginning(log) is None
    log.leader_epochs.clear()
    assert beginning(log) == Truncate(1)
    log.high_watermark = 2
    assert beginning(log) is None


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (ErrorCode.NONE, Append(b"records", 7, 2)),
        (ErrorCode.OFFSET_OUT_OF_RANGE, CompareRange()),
        (ErrorCode.FENCED_LEADER_EPOCH, Fail(ErrorCode.FENCED_LEADER_EPOCH)),
        *(
            (each, Delay(each))
            for each in (
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.INCONSISTENT_TOPIC_ID,
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.CORRUPT_MESSAGE,
            )
        ),
    ],
)
def test_the_f_table_says_what_follows_from_each_error(
    error: ErrorCode, reaction: Reaction
) -> None:
    assert react(answer(error), log_of((0, "a"))) == reaction


def test_f15_an_error_that_nobody_knows_is_tried_again() -> None:
    data = PartitionData(error_code=12_345, high_watermark=-1, records=None)
    assert react(data, ModelLog()) == Delay(ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        # Both have the epoch: as far as both have it.
        ((3, 1), 1),
        ((3, 5), 2),
        ((5, 3), 3),
        # It is not here: what is older is asked for again.
        ((4, 3), 2),
        # All that is here is newer.
        ((1, 0), 0),
    ],
)
def test_f15_a_log_is_cut_where_it_parts_from_the_leaders(
    diverging: tuple[int, int], offset: int
) -> None:
    log = log_of((3, "a"), (3, "b"), (5, "c"), (5, "d"))
    assert react(answer(diverging=diverging), log) == Truncate(offset)


def test_f16_the_epoch_of_an_ex_leader_that_wrote_nothing_is_dropped() -> None:
    log = log_of((3, "a"))
    log.lead(5)
    leader = log_of((3, "a"))
    leader.lead(6)
    assert log.fetch_from(leader, 6, 2) == ["Truncate", "Append"]
    assert (log.values, log.leader_epochs.latest_epoch) == ("a", 3)


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [(0, 1, Truncate(1)), (5, 9, Restart(5)), (0, 3, None), (2, 2, None), (1, 9, None)],
)
def test_out_of_range_compares_ends_and_then_the_start(
    start: int, end: int, wanted: Truncate | Restart | None
) -> None:
    """The F table, error 1."""
    assert in_range(log_of((0, "a"), (0, "b")), start, end) == wanted


def test_a_follower_that_is_too_far_behind_starts_where_the_leader_does() -> None:
    leader = log_of(*((1, each) for each in "abcdef"), high_watermark=6)
    leader.delete_before(4)
    follower = log_of((1, "a"))
    assert follower.fetch_from(leader, 1, 2) == ["CompareRange", "Append"]
    assert (follower.log_start_offset, follower.values) == (4, "ef")


def test_f14_records_of_a_later_leader_than_the_one_asked_are_left_out() -> None:
    """KAFKA-18723: the answer has passed a change of leaders."""
    leader = log_of((1, "a"), (2, "b"))
    follower = ModelLog()
    follower.fetch_from(leader, 1)
    assert follower.values == "a"


# Losses of Kafka's past


def test_h1_a_restarted_follower_keeps_what_was_acknowledged_above_its_high_watermark() -> None:
    """KIP-101, the loss: B2 has m2, but has not heard that it is committed."""
    b1 = log_of((0, "m"), (0, "n"), high_watermark=2)
    b2 = log_of((0, "m"), (0, "n"), high_watermark=1)
    b2.begin()
    assert b2.values == "mn"
    b2.lead(1)
    b1.begin()
    assert b1.fetch_from(b2, 1) == ["Append"]
    assert b1.values == b2.values == "mn"


def test_h2_replicas_that_part_after_a_power_cut_agree_again() -> None:
    """KIP-101, the divergence: another record came to the same offset."""
    b1 = log_of((0, "m"), (0, "n"), high_watermark=1)
    b2 = log_of((0, "m"), high_watermark=1)
    b2.lead(1)
    b2.append(1, "x")
    b1.begin()
    assert b1.fetch_from(b2, 1, 2) == ["Truncate", "Append"]
    assert b1.values == b2.values == "mx"


def test_h3_fast_changes_of_leaders_with_an_epoch_that_the_leader_lacks() -> None:
    """KAFKA-6361: the leader names its largest epoch below the one asked for, and its end."""
    b1 = log_of((0, "a"), (2, "x"), (2, "y"))
    b2 = log_of((0, "a"), (1, "p"), (3, "q"))
    done = b1.fetch_from(b2, 3, 4)
    assert done[-1] == "Append"
    assert b1.records == b2.records


def test_h4_a_stale_epoch_is_never_served_silently() -> None:
    """KAFKA-6880: after an unclean election the follower is told where to cut."""
    follower = log_of((1, "a"), (1, "b"), (1, "c"))
    leader = log_of((1, "a"))
    leader.lead(3)
    for each in "xyz":
        leader.append(3, each)
    assert follower.fetch_from(leader, 3, 2) == ["Truncate", "Append"]
    assert follower.values == "axyz"


def test_h5_an_answer_that_tells_where_logs_part_moves_no_high_watermark() -> None:
    """KAFKA-14704: else a reader of the follower would see its uncommitted tail."""
    follower = log_of((1, "a"), (1, "b"), (1, "c"), high_watermark=1)
    leader = log_of((1, "a"), (2, "x"), (2, "y"), high_watermark=3)
    assert follower.fetch_from(leader, 2) == ["Truncate"]
    assert (follower.values, follower.high_watermark) == ("a", 1)
    follower.fetch_from(leader, 2)
    assert (follower.values, follower.high_watermark) == ("axy", 3)
