"""What must hold of a history, whatever was killed, cut or paused while it came to be.

Ids are those of Jepsen's Kafka workload where it has the check (J...), else our own: P for
partitions, G for groups, T for transactions, A for what administrators change. All checks but P11
go by the order of offsets and not by their differences: gaps are legal, since markers and aborted
records take offsets too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from dohle.testing.checking.cycles import circular_reads, circular_reads_in_time, own_writes_read
from dohle.testing.checking.history import (
    PARTITION_COUNT,
    Commit,
    Delivery,
    History,
    Looked,
    Outcome,
    Partition,
    Reading,
    SentRecord,
    copied,
)

#: No more of one kind are told.
_TOLD_MAX = 5
_NEVER_NS = 1 << 62


class Promise(Enum):
    """What was promised of acknowledged records."""

    #: They are kept.
    KEPT = "kept"
    #: A power cut may take the last ones of a partition, and nothing before others that stay.
    PREFIX = "prefix"


class Violation(NamedTuple):
    """Something that must not be."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


Check = Callable[[History], Iterator[str]]


def check(history: History, promise: Promise = Promise.KEPT) -> list[Violation]:
    """Return what is wrong with a history."""
    found: list[Violation] = []
    for name, function in (KEPT_CHECKS if promise is Promise.KEPT else _PREFIX).items():
        for count, text in enumerate(function(history)):
            if count == _TOLD_MAX:
                found.append(Violation(name, "... and more"))
                break
            found.append(Violation(name, text))
    return found


def _places(history: History) -> Iterator[tuple[Partition, int, bytes]]:
    """Go through all that was said of what is at an offset."""
    for send in history.sends:
        if send.offset is not None:
            yield send.partition, send.offset, send.value
    for reading in history.readings:
        for offset, value in reading.records:
            yield reading.partition, offset, value
    for partition, records in history.final.items():
        for offset, value in records:
            yield partition, offset, value


def inconsistent_offsets(history: History) -> Iterator[str]:
    """One offset has one value, for ever and for everybody."""
    found: dict[tuple[Partition, int], bytes] = {}
    for partition, offset, value in _places(history):
        known = found.setdefault((partition, offset), value)
        if known != value:
            yield f"{partition} has {known!r} and {value!r} at offset {offset}"


def duplicates(history: History) -> Iterator[str]:
    """One value is at one offset, if its producer is idempotent or sends it only once."""
    found: dict[tuple[Partition, bytes], int] = {}
    may_repeat = _repeatable(history)
    for partition, offset, value in _places(history):
        if value in may_repeat:
            continue
        known = found.setdefault((partition, value), offset)
        if known != offset:
            yield f"{value!r} is at offsets {known} and {offset} of {partition}"


def repeated(history: History) -> Iterator[str]:
    """At the end no value is there twice, whatever was lost before."""
    may_repeat = _repeatable(history)
    for partition, records in history.final.items():
        found: dict[bytes, int] = {}
        for offset, value in records:
            if value not in may_repeat and found.setdefault(value, offset) != offset:
                yield f"{value!r} is at offsets {found[value]} and {offset} of {partition}"


def _repeatable(history: History) -> set[bytes]:
    return {send.value for send in history.sends if send.delivery is Delivery.AT_LEAST_ONCE}


def invented(history: History) -> Iterator[str]:
    """What is read was sent, to this partition."""
    sent = {(send.partition, send.value) for send in history.sends}
    for partition, offset, value in _places(history):
        if (partition, value) not in sent:
            yield f"{value!r} at offset {offset} of {partition} was never sent there"


def aborted_reads(history: History) -> Iterator[str]:
    """Nobody reads what was aborted, or has failed."""
    bad = {(send.partition, send.value): send for send in history.sends if send.must_not_be_read}
    for partition, offset, value in _seen(history):
        send = bad.get((partition, value))
        if send is not None:
            what = "failed" if send.transaction is None else f"{send.transaction.name} was aborted"
            yield f"{value!r} was read at offset {offset} of {partition}, but {what}"


def _seen(history: History) -> Iterator[tuple[Partition, int, bytes]]:
    for reading in history.readings:
        for offset, value in reading.records:
            yield reading.partition, offset, value
    for partition, records in history.final.items():
        for offset, value in records:
            yield partition, offset, value


