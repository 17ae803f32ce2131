"""What a step of a coordinator gives: records to append, replies that are due, things to do.

A coordinator is a machine: one for each partition of its topic. A command is looked at against the
state and gives :class:`Effects`, or is refused with a :class:`~dohle.core.errors.KafkaError` and
changes nothing. The driver appends the records as one batch, replays them into the machine, and
sends the replies and carries out the actions when the records are committed. Durable state changes
by replaying records only, so that running, a restart and a fail-over are the same code.

A group also has state that no record tells, such as who waits for a rebalance. A command may change
that at once; should its records be refused by the log, ``undo`` says how to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NewType, Protocol

from dohle.core.errors import KafkaError
from dohle.core.ids import ProducerId
from dohle.core.steps import PlainSteps
from dohle.protocol.record_framing import CoordinatorRecord
from dohle.records.builder import BatchBuilder

#: Stands for a request that waits for its reply; a machine keeps it until the reply is due.
Ticket = NewType("Ticket", int)

#: The key and the value of a record as they are written; no value means that the key is deleted.
EncodedRecord = tuple[bytes, bytes | None]


class PreparedBatch(NamedTuple):
    """Records that were encoded ahead of their step, since there may be very many."""

    builder: BatchBuilder
    #: Lets the machine take in all of them, as ``replay`` does one by one.
    take_in: Callable[[], None]


class Reply(NamedTuple):
    """The answer to a request: a response message, or whatever its handler asked for."""

    ticket: Ticket
    answer: Any


class TransactionalProducer(NamedTuple):
    """In whose transaction records are written: they count when its commit marker is."""

    id: ProducerId
    epoch: int


@dataclass(slots=True)
class Effects:
    """What is to happen after a step."""

    #: Appended as one batch, unless ``is_atomic`` is off: then in as many as they need.
    records: list[CoordinatorRecord] = field(default_factory=list)
    #: Appended before the records, each by itself.
    prepared: Sequence[PreparedBatch] = field(default=(), kw_only=True)
    #: Due when the records, and all before them, are committed.
    replies: list[Reply] = field(default_factory=list)
    #: What the driver has to do then, such as writing transaction markers.
    actions: list[object] = field(default_factory=list)
    #: Of a transactional batch.
    producer: TransactionalProducer | None = None
    is_atomic: bool = True
    #: What to do if the log refuses the records. Without it the replies become that error.
    undo: Callable[[KafkaError], Effects] | None = None

    @property
    def has_records(self) -> bool:
        """Tell whether there is something to append."""
        return bool(self.records or self.prepared)

    def reply(self, ticket: Ticket, answer: object) -> Effects:
        """Add a reply; returns itself."""
        self.replies.append(Reply(ticket, answer))
        return self

    def and_then(self, other: Effects) -> Effects:
        """Add what another step gives, which must be of the same kind; returns itself."""
        if other.producer != self.producer or (self.undo and other.undo):
            raise ValueError("these effects cannot be written as one")
        if self.prepared or other.prepared:
            raise ValueError("a prepared batch is written by itself")
        if other.records:
            if self.records and self.is_atomic != other.is_atomic:
                raise ValueError("only one of these effects is atomic")
            self.is_atomic = other.is_atomic
        self.records += other.records
        self.replies += other.replies
        self.actions += other.actions
        self.undo = self.undo or other.undo
        return self


class CoordinatorMachine(Protocol):
    """What the driver asks of every coordinator, beside its commands."""

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Take in a record that is in the log; with a producer it is part of its transaction."""

    def replay_end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Take in a transaction's end marker."""

    def on_loaded(self) -> PlainSteps[Effects]:
        """Go on where the log ends: everything in it has been replayed.

        There are no commands before the last step.
        """

    def next_deadline_ms(self) -> int | None:
        """Tell when, on the monotonic clock, ``expire`` has something to do."""

    def expire(self) -> Effects | None:
        """Do what is due, one thing at a time; None if there is nothing."""
