"""A coordinator without a broker: its log is a list, and everything is committed at once.

It does what the runtime does, in the same order: append, replay, then deliver the replies. Values
are encoded and decoded on the way, so that what a restart replays is what the log would hold.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from dohle.coordination.effects import (
    CoordinatorMachine,
    Effects,
    EncodedRecord,
    PreparedBatch,
    Ticket,
    TransactionalProducer,
)
from dohle.core.errors import KafkaError
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.protocol.apis import Coordinator
from dohle.protocol.record_framing import (
    CoordinatorRecord,
    decode_coordinator_record,
    encode_coordinator_key,
    encode_coordinator_value,
)
from dohle.records.batch import batches

M = TypeVar("M", bound=CoordinatorMachine)

_STEPS_MAX = 100_000


class Stored(NamedTuple):
    """An entry of the log: a record, or the end of a transaction."""

    record: CoordinatorRecord | None
    producer: TransactionalProducer | None
    is_commit: bool = False


def encoded(record: CoordinatorRecord) -> EncodedRecord:
    """Return a record's key and value as its schemas encode them."""
    key = encode_coordinator_key(record.key)
    if record.value is None:
        return key, None
    assert record.value_version is not None
    return key, encode_coordinator_value(record.value, record.value_version)


class Driver(Generic[M]):
    """Runs one machine; ``make`` builds an empty one."""

    def __init__(
        self, kind: Coordinator, make: Callable[[], M], clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self._kind = kind
        self._make = make
        self._tickets = count(1)
        self.log: list[Stored] = []
        #: What was answered, by ticket.
        self.replies: dict[Ticket, Any] = {}
        #: What the machine asked to be done, oldest first; a test takes it from here.
        self.actions: list[object] = []
        #: Set to let the log refuse whatever is appended.
        self.append_error: KafkaError | None = None
        self.machine = make()
        self.carry_out(finish(self.machine.on_loaded()))

    def submit(self, command: Callable[[M, Ticket], Effects]) -> Ticket:
        """Run a command; its reply, now or later, is in ``replies``."""
        ticket = Ticket(next(self._tickets))
        self.carry_out(command(self.machine, ticket))
        return ticket

    def ask(self, command: Callable[[M, Ticket], Effects]) -> Any:
        """Run a command that is answered at once."""
        return self.replies.pop(self.submit(command))

    def carry_out(self, effects: Effects) -> None:
        """Append, replay, reply."""
        if effects.has_records and self.append_error is not None:
            if effects.undo is not None:
                self.carry_out(effects.undo(self.append_error))
            else:
                for ticket, _ in effects.replies:
                    self.replies[ticket] = self.append_error
            return
        for prepared in effects.prepared:
            self._append_prepared(prepared, effects.producer)
        for record in effects.records:
            self._append(record, effects.producer)
        for ticket, answer in effects.replies:
            assert ticket not in self.replies, "a request is answered once"
            self.replies[ticket] = answer
        self.actions += effects.actions

    def _append(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        stored = decode_coordinator_record(self._kind, *encoded(record))
        self.log.append(Stored(stored, producer))
        self.machine.replay(stored, producer)

    def _append_prepared(
        self, prepared: PreparedBatch, producer: TransactionalProducer | None
    ) -> None:
        """Append a batch: a restart replays its records, now they are taken in together."""
        (batch,) = batches(prepared.builder.build())
        for record in batch.records():
            assert record.key is not None
            stored = decode_coordinator_record(self._kind, record.key, record.value)
            self.log.append(Stored(stored, producer))
        prepared.take_in()

    def end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Write a transaction's marker."""
        self.log.append(Stored(None, producer, is_commit))
        self.machine.replay_end_transaction(producer, is_commit=is_commit)

    def advance(self, ms: int) -> None:
        """Let time pass, and do what falls due on the way, each at its time."""
        until = self.clock.monotonic_ms() + ms
        for _ in range(_STEPS_MAX):
            deadline = self.machine.next_deadline_ms()
            if deadline is None or deadline > until:
                self.clock.advance(until - self.clock.monotonic_ms())
                return
            self.clock.advance(max(0, deadline - self.clock.monotonic_ms()))
            effects = self.machine.expire()
            if effects is not None:
                self.carry_out(effects)
        raise AssertionError("timers keep firing without time passing")

    def restart(self) -> None:
        """Lose everything but the log, as kill -9 or a fail-over does; who waits is never told."""
        self.machine = self._make()
        for record, producer, is_commit in self.log:
            if record is not None:
                self.machine.replay(record, producer)
            elif producer is not None:
                self.machine.replay_end_transaction(producer, is_commit=is_commit)
        self.carry_out(finish(self.machine.on_loaded()))
