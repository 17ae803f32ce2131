"""What the clients of a cluster did and saw, as far as it can be judged.

An operation is noted when it begins, and again when its outcome is known. One that never ends, or
ends with an error that does not say whether it was carried out, stays ``UNKNOWN``: it may have
taken effect, and may still do so later. To take such an error for ``FAILED`` makes false alarms; to
take a failure for ``UNKNOWN`` hides defects.

Values are unique in a history, so that each names the operation that has written it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

#: The property of a topic that says how many partitions it has; 0 if it is not there.
PARTITION_COUNT = "partitions"
_NEVER_NS = 1 << 62


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Outcome(Enum):
    """What is known of an operation's effect."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Delivery(Enum):
    """What a producer's settings promise of a record that it sends."""

    #: acks=all and idempotence: where it is, it is once and behind what was sent before.
    EXACTLY_ONCE = "exactly once"
    #: acks=1 or all, without idempotence: what is sent again may be there twice, also much later.
    AT_LEAST_ONCE = "at least once"
    #: acks=0: it is sent once, and nobody learns whether it has arrived, nor in which order.
    AT_MOST_ONCE = "at most once"


@dataclass(slots=True, eq=False)
class ClientTransaction:
    """One transaction of a client: OK is committed, FAILED is aborted."""

    name: str
    outcome: Outcome = Outcome.UNKNOWN
    #: When it began, and when its producer learnt that it is committed.
    began_ns: int = 0
    ended_ns: int = -1
    #: What was read while it was open, by who has written it.
    reads: list[tuple[Partition, bytes]] = field(default_factory=list)

    def committed(self, at_ns: int) -> None:
        """Take note that it is committed."""
        self.outcome, self.ended_ns = Outcome.OK, at_ns


@dataclass(slots=True, eq=False)
class SentRecord:
    """A record that a producer was given."""

    #: The producer: one instance, in whose order its records are to be found.
    process: str
    partition: Partition
    value: bytes
    transaction: ClientTransaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    #: When it was sent, and when its producer learnt that it is written.
    began_ns: int = 0
    at_ns: int = -1
    delivery: Delivery = Delivery.EXACTLY_ONCE
    #: Whether its producer was told that others are missing before it.
    is_out_of_order: bool = False

    def acknowledged(self, offset: int, at_ns: int) -> None:
        """Take note that it is written."""
        self.outcome, self.offset, self.at_ns = Outcome.OK, offset, at_ns

    @property
    def must_be_read(self) -> bool:
        """Whether readers of committed records are to find it."""
        if self.transaction is not None:
            return self.transaction.outcome is Outcome.OK and self.outcome is Outcome.OK
        return self.outcome is Outcome.OK

    @property
    def must_not_be_read(self) -> bool:
        """Whether readers of committed records must not find it."""
        if self.transaction is not None and self.transaction.outcome is Outcome.FAILED:
            return True
        return self.outcome is Outcome.FAILED


@dataclass(slots=True, eq=False)
class Reading:
    """Records of one partition as one reader was given them, without a seek or a rebalance."""

    process: str
    partition: Partition
    records: list[tuple[int, bytes]] = field(default_factory=list)
    #: When it began, and when each of the records was given.
    began_ns: int = 0
    #: The group that has told where to begin, if one has.
    group: str | None = None
    given_ns: list[int] = field(default_factory=list)

    def given(self, offset: int, value: bytes, at_ns: int) -> None:
        """Note a record."""
        self.records.append((offset, value))
        self.given_ns.append(at_ns)


@dataclass(slots=True, eq=False)
class Commit:
    """An offset that a group has committed for a partition."""

    group: str
    partition: Partition
    offset: int
    outcome: Outcome = Outcome.UNKNOWN
    #: If it is part of one: then that decides.
    transaction: ClientTransaction | None = None
    #: Of a classic group, which the committer was in; -1 if that is not known.
    generation: int = -1
    #: When it was sent, and when the committer learnt that it counts.
    began_ns: int = 0
    at_ns: int = -1

    def may_come_again(self, patience_ns: int) -> bool:
        """Tell whether it was sent twice: the first may still be on its way."""
        return self.at_ns - self.began_ns >= patience_ns

    @property
    def decided(self) -> Outcome:
        """Whether it counts."""
        if self.transaction is not None and self.outcome is Outcome.OK:
            return self.transaction.outcome
        return self.outcome