def lost(history: History) -> Iterator[str]:
    """What was acknowledged, and committed, is there at the end."""
    found = _final_values(history)
    for send in history.sends:
        if send.must_be_read and send.value not in found[send.partition]:
            yield f"{send.value!r} of {send.process}, at offset {send.offset} of {send.partition}"


def unrepeatable(history: History) -> Iterator[str]:
    """What was once read is there at the end."""
    found = _final_values(history)
    for reading in history.readings:
        for offset, value in reading.records:
            if value not in found[reading.partition]:
                yield f"{reading.process} read {value!r} at offset {offset} of {reading.partition}"


def _final_values(history: History) -> dict[Partition, set[bytes]]:
    found: dict[Partition, set[bytes]] = defaultdict(set)
    for partition, records in history.final.items():
        found[partition].update(value for _, value in records)
    return found


def lost_before_others(history: History) -> Iterator[str]:
    """A power cut takes the end of a partition, and not what stands before something it leaves."""
    offsets = {
        (partition, value): offset
        for partition, records in history.final.items()
        for offset, value in records
    }
    by_partition: dict[Partition, list[SentRecord]] = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.OK and send.transaction is None:
            by_partition[send.partition].append(send)
    bounds = [-1, *sorted(history.cuts_ns), _NEVER_NS]
    for partition, sends in by_partition.items():
        for since_ns, cut_ns in pairwise(bounds):
            # Who was sent before a cut and learnt of its answer after it is in neither life.
            lived = [send for send in sends if send.began_ns > since_ns and send.at_ns < cut_ns]
            there = [(partition, send.value) in offsets for send in lived]
            last = max(
                (s.offset or 0 for s, kept in zip(lived, there, strict=True) if kept), default=-1
            )
            for send, kept in zip(lived, there, strict=True):
                if not kept and (cut_ns == _NEVER_NS or (send.offset or 0) < last):
                    yield f"{send.value!r} at offset {send.offset} of {partition}"


def reordered(history: History) -> Iterator[str]:
    """What one producer has sent to a partition is there in this order."""
    offsets = {
        (partition, value): offset
        for partition, records in history.final.items()
        for offset, value in records
    }
    last: dict[tuple[str, Partition], tuple[int, bytes]] = {}
    for send in history.sends:
        offset = offsets.get((send.partition, send.value))
        if offset is None or send.delivery is not Delivery.EXACTLY_ONCE:
            continue
        key = (send.process, send.partition)
        before = last.get(key)
        if before is not None and before[0] >= offset:
            yield (
                f"{send.process} sent {before[1]!r} before {send.value!r} to {send.partition}, "
                f"where they are at {before[0]} and {offset}"
            )
        last[key] = (offset, send.value)


def refused_out_of_order(history: History) -> Iterator[str]:
    """A producer that repeats what it has sent, in order, is never told that it is out of order.

    But behind one that was given up it is, or tells so itself; and by a broker of Apache Kafka that
    was restarted, which knows no more than the last batch again.
    """
    if not history.knows_batches:
        return
    by_producer: dict[tuple[str, Partition], list[SentRecord]] = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.UNKNOWN and send.delivery is Delivery.EXACTLY_ONCE:
            by_producer[send.process, send.partition].append(send)
    for (process, partition), sends in by_producer.items():
        if all(send.is_out_of_order for send in sends):
            yield f"{process} was told so of {sends[0].value!r} to {partition}"


def acknowledged_out_of_order(history: History) -> Iterator[str]:
    """A producer that has one batch in flight is told of rising offsets.

    Where its records are in the end says less: a batch that was taken for lost may come late.
    """
    last: dict[tuple[str, Partition], int] = {}
    for send in history.sends:
        if send.delivery is Delivery.AT_LEAST_ONCE and send.offset is not None:
            key = (send.process, send.partition)
            if last.get(key, -1) >= send.offset:
                yield (
                    f"{send.process} was told that {send.value!r} is at {send.offset} of "
                    f"{send.partition}, after {last[key]}"
                )
            last[key] = send.offset


