"""The filter for aborted transactions, against a plain walk over a random history."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import ProducerId
from dohle.records.aborted import AbortedTransactions
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.control import build_txn_marker


class History(NamedTuple):
    """A log, the offsets of its committed or plain records, and its aborted transactions."""

    log: bytes
    visible: set[int]
    aborted: list[tuple[ProducerId, int, int]]


def history(steps: list[tuple[int, str]]) -> History:
    """Let producers write, commit and abort in turn."""
    log = bytearray()
    offset = 0
    open_data: dict[int, list[int]] = {}
    visible: set[int] = set()
    aborted = []
    for producer, step in steps:
        if step == "plain" or step == "data":
            builder = BatchBuilder(
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=step == "data",
            )
            offsets = [builder.append(0, None, b"v") for _ in range(1 + offset % 3)]
            log += builder.build()
            if step == "data":
                open_data.setdefault(producer, []).extend(offsets)
            else:
                visible.update(offsets)
            offset += len(offsets)
        else:
            data = open_data.pop(producer, [])
            if step == "commit":
                visible.update(data)
            elif data:
                aborted.append((ProducerId(producer), data[0], offset))
            log += build_txn_marker(step == "commit", producer, 0, 0, 0, base_offset=offset)
            offset += 1
    for data in open_data.values():
        visible.update(data)
    return History(bytes(log), visible, aborted)


STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["data", "data", "plain", "commit", "abort"])),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 60), st.integers(0, 60))
def test_exactly_the_records_of_aborted_transactions_are_left_out(
    steps: list[tuple[int, str]], start: int, length: int
) -> None:
    # A producer does not write outside a transaction while it has one open.
    in_transaction: set[int] = set()
    legal = []
    for producer, step in steps:
        if step == "plain" and producer in in_transaction:
            continue
        if step == "data":
            in_transaction.add(producer)
        elif step != "plain":
            in_transaction.discard(producer)
        legal.append((producer, step))
    log, visible, aborted = history(legal)
    # An answer holds whole batches from somewhere on, and what was aborted among them.
    answer = [*batches(log)][start : start + length]
    if not answer:
        return
    first, last = answer[0].base_offset, answer[-1].last_offset
    among = [
        (producer, begins) for producer, begins, ends in aborted if ends >= first and begins <= last
    ]
    transactions = AbortedTransactions(reversed(among))
    seen = {
        record.offset
        for batch in answer
        if not transactions.covers(batch) and not batch.is_control
        for record in batch
    }
    assert seen == {offset for offset in visible if first <= offset <= last}
