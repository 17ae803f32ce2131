"""The runtime that all coordinators share: from a request to a machine's step and back.

For every partition of a coordinator's topic that this broker leads there is a shard. There are
three ways to have its machine take a step:

- ``submit``: the command of a request. It returns what the handler answers, now or later.
- ``call``: a command that a task waits for. A refusal is raised.
- ``post``: an event for one machine or for all. Nobody waits for it.

Every step is carried out in this order: append, replay, and once the records are committed, reply
and act. So are the steps of a machine's timers. A batch that needs no step (a marker, or a repeated
offset commit) is appended to its ``shard`` directly. If a shard is loading, or not on this broker,
commands are refused with the errors that clients expect.

A step that fails for any other reason than a refusal is a bug. Its client gets
UNKNOWN_SERVER_ERROR, and nobody else is affected. If its records may be in the log but only partly
in the machine, the machine is discarded, and a new one loads the log.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dohle.coordination.effects import CoordinatorMachine, Effects, Ticket
from dohle.coordination.partitioning import partition_for
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import finish
from dohle.protocol.apis import Coordinator
from dohle.protocol.schema import Response
from dohle.records.compression.codecs import Codec
from dohle.server.coordinators.loading import Loader
from dohle.server.coordinators.machine_timers import MachineTimers
from dohle.server.coordinators.replies import Refuse, Replies
from dohle.server.coordinators.shard import Shard, ShardDriver, ShardState, gone, not_committed
from dohle.server.net.outcome import Answer
from dohle.server.partitions.partitions import Partition
from dohle.storage.producers.append import NO_VERIFICATION, VerificationGuard

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

logger = logging.getLogger("dohle.server")

M = TypeVar("M", bound=CoordinatorMachine)
Command = Callable[[M, Ticket], Effects]


class CoordinatorRuntime(Generic[M]):
    """The shards of one coordinator on this broker."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        broker: BrokerServer,
        kind: Coordinator,
        topic: TopicName,
        make_machine: Callable[[int], M],
        *,
        read_bytes: int,
        timeout_ms: int,
        codec: Codec = Codec.NONE,
        act: Callable[[int, int, object], None] | None = None,
    ) -> None:
        """Prepare for a topic.

        A reply that waits longer than ``timeout_ms`` for its commit becomes an error. ``act``
        carries out a machine's actions; it gets the partition, its leader epoch and the action.
        """
        self.topic = topic
        self._loop = loop
        self._broker = broker
        self._make_machine = make_machine
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._act = act
        self._shards: dict[int, Shard[M]] = {}
        self._topic_id: Uuid | None = None
        self._partition_count = 0
        self._replies = Replies(loop)
        self._timers = MachineTimers(
            loop, broker.clock, broker.turns, self._carry_out, self._write_soon
        )
        self._commit_timers: dict[int, TimerHandle] = {}
        self._loader: Loader[M] = Loader(
            broker.turns, kind, read_bytes, self._activate, self._give_up_loading
        )
        self._is_write_due = False
        self._driver = ShardDriver(
            broker.note_unwritten, self._timers.reschedule, self._begin_anew, broker.commits
        )

    # Who coordinates what

    def partition_of(self, key: str) -> int | None:
        """Return the partition that coordinates a key; None if the topic does not exist yet.

        Partitions that are added to the topic count only after a restart, as in Kafka: until then
        every key keeps its coordinator.
        """
        topic = self._broker.image.topic(self.topic)
        if topic is None:
            return None
        if topic.id != self._topic_id:
            self._topic_id = topic.id
            self._partition_count = len(topic.partitions)
        return partition_for(key, self._partition_count)

    def active(self) -> Iterator[tuple[int, M]]:
        """Iterate over the machines of this broker that have finished loading."""
        for index, shard in list(self._shards.items()):
            if shard.state is ShardState.ACTIVE:
                yield index, shard.machine

    @property
    def is_loading(self) -> bool:
        """Tell whether any shard is still loading."""
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())

    # Commands

    def submit(self, key: str, command: Command[M], refuse: Refuse) -> Answer:
        """Run the command of a request; the answer is always a response, now or later.

        If the command's only effect besides records is its own reply, the reply is made when the
        appends of this read event are written. If writing commits them, because there are no
        followers, no future is needed.
        """
        try:
            shard, ticket, effects = self._run(self.partition_of(key), command)
        except KafkaError as error:
            return refuse(error)
        replies = effects.replies
        if len(replies) == 1 and replies[0].ticket == ticket and not effects.actions:
            if effects.has_records:
                if effects.undo is None:
                    return self._answer_late(shard, effects, refuse)
            elif shard.is_settled:
                self._timers.reschedule(shard)
                answer = replies[0].answer
                return refuse(answer) if isinstance(answer, KafkaError) else answer
        future = self._replies.wait(ticket, shard.index, refuse)
        self._carry_out(shard, effects)
        return future

    def _answer_late(self, shard: Shard[M], effects: Effects, refuse: Refuse) -> Answer:
        try:
            self._append_records(shard, effects)
        except KafkaError as error:
            self._log_refusal(shard, error)
            return refuse(error)
        self._timers.reschedule(shard)
        ((ticket, answer),) = effects.replies
        end_offset = shard.partition.log.log_end_offset

        def late() -> Response | Future[Any]:
            loss = shard.loss
            if loss is not None:
                return refuse(loss)
            if shard.is_committed(end_offset):
                response: Response = refuse(answer) if isinstance(answer, KafkaError) else answer
                return response
            future = self._replies.wait(ticket, shard.index, refuse)
            shard.keep(effects.replies, ())
            self._expire_replies_later(shard)
            return future

        return late

    async def call(
        self,
        where: str | int,
        command: Command[M],
        *,
        guard: VerificationGuard = NO_VERIFICATION,
    ) -> Any:
        """Run a command on the partition of a key, or on a given partition; return its reply."""
        index = where if isinstance(where, int) else self.partition_of(where)
        shard, ticket, effects = self._run(index, command)
        future = self._replies.wait(ticket, shard.index, None)
        self._carry_out(shard, effects, guard)
        self._write_soon()
        return await future

    def post(self, step: Callable[[M], Effects], index: int | None = None) -> None:
        """Tell the machine of a partition, or all machines, about an event.

        A machine that is not on this broker, or still loading, is left out.
        """
        for shard in list(self._shards.values()) if index is None else [self._shards.get(index)]:
            if shard is not None and shard.state is ShardState.ACTIVE:
                try:
                    self._carry_out(shard, step(shard.machine))
                except Exception:
                    logger.exception(
                        "%s-%d: the coordinator failed to handle an event, and goes on without it."
                        " Please report this.",
                        self.topic,
                        shard.index,
                    )
        self._write_soon()

    def _run(self, index: int | None, command: Command[M]) -> tuple[Shard[M], Ticket, Effects]:
        shard = self.shard(index)
        ticket = self._replies.new_ticket()
        try:
            return shard, ticket, command(shard.machine, ticket)
        except KafkaError:
            raise
        except Exception as error:
            logger.exception(
                "%s-%d: a command failed; its client gets UNKNOWN_SERVER_ERROR. Please report"
                " this.",
                self.topic,
                shard.index,
            )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the command failed") from error

    def shard(self, index: int | None) -> Shard[M]:
        """Return the shard of a partition; KafkaError if it is not on this broker, or loading."""
        if index is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} has not been created yet"
            )
        shard = self._shards.get(index)
        # A partition has its new leader a little before the shard is closed.
        if shard is None or not shard.is_leading:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not lead {self.topic}-{index}"
            )
        if shard.state is ShardState.LOADING:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded"
            )
        return shard

    # Carrying out

    def _write_soon(self) -> None:
        """Have the appends written at the end of this turn of the loop, with those of others."""
        if not self._is_write_due:
            self._is_write_due = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._is_write_due = False
        self._broker.write_appends()

    def _carry_out(
        self, shard: Shard[M], effects: Effects, guard: VerificationGuard = NO_VERIFICATION
    ) -> None:
        if effects.has_records:
            try:
                self._append_records(shard, effects, guard)
            except KafkaError as error:
                self._append_refused(shard, effects, error)
                return
        if effects.replies or effects.actions:
            shard.keep(effects.replies, effects.actions)
            if shard.partition.log.high_watermark >= shard.partition.log.log_end_offset:
                self._deliver(shard)
            elif not effects.has_records:
                # There may be no write to come that would look at the deadlines again.
                self._expire_replies_later(shard)
        self._timers.reschedule(shard)

    def _append_records(
        self, shard: Shard[M], effects: Effects, guard: VerificationGuard = NO_VERIFICATION
    ) -> None:
        for prepared in effects.prepared:
            shard.append_prepared(prepared, effects.producer, guard)
        if effects.records:
            shard.append(effects.records, effects.producer, guard, is_atomic=effects.is_atomic)

    def _log_refusal(self, shard: Shard[M], error: KafkaError) -> None:
        logger.warning(
            "%s-%d: the log refused the coordinator's records; the client gets the error: %s",
            self.topic,
            shard.index,
            error,
        )

    def _append_refused(self, shard: Shard[M], effects: Effects, error: KafkaError) -> None:
        self._log_refusal(shard, error)
        if effects.undo is not None and shard.state is ShardState.ACTIVE:
            self._carry_out(shard, effects.undo(error))
            return
        for ticket, _ in effects.replies:
            self._replies.refuse(ticket, error)
        self._timers.reschedule(shard)

    def _deliver(self, shard: Shard[M]) -> None:
        """Send the replies that have become due, and carry out the actions."""
        for due in shard.take_committed():
            for ticket, answer in due.replies:
                self._replies.answer(ticket, answer)
            for action in due.actions:
                try:
                    if self._act is not None:
                        self._act(shard.index, shard.leader_epoch, action)
                except Exception:
                    # The replies behind it are due all the same.
                    logger.exception(
                        "%s-%d: an action of the coordinator failed, and is not repeated."
                        " Please report this.",
                        self.topic,
                        shard.index,
                    )

    # Coming and going

    def follow(self, partition: Partition) -> None:
        """Take in that a partition of the topic is new on this broker, or has a new leader."""
        index = partition.key.partition
        known = self._shards.get(index)
        leads = partition.is_led
        if known is not None:
            same_epoch = known.leader_epoch == partition.leader_epoch
            if known.partition is partition and leads and same_epoch:
                return
            self.resign(index)
        if leads:
            self._elect(index, partition)

    def _elect(self, index: int, partition: Partition) -> None:
        shard = Shard(
            index,
            partition,
            self._make_machine(index),
            self._codec,
            self._broker.clock,
            self._timeout_ms,
            self._driver,
        )
        self._shards[index] = shard
        log = partition.log
        if log.log_end_offset == log.log_start_offset:
            self._activate(shard, 0, finish(shard.machine.on_loaded()))
            return
        self._loader.load(shard)

    def _activate(self, shard: Shard[M], records: int, effects: Effects) -> None:
        shard.state = ShardState.ACTIVE
        shard.partition.on_progress = lambda: self._on_progress(shard)
        # If a write fails, the machine has replayed records that are not on disk: it must go.
        shard.partition.on_failed = lambda: self.resign(shard.index)
        if records:
            logger.info("%s-%d: loaded %d records", self.topic, shard.index, records)
        self._carry_out(shard, effects)
        self._write_soon()

    def _give_up_loading(self, shard: Shard[M]) -> None:
        if self._shards.get(shard.index) is shard:
            self.resign(shard.index)

    def _on_progress(self, shard: Shard[M]) -> None:
        """Take in that more was written or committed."""
        if shard.has_due():
            self._deliver(shard)
            if shard.has_due():
                self._expire_replies_later(shard)

    def _expire_replies_later(self, shard: Shard[M]) -> None:
        deadline_ms = shard.next_deadline_ms
        if deadline_ms is not None and shard.index not in self._commit_timers:
            delay_s = max(0, deadline_ms - self._broker.clock.monotonic_ms()) / 1000
            self._commit_timers[shard.index] = self._loop.call_later(
                delay_s, self._expire_replies, shard
            )

    def _expire_replies(self, shard: Shard[M]) -> None:
        """Refuse replies that waited too long for a commit; the records may yet be committed."""
        del self._commit_timers[shard.index]
        error = not_committed(ErrorCode.REQUEST_TIMED_OUT)
        for ticket, _ in shard.take_overdue(self._broker.clock.monotonic_ms()):
            self._replies.refuse(ticket, error)
        self._expire_replies_later(shard)

    def resign(self, index: int) -> None:
        """Close a shard: this broker no longer coordinates it."""
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        shard.state = ShardState.CLOSED
        shard.partition.on_progress = shard.partition.on_failed = None
        self._timers.cancel(index)
        commit_timer = self._commit_timers.pop(index, None)
        if commit_timer is not None:
            commit_timer.cancel()
        shard.take_all()
        self._replies.refuse_all(index, gone())

    def _begin_anew(self, shard: Shard[M]) -> None:
        """Discard a machine, and have a new one load the log."""
        self._write_soon()
        self.resign(shard.index)
        self._elect(shard.index, shard.partition)

    def close(self) -> None:
        """Close all shards."""
        for index in list(self._shards):
            self.resign(index)
        self._loader.close()