@dataclass(frozen=True, slots=True)
class Owned:
    """A partition that a member of a classic group was told to read."""

    group: str
    generation: int
    partition: Partition
    process: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Looked:
    """What a group's offset was when somebody asked; None if it had none."""

    group: str
    partition: Partition
    offset: int | None


@dataclass(slots=True, eq=False)
class TopicChange:
    """A property of a topic that somebody sets: the last one that does so decides.

    One that creates or deletes topics sets their number of partitions, which is 0 of none.
    """

    topic: str
    name: str
    value: int | str | None
    outcome: Outcome = Outcome.UNKNOWN


class History:
    """Everything that the clients of one run did and saw."""

    def __init__(self) -> None:
        self.sends: list[SentRecord] = []
        self.transactions: list[ClientTransaction] = []
        self.readings: list[Reading] = []
        #: In the order in which they ended (commits that did not, began) and were asked.
        self.offsets: list[Commit | Looked] = []
        #: How long clients wait for an answer before they ask again: what they have asked for may
        #: then happen twice, once much later.
        self.patience_ns = _NEVER_NS
        #: Whether brokers know a producer's last five batches behind a restart. Kafka's know one.
        self.knows_batches = False
        #: In the order in which members learnt of it.
        self.owned: list[Owned] = []
        #: When power was cut of what was not synced.
        self.cuts_ns: list[int] = []
        #: What a reader of committed records finds at the end, in order; and any reader.
        self.final: dict[Partition, list[tuple[int, bytes]]] = {}
        #: What topics were copied: input, output and the group that did it.
        self.copies: list[tuple[str, str, str]] = []
        #: In the order in which they began; one after the other for each topic.
        self.changes: list[TopicChange] = []
        #: The properties of topics at the end; of those that are there.
        self.final_topics: dict[str, dict[str, int | str | None]] = {}
        self._values = 0

    def send(
        self, process: str, partition: Partition, transaction: ClientTransaction | None = None
    ) -> SentRecord:
        """Note a record that is about to be sent, with a value of its own."""
        self._values += 1
        return self.add(SentRecord(process, partition, b"v%d" % self._values, transaction))

    def copy(
        self, process: str, partition: Partition, value: bytes, transaction: ClientTransaction
    ) -> SentRecord:
        """Note a copy of a record that is about to be sent; another attempt is another value."""
        self._values += 1
        return self.add(
            SentRecord(process, partition, b"%s #%d" % (value, self._values), transaction)
        )

    def add(self, send: SentRecord) -> SentRecord:
        """Note a record whose value is given."""
        self.sends.append(send)
        return send

    def begin(self, process: str, at_ns: int = 0) -> ClientTransaction:
        """Note a transaction that begins."""
        made = ClientTransaction(f"{process} #{len(self.transactions)}", began_ns=at_ns)
        self.transactions.append(made)
        return made

    def read_by(
        self, process: str, partition: Partition, began_ns: int = 0, group: str | None = None
    ) -> Reading:
        """Note that a reader begins to read a partition, where its group has come to."""
        made = Reading(process, partition, began_ns=began_ns, group=group)
        self.readings.append(made)
        return made

    def commit(
        self,
        group: str,
        offsets: dict[Partition, int],
        transaction: ClientTransaction | None = None,
        *,
        generation: int = -1,
        began_ns: int = 0,
    ) -> list[Commit]:
        """Note offsets that are about to be committed."""
        made = [
            Commit(group, each, at, Outcome.UNKNOWN, transaction, generation, began_ns)
            for each, at in offsets.items()
        ]
        self.offsets += made
        return made

    def committed(self, commits: Sequence[Commit], at_ns: int = -1) -> None:
        """Note that offsets were committed, just now."""
        for commit in commits:
            commit.outcome, commit.at_ns = Outcome.OK, at_ns
            self.offsets.remove(commit)
            self.offsets.append(commit)

    def change(self, topic: str, name: str, value: int | str | None) -> TopicChange:
        """Note a change of a topic that is about to be asked for."""
        self.changes.append(TopicChange(topic, name, value))
        return self.changes[-1]

    def looked(self, group: str, partition: Partition, offset: int | None) -> None:
        """Note what a group's offset was."""
        self.offsets.append(Looked(group, partition, offset))


def copied(value: bytes) -> bytes:
    """Return the value of which this one is a copy."""
    return value.rpartition(b" #")[0]
