"""Carries out what :mod:`dohle.client.group.consumer_membership` decides: heartbeats, moves.

It runs in the background. Rules it keeps:

- One heartbeat at a time: at once if the membership has news for the coordinator, else in the
  interval that the coordinator asks for. They continue while partitions move.
- Partitions are revoked only when the caller has asked for more
  (:mod:`dohle.client.group.reader_gate`).
- A retriable error is raised to the caller when it has lasted longer than an operation may; then it
  is retried. So is a topic that must not be read, until it may. Any other error ends the
  membership, and every later read raises it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

from dohle.client.cluster import Cluster
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import answered_error, is_retriable
from dohle.client.group.consumer_membership import (
    REGEX_VERSION,
    ConsumerMembership,
    ConsumerStep,
    NameTopics,
)
from dohle.client.group.member import GiveUp, TakeOver, Topics
from dohle.client.group.membership import Rest, Revoke, Take
from dohle.client.group.reader_gate import ReaderGate
from dohle.client.net.connection import Channel, Connection
from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

logger = logging.getLogger("dohle.client")

#: Before the coordinator has said how often it wants to hear from this member.
_FIRST_INTERVAL_MS = 1000
#: What brokers' regular expressions (RE2) have a letter for.
_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


def server_regex(pattern: re.Pattern[str]) -> str:
    """Return a pattern as brokers read it, or raise why they cannot."""
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    flags = pattern.flags & ~re.UNICODE
    for flag in _FLAGS:
        flags &= ~flag
    if flags:
        raise ValueError(f"{pattern!r} has flags that regular expressions of brokers do not have")
    return f"(?{letters}){pattern.pattern}" if letters else pattern.pattern


class ConsumerProtocolMember:
    """One consumer's membership in its group; created within a running loop."""

    def __init__(
        self,
        cluster: Cluster,
        membership: ConsumerMembership,
        topics: Topics,
        channel: Channel,
        *,
        give_up: GiveUp,
        take: TakeOver,
        wake_reader: Callable[[], None],
        report: Callable[[KafkaError], None],
    ) -> None:
        self.membership = membership
        self.gate = ReaderGate(wake_reader)
        #: Why the membership has ended, if it has.
        self.failure: Exception | None = None
        self._topics = topics
        self._cluster = cluster
        self._channel = channel
        self._give_up = give_up
        self._take = take
        self._report = report
        self._is_refusal_told = False
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._moving: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to join."""
        await self.subscribe(self._topics)
        loop = asyncio.get_running_loop()
        self._moving = loop.create_task(self._run())
        self._beating = loop.create_task(self._send_heartbeats())

    async def subscribe(self, topics: Topics) -> None:
        """Read these topics instead."""
        self._topics = topics
        if isinstance(topics, re.Pattern):
            self.membership.subscribe(regex=server_regex(topics))
        else:
            self.membership.subscribe(topics)
            await _end(self._telling)
            self._telling = asyncio.get_running_loop().create_task(self._tell_of_missing(topics))
        self.wake()

    async def _tell_of_missing(self, topics: tuple[TopicName, ...]) -> None:
        """Tell of topics that do not exist; the coordinator assigns them when they do."""
        try:
            metadata = await self._cluster.retry("topics", lambda: self._cluster.refresh(topics))
        except KafkaError:
            return  # the heartbeats meet it too
        missing = sorted({*topics} - metadata.topics.keys())
        if missing:
            logger.warning(
                "group %s: topic %s does not exist; waiting for it",
                self.membership.group_id,
                ", ".join(missing),
            )

    def wake(self) -> None:
        """Check what is to be done."""
        self._wake.set()
        self._hurry.set()

    async def stop(self) -> None:
        """Move no more partitions. It stays a member, and can commit, until it leaves."""
        await _end(self._telling)
        await _end(self._moving)

    async def leave(self) -> None:
        """Tell the group that this member has stopped, or that it comes back (a static one)."""
        await _end(self._beating)
        await self._cluster.close_channel(self._channel)
        group_id = self.membership.group_id
        coordinator = self._cluster.coordinators.known(CoordinatorKind.GROUP, group_id)
        if coordinator is None or not self.membership.must_leave:
            return
        try:
            connection = await self._cluster.connection(coordinator)
            request = self.membership.leave_request()
            await connection.request(request, ConsumerGroupHeartbeatResponse)
        except KafkaError:
            pass  # the session times out instead

    async def _run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            step = self.membership.step()
            try:
                if isinstance(step, Rest):
                    await self._wake.wait()
                else:
                    await self._carry_out(step)
                    self._hurry.set()
                failures = 0
            except KafkaError as error:
                if not is_retriable(error):
                    self._fail(error)
                    return
                failures += 1
                self._report(error)
                self.gate.release_reader()
                await asyncio.sleep(self._cluster.backoff.delay_s(failures))
            except Exception as error:
                # Nobody awaits this task: the error must reach the caller here.
                self._fail(error)
                raise

    async def _carry_out(self, step: ConsumerStep) -> None:
        membership = self.membership
        match step:
            case NameTopics(topic_ids):
                membership.named(step, await self._names_of(topic_ids))
            case Revoke():
                await self.gate.hold_reader(wait=True)
                # The wait may have been long: there may be more to revoke, or all may be lost.
                step = membership.step()
                if isinstance(step, Revoke):
                    await self._give_up(step.partitions, step.is_lost)
                    membership.revoked(step)
                self.gate.release_reader()
            case Take(partitions):
                await self.gate.hold_reader(wait=False)
                membership.taking()
                await self._take(partitions)
                membership.taken()
                self.gate.release_reader()

    async def _names_of(self, topic_ids: frozenset[Uuid]) -> dict[Uuid, TopicName]:
        def known() -> dict[Uuid, TopicName]:
            return {
                topic.topic_id: topic.name
                for topic in self._cluster.metadata.topics.values()
                if topic.topic_id in topic_ids
            }

        if known().keys() != topic_ids:
            names = None if isinstance(self._topics, re.Pattern) else self._topics
            await self._cluster.retry("names of topics", lambda: self._cluster.refresh(names))
        return known()

    async def _send_heartbeats(self) -> None:
        while self.failure is None:
            try:
                if self.membership.heartbeat() is not None:
                    await self._ask_coordinator(self._send_heartbeat)
                self._is_refusal_told = False
            except KafkaError as error:
                self._heed(error)
            except Exception as error:
                # Nobody awaits this task: the error must reach the caller here.
                self._fail(error)
                raise
            self._wake.set()
            await self._wait_for_next()

    def _heed(self, error: KafkaError) -> None:
        if is_retriable(error):
            self._report(error)
        elif error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            if not self._is_refusal_told:
                self._report(error)
                self._is_refusal_told = True
        elif error.code is ErrorCode.UNSUPPORTED_VERSION:
            advice = "use group_protocol=classic with this broker"
            self._fail(KafkaError(error.code, f"{error.args[0]}: {advice}"))
        else:
            self._fail(error)

    async def _wait_for_next(self) -> None:
        membership = self.membership
        interval_ms = membership.heartbeat_interval_ms or _FIRST_INTERVAL_MS
        try:
            async with asyncio.timeout(interval_ms / 1000):
                while not membership.is_heartbeat_due or membership.heartbeat() is None:
                    self._hurry.clear()
                    await self._hurry.wait()
        except TimeoutError:
            pass

    async def _send_heartbeat(self, connection: Connection) -> None:
        membership = self.membership
        # Requested again in each attempt: what is to be said may have changed.
        request = membership.heartbeat()
        if request is None:
            return
        version = connection.version_of(ConsumerGroupHeartbeatRequest)
        if request.subscribed_topic_regex is not None and version < REGEX_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"group {membership.group_id}: it does not find topics by a pattern",
            )
        membership.sending()
        try:
            answer = await connection.request(request, ConsumerGroupHeartbeatResponse)
            if answer.error_code in COORDINATOR_UNREACHED:
                about = f"coordinator of group {membership.group_id}"
                raise answered_error(answer.error_code, about)
        except KafkaError:
            membership.unanswered()
            raise
        membership.heartbeat_answered(request, answer)

    async def _ask_coordinator(self, ask: Callable[[Connection], Awaitable[None]]) -> None:
        group_id = self.membership.group_id
        await self._cluster.coordinators.ask(
            CoordinatorKind.GROUP, group_id, f"group {group_id}", ask, channel=self._channel
        )

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.gate.end()


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