def lost_changes(history: History) -> Iterator[str]:
    """A topic is as the last change has left it, or one of those that had no answer.

    No promise is weaker: the metadata log is synced before it is answered from.
    """
    wanted: dict[tuple[str, str], set[int | str | None]] = {}
    decided: dict[tuple[str, str], int | str | None] = {}
    for change in history.changes:
        key = (change.topic, change.name)
        wanted.setdefault(key, set())
        if change.outcome is Outcome.OK:
            decided[key] = change.value
        elif change.outcome is Outcome.UNKNOWN:
            wanted[key].add(change.value)
    for (topic, name), doubtful in wanted.items():
        found = history.final_topics.get(topic)
        is_about_existence = name == PARTITION_COUNT
        if found is None and not is_about_existence:
            continue
        nothing = 0 if is_about_existence else None
        value = nothing if found is None else found.get(name, nothing)
        last = decided.get((topic, name), nothing)
        if value != last and value not in doubtful:
            yield (
                f"{name} of {topic} is {value!r}; the last change made it {last!r}, those without "
                f"an answer {sorted(map(str, doubtful))}"
            )


def reads_out_of_order(history: History) -> Iterator[str]:
    """A reader is given a partition's records in the order of their offsets, and none twice."""
    for reading in history.readings:
        for index in _steps_back(reading):
            yield _step_back(reading, index)


def reads_out_of_order_without_a_cut(history: History) -> Iterator[str]:
    """A reader goes back once for each power cut it lives through, and never else.

    Its position is behind the end of a partition that has lost records, so it goes on where the
    logs part (KIP-320), or where ``auto.offset.reset`` says. What it had fetched before the cut may
    be given after it.
    """
    for reading in history.readings:
        cuts_ns = sorted(cut for cut in history.cuts_ns if cut > reading.began_ns)
        for index in _steps_back(reading):
            if cuts_ns and cuts_ns[0] < reading.given_ns[index]:
                cuts_ns.pop(0)
            else:
                yield _step_back(reading, index)


def _steps_back(reading: Reading) -> Iterator[int]:
    for index, ((before, _), (offset, _)) in enumerate(pairwise(reading.records), 1):
        if offset <= before:
            yield index


def _step_back(reading: Reading, index: int) -> str:
    (before, _), (offset, value) = reading.records[index - 1 : index + 1]
    return (
        f"{reading.process} was given {value!r} at offset {offset} of "
        f"{reading.partition} after offset {before}"
    )


def skipped(history: History) -> Iterator[str]:
    """A reader is given all there is between the first and the last of what it is given."""
    for reading in history.readings:
        if not reading.records:
            continue
        first, last = reading.records[0][0], reading.records[-1][0]
        given = {offset for offset, _ in reading.records}
        for offset, value in history.final.get(reading.partition, ()):
            if first < offset < last and offset not in given:
                yield f"{reading.process} was not given {value!r} at {reading.partition} {offset}"


def torn_transactions(history: History) -> Iterator[str]:
    """Of a transaction everything is read, or nothing."""
    found = _final_values(history)
    by_transaction: dict[int, list[SentRecord]] = defaultdict(list)
    for send in history.sends:
        if send.transaction is not None and send.outcome is Outcome.OK:
            by_transaction[id(send.transaction)].append(send)
    for transaction in history.transactions:
        sends = by_transaction[id(transaction)]
        there = [send for send in sends if send.value in found[send.partition]]
        if there and len(there) < len(sends):
            missing = next(send for send in sends if send not in there)
            yield (
                f"{transaction.name}: {there[0].value!r} is in {there[0].partition}, and "
                f"{missing.value!r} is not in {missing.partition}"
            )


def offsets_went_back(history: History) -> Iterator[str]:
    """A group's offset is the last one committed, or one whose commit had no answer."""
    last: dict[tuple[str, Partition], int | None] = {}
    doubtful: dict[tuple[str, Partition], set[int | None]] = defaultdict(set)
    for event in history.offsets:
        if isinstance(event, Commit) and (
            event.decided is Outcome.UNKNOWN or event.may_come_again(history.patience_ns)
        ):
            doubtful[event.group, event.partition].add(event.offset)
    for event in history.offsets:
        key = (event.group, event.partition)
        if isinstance(event, Looked):
            wanted = last.get(key)
            if event.offset != wanted and event.offset not in doubtful[key]:
                yield (
                    f"{event.group} had {event.offset} for {event.partition}; the last commit "
                    f"was {wanted}, those without an answer {sorted(map(str, doubtful[key]))}"
                )
        elif event.decided is Outcome.OK:
            last[key] = event.offset


