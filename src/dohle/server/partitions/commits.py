"""Carrying out what follows when a partition's log or its replicas advance: commits and wake-ups.

``replication.partition`` decides what is committed. Here appends are written, high watermarks
advanced in the logs, and those who wait are told: requests that wait for an offset until a
deadline, the coordinator whose state is in the partition, and delayed fetches.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition
from dohle.core.seams import Clock
from dohle.replication.partition import (
    NOTHING,
    REPLICA_LAG_MS_MAX,
    UNKNOWN_BROKER_EPOCH,
    Effects,
    WantedIsr,
)
from dohle.server.net.outcome import Gate

if TYPE_CHECKING:
    from dohle.server.partitions.partitions import Partition

logger = logging.getLogger("dohle.server")

#: Called once with the result: NONE if it is committed, or why that is not known.
CommitWaiter = Callable[[ErrorCode], None]
_NOBODY_WAITED = cast("Effects[CommitWaiter]", NOTHING)


class _Timer(NamedTuple):
    deadline_ms: int
    handle: TimerHandle


class Commits:
    """The commits of all partitions of a broker."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        clock: Clock,
        recheck: Callable[[TopicPartition], None],
        lag_ms_max: int = REPLICA_LAG_MS_MAX,
    ) -> None:
        """Call ``recheck`` with each partition in which a delayed fetch may now see more."""
        self._loop = loop
        self._clock = clock
        self._recheck = recheck
        #: How long a follower that lacks records stays in the ISR.
        self.lag_ms_max = lag_ms_max
        #: The brokers that are neither fenced nor shutting down, with their epochs: all partitions
        #: look here.
        self.brokers: dict[BrokerId, int] = {}
        #: Called with each change of an ISR that the controller is to be asked for.
        self.on_wanted_isr: Callable[[Partition, WantedIsr], None] | None = None
        #: How often the controller has granted that followers come into an ISR or leave it, and how
        #: often it has refused.
        self.isr_expands = self.isr_shrinks = self.failed_isr_updates = 0
        self._timers: dict[Partition, _Timer] = {}
        #: The last one that was made, and of which.
        self._joint_gate: tuple[tuple[Gate, ...], Gate] = (), Gate()

    # Events

    def write(self, partitions: Collection[Partition]) -> None:
        """Write what was appended, with one system call for each partition."""
        if len(partitions) == 1:
            (partition,) = partitions
            self._tell_of_write(partition, self._write(partition))
            return
        written = [(partition, self._write(partition)) for partition in partitions]
        # Not before all is written: whoever is told may append, and the buffers that hold the
        # records are used again after this.
        for partition, effects in written:
            self._tell_of_write(partition, effects)

    def _tell_of_write(self, partition: Partition, effects: Effects[CommitWaiter] | None) -> None:
        """Tell those who wait at a partition that it was written, or (None) that it failed."""
        if effects is None:
            self.failed(partition)
            return
        if effects.woken:
            self._tell(partition, effects)
        if partition.on_progress is not None:
            _call(partition.on_progress)
        self._recheck(partition.key)

    def failed(self, partition: Partition) -> None:
        """Tell those who wait at a partition that its log cannot be used any more."""
        self.fail(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        _call(partition.on_failed)
        self._recheck(partition.key)

    def _write(self, partition: Partition) -> Effects[CommitWaiter] | None:
        log, replication = partition.log, partition.replication
        try:
            log.write_appends()
            end_offset = log.log_end_offset
            if replication.commit_alone(end_offset):
                log.update_high_watermark(end_offset)
                return _NOBODY_WAITED
            effects = replication.appended(end_offset, self._clock.monotonic_ms())
            if effects.high_watermark is not None:
                log.update_high_watermark(effects.high_watermark)
        except KafkaError:
            # The directory is offline now, and its produce requests are told so.
            return None
        except Exception as error:
            # An unexpected error must not look like a success to the producer.
            logger.exception(
                "%s: appends could not be written, so its log directory is taken offline."
                " Please report this.",
                partition.key,
            )
            log.disk.failed(f"appending to {partition.key}", OSError(str(error)))
            return None
        return effects

    def fetched(
        self,
        partition: Partition,
        broker: BrokerId,
        offset: int,
        log_start_offset: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """Take in that a follower has everything below ``offset``."""
        partition.replication.log_start_offset = partition.log.log_start_offset
        self.carry_out(
            partition,
            partition.replication.fetched(
                broker, offset, log_start_offset, self._clock.monotonic_ms(), broker_epoch
            ),
        )

    def replicated(self, partition: Partition, high_watermark: int, log_start_offset: int) -> None:
        """Take in where the leader's log stands, after what it has sent is written here."""
        log = partition.log
        before = log.high_watermark
        log.update_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.increment_log_start_offset(min(log_start_offset, log.high_watermark))
        self.note_end(partition)
        if log.high_watermark != before:
            # Consumers may read from a follower.
            self._recheck(partition.key)

    def note_end(self, partition: Partition) -> None:
        """Take in where the log of a follower stands, which nobody waits at."""
        log = partition.log
        partition.replication.replicated(
            log.log_start_offset, log.log_end_offset, log.high_watermark
        )

    def check_lag(self, partition: Partition) -> None:
        """Have those leave the ISR that have fallen behind."""
        effects = partition.replication.check_lag(self._clock.monotonic_ms())
        self.carry_out(partition, effects)

    def isr_answered(
        self,
        partition: Partition,
        error: ErrorCode,
        *,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        isr: tuple[BrokerId, ...] = (),
    ) -> None:
        """Take in the controller's answer about a partition's ISR."""
        if error is not ErrorCode.NONE:
            self.failed_isr_updates += 1
        else:
            self._count_granted(partition.replication.wanted_isr, isr)
        effects = partition.replication.isr_answered(
            error,
            self._clock.monotonic_ms(),
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=isr,
        )
        partition.isr_changed()
        self.carry_out(partition, effects)
        self._recheck(partition.key)

    def _count_granted(self, wanted: WantedIsr | None, isr: tuple[BrokerId, ...]) -> None:
        if wanted is not None and {broker for broker, _ in wanted.isr} == set(isr):
            if wanted.is_expansion:
                self.isr_expands += 1
            else:
                self.isr_shrinks += 1

    def assigned(self, partition: Partition) -> None:
        """Take in a partition's leader, replicas and ISR as the image has them."""
        if not partition.replication.is_leader:
            self.note_end(partition)
        wanted = partition.replication.wanted_isr
        effects = partition.replication.assigned(partition.image, self._clock.monotonic_ms())
        if partition.replication.wanted_isr is not wanted:
            # The metadata log was faster than the controller's answer.
            self._count_granted(wanted, partition.image.isr)
        self.carry_out(partition, effects)

    def min_isr_changed(self, partition: Partition, min_isr: int) -> None:
        """Take in a new value of min.insync.replicas."""
        effects = partition.replication.min_isr_changed(min_isr, self._clock.monotonic_ms())
        self.carry_out(partition, effects)

    def fail(self, partition: Partition, error: ErrorCode) -> None:
        """End all waits for a partition that is gone or cannot be written."""
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.handle.cancel()
        self._tell(partition, partition.replication.failed(error))

    def carry_out(self, partition: Partition, effects: Effects[CommitWaiter]) -> None:
        """Do what follows from an event."""
        if effects.wanted_isr is not None and self.on_wanted_isr is not None:
            self.on_wanted_isr(partition, effects.wanted_isr)
        if effects.high_watermark is not None:
            partition.log.update_high_watermark(effects.high_watermark)
        self._tell(partition, effects)
        if effects.high_watermark is not None:
            _call(partition.on_progress)
            self._recheck(partition.key)

    def _tell(self, partition: Partition, effects: Effects[CommitWaiter]) -> None:
        for waiter, error in effects.woken:
            _call(partial(waiter, error))

    # Waiting

    def wait(
        self, partition: Partition, offset: int, timeout_ms: int, waiter: CommitWaiter
    ) -> None:
        """Call ``waiter`` when everything below ``offset`` is committed: at once if it is."""
        replication = partition.replication
        if offset <= replication.high_watermark:
            waiter(ErrorCode.NONE)
        elif not replication.is_leader:
            waiter(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.is_gone:
            waiter(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            deadline_ms = self._clock.monotonic_ms() + max(0, timeout_ms)
            replication.wait_for_commit(offset, deadline_ms, waiter)
            self._expire_at(partition, deadline_ms)

    def gate(self, partition: Partition, timeout_ms: int) -> Gate:
        """Return a gate that opens when all that is in the log now is committed.

        Callers share a gate until more is appended: a follower mostly fetches in one request what
        was written together.
        """
        end_offset = partition.log.log_end_offset
        known = partition.gate
        if known is not None:
            gate, asked_offset, asked_ms = known
            if asked_offset == end_offset and asked_ms == timeout_ms and gate.code is None:
                return gate
        gate = Gate()
        partition.gate = gate, end_offset, timeout_ms
        self.wait(partition, end_offset, timeout_ms, gate.open)
        return gate

    def joint_gate(self, gates: tuple[Gate, ...]) -> Gate:
        """Return a gate that opens when all of these are open; each knows how its own wait ended.

        Callers share it like the gates themselves, if they ask one after the other.
        """
        if len(gates) == 1:
            return gates[0]
        asked, joint = self._joint_gate
        if gates == asked and joint.code is None:
            return joint
        joint = Gate()
        left = sum(gate.code is None for gate in gates)

        def opened() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                joint.open(ErrorCode.NONE)

        for gate in gates:
            if gate.code is None:
                gate.on_open.append(opened)
        if not left:
            joint.open(ErrorCode.NONE)
        self._joint_gate = gates, joint
        return joint

    def wait_for_deletion(
        self, partition: Partition, offset: int, timeout_ms: int, waiter: CommitWaiter
    ) -> None:
        """Call ``waiter`` when no live replica has records below ``offset``: at once if so."""
        replication = partition.replication
        replication.log_start_offset = partition.log.log_start_offset
        if offset <= replication.low_watermark:
            waiter(ErrorCode.NONE)
        elif not replication.is_leader:
            waiter(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.is_gone:
            waiter(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            deadline_ms = self._clock.monotonic_ms() + max(0, timeout_ms)
            replication.wait_for_deletion(offset, deadline_ms, waiter)
            self._expire_at(partition, deadline_ms)

    def wait_for_all(
        self, appended: Sequence[tuple[Partition, int]], timeout_ms: int
    ) -> Future[list[ErrorCode]]:
        """Wait for several commits; the future gets the result of each, in the same order."""
        return gathered(
            self._loop,
            [partial(self.wait, partition, offset, timeout_ms) for partition, offset in appended],
        )

    def _expire_at(self, partition: Partition, deadline_ms: int) -> None:
        timer = self._timers.get(partition)
        if timer is not None:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.handle.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        handle = self._loop.call_later(delay_ms / 1000, self._expire, partition)
        self._timers[partition] = _Timer(deadline_ms, handle)

    def _expire(self, partition: Partition) -> None:
        del self._timers[partition]
        for waiter in partition.replication.expire(self._clock.monotonic_ms()):
            _call(partial(waiter, ErrorCode.REQUEST_TIMED_OUT))
        following = partition.replication.next_deadline_ms
        if following is not None:
            self._expire_at(partition, following)

    @property
    def waited_for(self) -> list[Partition]:
        """The partitions at which somebody waits for a commit."""
        return list(self._timers)

    def stop(self) -> None:
        """End all waits: the broker stops."""
        for partition in list(self._timers):
            self.fail(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def gathered(
    loop: AbstractEventLoop, waits: Sequence[Callable[[CommitWaiter], None]]
) -> Future[list[ErrorCode]]:
    """Return a future that gets the results of all these waits, in their order."""
    future: Future[list[ErrorCode]] = loop.create_future()
    codes = [ErrorCode.NONE] * len(waits)
    left = len(waits)

    def ended(number: int, code: ErrorCode) -> None:
        nonlocal left
        codes[number] = code
        left -= 1
        if left == 0 and not future.done():
            future.set_result(codes)

    if not waits:
        # Everything has happened meanwhile: there is nothing to wait for.
        future.set_result([])
    for number, wait in enumerate(waits):
        wait(partial(ended, number))
    return future


def _call(told: Callable[[], None] | None) -> None:
    """Tell one who waits; if that fails, the others are told all the same."""
    try:
        if told is not None:
            told()
    except Exception:
        logger.exception(
            "a request or coordinator failed to handle the end of its wait for a commit."
            " Please report this."
        )
