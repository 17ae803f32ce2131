"""The checker finds what is wrong: histories made by hand, one for each thing that must not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dohle.testing.checking.checks import Promise, check
from dohle.testing.checking.history import (
    PARTITION_COUNT,
    Delivery,
    History,
    Outcome,
    Partition,
    SentRecord,
)

P0, P1 = Partition("input", 0), Partition("input", 1)
OUT = Partition("output", 0)
GROUP = "group"


def good() -> History:
    """Two producers, a reader, transactions, a copy and offsets, all of them as they should be."""
    history = History()
    history.copies.append(("input", "output", GROUP))
    history.final = {P0: [], P1: [], OUT: []}
    for number in range(4):
        send = history.send("a", P0)
        send.acknowledged(number, number)
        history.final[P0].append((number, send.value))
    done, gone = history.begin("t"), history.begin("t")
    for offset, transaction in enumerate((done, gone, done)):
        send = history.send("t", P1, transaction)
        send.acknowledged(offset, offset)
        if transaction is done:
            history.final[P1].append((offset, send.value))
    done.outcome, gone.outcome = Outcome.OK, Outcome.FAILED
    lost = history.send("a", P0)
    assert lost.outcome is Outcome.UNKNOWN
    reading = history.read_by("reader", P0)
    reading.records += history.final[P0][:3]
    copying = history.begin("c")
    for offset, (_, value) in enumerate(history.final[P0][:2]):
        copy = history.copy("c", OUT, value, copying)
        copy.acknowledged(offset, offset)
        history.final[OUT].append((offset, copy.value))
    commits = history.commit(GROUP, {P0: 2}, copying)
    history.committed(commits)
    copying.outcome = Outcome.OK
    history.looked(GROUP, P0, 2)
    history.looked(GROUP, P1, None)
    return history


def found(history: History, promise: Promise = Promise.KEPT) -> set[str]:
    """Return the ids of the checks that have found something."""
    return {violation.check.split()[0] for violation in check(history, promise)}


def test_a_good_history_is_good() -> None:
    assert check(good()) == []
    assert check(good(), Promise.PREFIX) == []


def another_value_at_an_offset(history: History) -> None:
    history.read_by("other", P0).records.append((1, history.sends[0].value))


def the_same_twice(history: History) -> None:
    history.final[P1].append((9, history.final[P1][-1][1]))


def an_aborted_record(history: History) -> None:
    aborted = history.sends[5]
    assert aborted.must_not_be_read
    history.final[P1].insert(1, (1, aborted.value))


def a_record_that_was_never_accepted(history: History) -> None:
    refused = history.send("a", P0)
    refused.outcome = Outcome.FAILED
    history.final[P0].append((8, refused.value))


def a_lost_record(history: History) -> None:
    history.final[P0].pop()


def a_reader_that_skips(history: History) -> None:
    history.readings[0].records.pop(1)


def a_reader_that_goes_back(history: History) -> None:
    history.readings[0].records.reverse()


def records_in_another_order(history: History) -> None:
    first, second, *_ = history.sends
    for send in (first, second):
        send.offset = None
    history.readings.clear()
    history.final[P0][:2] = [(0, second.value), (1, first.value)]


def what_nobody_sent(history: History) -> None:
    history.final[P0].append((7, b"surprise"))


def a_read_that_cannot_be_repeated(history: History) -> None:
    unknown = next(send for send in history.sends if send.outcome is Outcome.UNKNOWN)
    history.read_by("other", P0).records.append((6, unknown.value))


def an_offset_that_goes_back(history: History) -> None:
    history.looked(GROUP, P0, 1)
    history.looked(GROUP, P0, 2)


def an_offset_that_is_gone(history: History) -> None:
    history.looked(GROUP, P0, None)
    history.looked(GROUP, P0, 2)


def half_of_a_transaction_of_unknown_outcome(history: History) -> None:
    torn = history.begin("t")
    for offset in (10, 11):
        send = history.send("t", P1, torn)
        send.acknowledged(offset, offset)
    history.final[P1].append((10, history.sends[-2].value))


def a_record_copied_twice(history: History) -> None:
    again = history.begin("c")
    again.outcome = Outcome.OK
    copy = history.copy("c", OUT, history.sends[0].value, again)
    copy.acknowledged(5, 5)
    history.final[OUT].append((5, copy.value))


def a_record_passed_over_by_a_copier(history: History) -> None:
    history.committed(history.commit(GROUP, {P0: 3}))
    history.looked(GROUP, P0, 3)


def a_record_that_was_sent_once_is_there_twice(history: History) -> None:
    send = loose(history, Delivery.AT_MOST_ONCE)
    history.final[P1] += [(20, send.value), (21, send.value)]


def a_lost_record_of_a_producer_that_is_not_idempotent(history: History) -> None:
    loose(history, Delivery.AT_LEAST_ONCE).acknowledged(20, 20)


def acknowledgements_in_another_order(history: History) -> None:
    for offset in (21, 20):
        loose(history, Delivery.AT_LEAST_ONCE).acknowledged(offset, 20)
    late, early = history.sends[-2:]
    history.final[P1] += [(20, early.value), (21, late.value)]


def a_topic_that_was_made_is_gone(history: History) -> None:
    history.change("made", PARTITION_COUNT, 3).outcome = Outcome.OK


def a_topic_that_was_deleted_is_back(history: History) -> None:
    for count in (3, 0):
        history.change("made", PARTITION_COUNT, count).outcome = Outcome.OK
    history.final_topics["made"] = {PARTITION_COUNT: 3}


def a_config_is_what_it_was_before(history: History) -> None:
    history.change("made", PARTITION_COUNT, 3).outcome = Outcome.OK
    for value in ("1", "2"):
        history.change("made", "retention.bytes", value).outcome = Outcome.OK
    history.final_topics["made"] = {PARTITION_COUNT: 3, "retention.bytes": "1"}


def transaction(
    history: History, name: str, began_ns: int, ended_ns: int
) -> tuple[SentRecord, ...]:
    """Add one that is committed, and return what it has written."""
    made = history.begin(name, began_ns)
    sends = tuple(history.send(name, P1, made) for _ in range(2))
    for send in sends:
        offset = max((at for at, _ in history.final[P1]), default=-1) + 1
        send.acknowledged(offset, began_ns)
        history.final[P1].append((offset, send.value))
    made.committed(ended_ns)
    return sends


def reads(reader: SentRecord, writer: SentRecord) -> None:
    assert reader.transaction is not None
    reader.transaction.reads.append((writer.partition, writer.value))


def what_it_has_written_itself_is_read(history: History) -> None:
    first, second = transaction(history, "weaver", 1, 9)
    reads(first, second)


def each_reads_what_the_other_has_written(history: History) -> None:
    """At the same time, so that time alone does not tell."""
    (one, _), (other, _) = (transaction(history, name, 1, 9) for name in ("one", "other"))
    reads(one, other)
    reads(other, one)


def a_circle_of_three(history: History) -> None:
    made = [transaction(history, name, 1, 9)[0] for name in ("one", "two", "three")]
    for number, each in enumerate(made):
        reads(each, made[number - 1])


def one_reads_what_is_written_after_its_end(history: History) -> None:
    first, _ = transaction(history, "first", 1, 2)
    later, _ = transaction(history, "later", 3, 4)
    reads(first, later)


def a_circle_through_time(history: History) -> None:
    """The first ends before the second begins, which the third reads, which the first reads."""
    first, _ = transaction(history, "first", 1, 5)
    second, _ = transaction(history, "second", 6, 9)
    third, _ = transaction(history, "third", 1, 9)
    reads(third, second)
    reads(first, third)


def loose(history: History, delivery: Delivery) -> SentRecord:
    send = history.send("loose", P1)
    send.delivery = delivery
    return send


@pytest.mark.parametrize(
    ("spoil", "checks"),
    [
        (another_value_at_an_offset, {"J1", "J2"}),
        (the_same_twice, {"J2"}),
        (an_aborted_record, {"J3"}),
        (a_record_that_was_never_accepted, {"J3"}),
        (a_lost_record, {"J5"}),
        (a_reader_that_skips, {"J6"}),
        (a_reader_that_goes_back, {"J7"}),
        (records_in_another_order, {"J9"}),
        (what_nobody_sent, {"P0"}),
        (a_read_that_cannot_be_repeated, {"P11"}),
        (an_offset_that_goes_back, {"G7"}),
        (an_offset_that_is_gone, {"G7"}),
        (half_of_a_transaction_of_unknown_outcome, {"T1"}),
        (a_record_copied_twice, {"T5"}),
        (a_record_passed_over_by_a_copier, {"T5"}),
        (a_record_that_was_sent_once_is_there_twice, {"J2"}),
        (a_lost_record_of_a_producer_that_is_not_idempotent, {"J5"}),
        (acknowledgements_in_another_order, {"J12"}),
        (what_it_has_written_itself_is_read, {"J4"}),
        (each_reads_what_the_other_has_written, {"J15", "J16"}),
        (a_circle_of_three, {"J15", "J16"}),
        (one_reads_what_is_written_after_its_end, {"J16"}),
        (a_circle_through_time, {"J16"}),
        (a_topic_that_was_made_is_gone, {"A1"}),
        (a_topic_that_was_deleted_is_back, {"A1"}),
        (a_config_is_what_it_was_before, {"A1"}),
    ],
)
def test_what_must_not_be_is_found(spoil: Callable[[History], None], checks: set[str]) -> None:
    history = good()
    spoil(history)
    assert found(history) == checks


def test_transactions_may_read_what_was_committed_before_or_meanwhile() -> None:
    """J15, J16: one or many, in turn; and what one of unknown outcome has read does not count."""
    history = good()
    first, other = transaction(history, "first", 1, 5)
    second, _ = transaction(history, "second", 2, 8)
    third, _ = transaction(history, "third", 6, 9)
    doubtful, _ = transaction(history, "doubtful", 10, 12)
    for reader, writer in ((second, first), (third, first), (third, other), (third, second)):
        reads(reader, writer)
    reads(first, doubtful)
    assert doubtful.transaction is not None
    assert first.transaction is not None
    assert found(history) == {"J16"}
    # Whether it was committed is not known: then what it has read proves nothing.
    first.transaction.outcome = Outcome.UNKNOWN
    assert found(history) == set()


def test_producers_that_are_not_idempotent_may_repeat_what_they_send() -> None:
    history = good()
    first, second = (loose(history, Delivery.AT_LEAST_ONCE) for _ in range(2))
    first.acknowledged(21, 0)
    second.acknowledged(22, 0)
    places = (20, first), (21, first), (22, second), (23, first)
    history.final[P1] += [(offset, send.value) for offset, send in places]
    assert found(history) == set()


def test_what_is_sent_without_acknowledgement_may_be_lost_or_come_in_any_order() -> None:
    history = good()
    first, _, third = (loose(history, Delivery.AT_MOST_ONCE) for _ in range(3))
    history.final[P1] += [(20, third.value), (21, first.value)]
    assert found(history) == set()
    assert found(history, Promise.PREFIX) == set()


@pytest.mark.parametrize("count", [None, 2, 3])
def test_a_change_without_an_answer_may_be_made_or_not(count: int | None) -> None:
    history = good()
    if count is not None:
        history.change("made", PARTITION_COUNT, 2).outcome = Outcome.OK
        history.final_topics["made"] = {PARTITION_COUNT: count}
    history.change("made", PARTITION_COUNT, 3)
    history.change("made", "retention.bytes", "1")
    assert found(history) == set()


def test_a_commit_without_an_answer_may_count_or_not() -> None:
    for offset in (None, 7):
        history = good()
        history.commit("others", {P1: 7})
        history.looked("others", P1, offset)
        assert found(history) == set()


def cut(*fates: tuple[int, bool]) -> History:
    """Return a history of records, acknowledged at these times, of which some are there."""
    history = History()
    history.final = {P0: []}
    history.cuts_ns = [100]
    for offset, (at_ns, is_there) in enumerate(fates):
        send = history.add(SentRecord("a", P0, b"%d" % offset, began_ns=at_ns))
        send.acknowledged(offset, at_ns)
        if is_there:
            history.final[P0].append((offset, send.value))
    return history


def test_a_power_cut_may_take_the_end_of_a_partition() -> None:
    assert found(cut((1, True), (2, False), (3, False), (200, True)), Promise.PREFIX) == set()


def test_a_power_cut_may_not_take_what_stands_before_others() -> None:
    assert found(cut((1, True), (2, False), (3, True)), Promise.PREFIX) == {"P1"}


def test_what_was_sent_before_the_cut_may_be_gone_though_its_answer_came_after_it() -> None:
    history = cut((1, True), (200, False))
    history.sends[1].began_ns = 50
    assert found(history, Promise.PREFIX) == set()


def test_what_was_acknowledged_after_the_cut_is_kept() -> None:
    assert found(cut((1, True), (200, False)), Promise.PREFIX) == {"P1"}


def read_at(cut_ns: int | None, *given: tuple[int, int], began_ns: int = 0) -> History:
    """Return a history of one reader, given offsets at times."""
    history = History()
    history.cuts_ns = [] if cut_ns is None else [cut_ns]
    reading = history.read_by("reader", P0, began_ns)
    for offset, at_ns in given:
        send = history.send("a", P0)
        reading.given(offset, send.value, at_ns)
    return history


def test_a_reader_goes_back_where_a_power_cut_has_taken_what_it_had_read() -> None:
    history = read_at(100, (7, 90), (8, 110), (0, 120), (1, 130))
    assert found(history, Promise.PREFIX) == set()


@pytest.mark.parametrize(
    "history",
    [
        read_at(None, (7, 90), (0, 120)),
        read_at(100, (7, 80), (0, 90)),
        read_at(100, (7, 90), (0, 120), (0, 130)),
        read_at(100, (7, 110), (0, 120), began_ns=105),
    ],
    ids=["no cut", "before the cut", "twice for one cut", "began after the cut"],
)
def test_a_reader_does_not_go_back_without_a_power_cut(history: History) -> None:
    assert found(history, Promise.PREFIX) == {"J7"}


def test_a_reader_does_not_go_back_where_all_is_kept() -> None:
    assert "J7" in found(read_at(100, (7, 90), (0, 120)))