def owned_twice(history: History) -> Iterator[str]:
    """In a generation a partition is one member's."""
    found: dict[tuple[str, int, Partition], str] = {}
    for each in history.owned:
        if each.generation < 0:
            # It has lost its place since.
            continue
        key = each.group, each.generation, each.partition
        if found.setdefault(key, each.process) != each.process:
            yield (
                f"{each.partition} was given to {found[key]} and to {each.process} in generation "
                f"{each.generation} of {each.group}"
            )


def late_commits(history: History) -> Iterator[str]:
    """Nobody commits who was in an earlier generation than one that was known before."""
    for event in history.offsets:
        if not isinstance(event, Commit) or event.generation < 0:
            continue
        if event.decided is Outcome.OK:
            newer = [
                each
                for each in history.owned
                if each.group == event.group
                and each.generation > event.generation
                and each.at_ns < event.began_ns
            ]
            if newer:
                yield (
                    f"{event.group} took {event.offset} for {event.partition} from generation "
                    f"{event.generation}, when {newer[0].process} was in {newer[0].generation}"
                )


def begun_before_a_commit(history: History) -> Iterator[str]:
    """Who is given a partition begins where its group has come to, or behind that."""
    by_place: dict[tuple[str | None, Partition], list[Commit]] = defaultdict(list)
    for event in history.offsets:
        if isinstance(event, Commit) and event.decided is Outcome.OK and event.at_ns >= 0:
            by_place[event.group, event.partition].append(event)
    for reading in history.readings:
        before = [
            commit
            for commit in by_place[reading.group, reading.partition]
            if commit.at_ns < reading.began_ns
        ]
        if not before or not reading.records:
            continue
        # In the order in which they ended: the last one counts, if none came again after it.
        again = [each.offset for each in before if each.may_come_again(history.patience_ns)]
        least = min([before[-1].offset, *again])
        if reading.records[0][0] < least:
            yield (
                f"{reading.process} began at {reading.records[0][0]} of {reading.partition}, "
                f"after {before[-1].offset} was committed"
            )


def copied_wrongly(history: History) -> Iterator[str]:
    """Each record of an input is in the output once, if it is before the group's last offset."""
    for source, target, group in history.copies:
        count: dict[bytes, int] = defaultdict(int)
        for partition, records in history.final.items():
            if partition.topic == target:
                for _, value in records:
                    count[copied(value)] += 1
        ends = {
            event.partition: event.offset
            for event in history.offsets
            if isinstance(event, Looked) and event.group == group
        }
        for partition, records in history.final.items():
            if partition.topic != source:
                continue
            for offset, value in records:
                wanted = int(offset < (ends.get(partition) or 0))
                if count[value] != wanted:
                    yield (
                        f"{value!r} at offset {offset} of {partition} is {count[value]} times in "
                        f"{target}; {group} has come to {ends.get(partition)}"
                    )


KEPT_CHECKS: dict[str, Check] = {
    "J1 inconsistent offsets": inconsistent_offsets,
    "J2 duplicate": duplicates,
    "J3 aborted read": aborted_reads,
    "J4 own write read": own_writes_read,
    # With J13, unseen: at the end everything is read.
    "J5 lost write": lost,
    # A reading goes over all polls of a reader: with J10 and J11, from poll to poll.
    "J6 skipped by a reader": skipped,
    "J7 read out of order": reads_out_of_order,
    # With J12, from call to call.
    "J9 reordered": reordered,
    "J9 refused as out of order": refused_out_of_order,
    "J12 acknowledged out of order": acknowledged_out_of_order,
    "J15 circular reads": circular_reads,
    "J16 circular reads in time": circular_reads_in_time,
    "P0 invented": invented,
    "P11 unrepeatable read": unrepeatable,
    "G1 owned twice": owned_twice,
    "G5 late commit": late_commits,
    "G6 begun before a commit": begun_before_a_commit,
    "G7 offset went back": offsets_went_back,
    "T1 torn transaction": torn_transactions,
    "T5 not exactly once": copied_wrongly,
    "A1 lost change": lost_changes,
}

_PREFIX: dict[str, Check] = {
    "J2 duplicate": repeated,
    "J7 read out of order": reads_out_of_order_without_a_cut,
    "J9 reordered": reordered,
    "P0 invented": invented,
    "P1 lost before others": lost_before_others,
    "A1 lost change": lost_changes,
}
