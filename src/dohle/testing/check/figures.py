"""Figures of a check, added up round by round, so that a long one needs no more memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from dohle.testing.check.load import PARTITIONS, RoundTopics
from dohle.testing.checking.history import History, Outcome, Partition

_NS = 1_000_000_000
#: A partition for which producers wait so long for an acknowledgement is counted as unavailable.
GAP_S_MIN = 1.0
#: No more of the longest are kept.
_GAPS_MAX = 2_000
_LONE_READER = "reader-1"


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without an acknowledgement, though records were waiting."""

    partition: int
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.ended_s - self.began_s


@dataclass(frozen=True, slots=True)
class Counts:
    """What was done."""

    sends: int = 0
    acknowledged: int = 0
    failed: int = 0
    #: Neither acknowledged nor aborted nor refused: it may be there or not.
    unknown: int = 0
    committed: int = 0
    aborted: int = 0
    undecided: int = 0
    read: int = 0
    commits: int = 0
    #: Records that members of one group were given more than once: at least once is promised.
    read_again: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Add up."""
        return Counts(
            *(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__)
        )

    @property
    def unknown_share(self) -> float:
        """How many of the records say nothing: neither that they must be there nor that not."""
        return self.unknown / self.sends if self.sends else 0.0


def count(history: History, groups: tuple[str, ...]) -> Counts:
    """Count what one round has seen."""
    outcomes = Counter(send.outcome for send in history.sends)
    ends = Counter(each.outcome for each in history.transactions)
    return Counts(
        len(history.sends),
        outcomes[Outcome.OK],
        outcomes[Outcome.FAILED],
        sum(not (send.must_be_read or send.must_not_be_read) for send in history.sends),
        ends[Outcome.OK],
        ends[Outcome.FAILED],
        ends[Outcome.UNKNOWN],
        sum(len(reading.records) for reading in history.readings),
        sum(getattr(each, "outcome", None) is Outcome.OK for each in history.offsets),
        _read_again(history, groups),
    )


def _read_again(history: History, groups: tuple[str, ...]) -> int:
    """J18: a group's members are named after it."""
    given: Counter[tuple[str, Partition, int]] = Counter()
    kinds = {group.rpartition("-")[0].removesuffix("s") for group in groups}
    for reading in history.readings:
        kind = reading.process.partition("-")[0]
        if kind in kinds:
            given.update((kind, reading.partition, offset) for offset, _ in reading.records)
    return sum(times - 1 for times in given.values())


@dataclass(slots=True)
class Figures:
    """What a page shows, by seconds since the check began."""

    acknowledged: Counter[int] = field(default_factory=Counter)
    read: Counter[int] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    #: J17: how long after its acknowledgement a record was read, at most; by second.
    lag_s: dict[int, float] = field(default_factory=dict)

    def add(self, history: History, topics: RoundTopics, counts: Counts) -> None:
        """Take in a round."""
        self.counts += counts
        acknowledged_ns = {}
        by_partition: dict[int, list[int]] = defaultdict(list)
        for send in history.sends:
            if send.at_ns >= 0:
                self.acknowledged[send.at_ns // _NS] += 1
                acknowledged_ns[send.partition, send.value] = send.at_ns
                if send.partition.topic == topics.input:
                    by_partition[send.partition.number].append(send.at_ns)
        self.gaps += _gaps(by_partition)
        self.gaps.sort(key=lambda gap: gap.seconds, reverse=True)
        del self.gaps[_GAPS_MAX:]
        for reading in history.readings:
            if not reading.process.startswith(_LONE_READER):
                continue
            for (_, value), at_ns in zip(reading.records, reading.given_ns, strict=True):
                second = at_ns // _NS
                self.read[second] += 1
                since_ns = acknowledged_ns.get((reading.partition, value), at_ns)
                lag_s = max(at_ns - since_ns, 0) / _NS
                self.lag_s[second] = max(self.lag_s.get(second, 0.0), lag_s)

    @property
    def unavailable_s(self) -> list[float]:
        """How long each partition of the input was unavailable, all in all."""
        total = [0.0] * PARTITIONS
        for gap in self.gaps:
            total[gap.partition] += gap.seconds
        return total


def _gaps(by_partition: dict[int, list[int]]) -> Iterator[Gap]:
    for partition, times in by_partition.items():
        for before_ns, after_ns in pairwise(sorted(times)):
            if after_ns - before_ns >= GAP_S_MIN * _NS:
                yield Gap(partition, before_ns / _NS, after_ns / _NS)
