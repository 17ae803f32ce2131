"""What is told of the bytes that could be read is what a read finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    Node,
    append,
    append_marker,
    append_transactional,
    batch,
    data,
    property_test,
)

ALL = 1 << 20
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "commit", "truncate", "truncate", "roll", "delete"]
        ),
        st.integers(0, 6),
        # Few, so that what is remembered of the last time is asked too.
        st.integers(0, 5),
    ),
    min_size=5,
    max_size=40,
)


def happen(log: Log, what: str, number: int) -> None:
    if what == "append":
        log.append_as_leader(
            batch([NOW_MS] * (1 + number % 2), value=bytes(number * 30)), LEADER_EPOCH
        )
    elif what == "commit":
        log.update_high_watermark(log.high_watermark + number)
    elif what == "roll":
        log.roll()
    elif what == "truncate":
        log.truncate_to(max(log.log_start_offset, log.log_end_offset - number))
    else:
        log.delete_records(min(log.log_start_offset + number, log.high_watermark))


def is_within_a_segment(log: Log, offset: int, bound: int) -> bool:
    bases = [base for base in log.segments.base_offsets if offset < base <= bound]
    return log.log_start_offset <= offset <= bound and not bases


@property_test(300)
@given(events=EVENTS)
def test_it_is_what_a_read_finds_or_no_use_to_wait(events: list[tuple[str, int, int]]) -> None:
    log = Node(LogConfig(index_interval_bytes=150)).log
    for what, number, offset in events:
        happen(log, what, number)
        for isolation, bound in (
            (Isolation.LOG_END, log.log_end_offset),
            (Isolation.HIGH_WATERMARK, log.high_watermark),
        ):
            told = log_read.readable_bytes(log, offset, isolation, ALL)
            if bound <= offset <= log.log_end_offset:
                assert told == 0
            elif is_within_a_segment(log, offset, bound):
                assert told == log_read.read(log, offset, ALL, isolation).size
            else:
                assert told is None


def test_no_more_is_told_than_is_asked_for() -> None:
    log = Node().log
    append(log, data(), data())
    for at_most in (0, 1, 2, BATCH_SIZE, 2 * BATCH_SIZE):
        assert log_read.readable_bytes(log, 0, Isolation.LOG_END, at_most) == at_most
    assert log_read.readable_bytes(log, 0, Isolation.LOG_END, ALL) == 2 * BATCH_SIZE
    assert log_read.readable_bytes(log, 1, Isolation.LOG_END, ALL) == BATCH_SIZE


def test_a_reader_of_committed_records_has_what_lies_before_the_first_open_transaction() -> None:
    log = Node().log
    append(log, data())
    append_transactional(log, 7, 0)
    append(log, data())
    assert log_read.readable_bytes(log, 0, Isolation.TXN_COMMITTED, ALL) == BATCH_SIZE
    assert log_read.readable_bytes(log, 1, Isolation.TXN_COMMITTED, ALL) == 0
    # Above what it may see: it waits until it may.
    assert log_read.readable_bytes(log, 2, Isolation.TXN_COMMITTED, ALL) == 0
    append_marker(log, 7, commit=True)
    log.update_high_watermark(log.log_end_offset)
    assert log_read.readable_bytes(log, 0, Isolation.TXN_COMMITTED, ALL) == log.size


def test_a_failed_disk_is_an_error() -> None:
    log = Node().log
    log.disk.failed("a test", OSError("gone"))
    with pytest.raises(KafkaError) as caught:
        log_read.readable_bytes(log, 0, Isolation.LOG_END, ALL)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
