"""Carries out what :mod:`dohle.client.group.membership` decides: requests, heartbeats, revocations.

It runs in the background, on a channel of its own, since a JoinGroup is answered only when all
members have joined. Rules it keeps:

- Partitions are revoked only when the caller has asked for more
  (:mod:`dohle.client.group.reader_gate`). Until then heartbeats continue.
- A topic that does not exist is told of in the log, and looked for every second.
- A retriable error is raised to the caller when it has lasted longer than an operation may; then it
  is retried. Any other error ends the membership, and every later read raises it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from dohle.client.cluster import Cluster
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import answered_error, is_retriable
from dohle.client.group.membership import (
    NO_MEMBER_ID,
    CountPartitions,
    GroupMembership,
    Join,
    Rest,
    Revoke,
    Save,
    Step,
    Sync,
    Take,
)
from dohle.client.group.reader_gate import ReaderGate
from dohle.client.net.connection import Channel, Connection
from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.messages.heartbeat import HeartbeatResponse
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from dohle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from dohle.protocol.messages.sync_group import SyncGroupResponse
from dohle.protocol.schema import Request

logger = logging.getLogger("dohle.client")

Topics = tuple[TopicName, ...] | re.Pattern[str]
GiveUp = Callable[[tuple[TopicPartition, ...], bool], Awaitable[None]]
TakeOver = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]

_Answer = TypeVar("_Answer", JoinGroupResponse, SyncGroupResponse)
_Result = TypeVar("_Result")

#: A JoinGroup is answered after the rebalance timeout at the latest.
_JOIN_GRACE_MS = 5000
_MEMBER_ID_TIMEOUT_S = 2
#: How often a topic is looked for that does not exist.
_MISSING_S = 1.0
#: Errors of a subscribed topic that no waiting mends.
_REFUSED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


class GroupMember:
    """One consumer's membership in its group; created within a running loop."""

    def __init__(
        self,
        cluster: Cluster,
        membership: GroupMembership,
        topics: Topics,
        channel: Channel,
        *,
        heartbeat_interval_ms: int,
        rebalance_timeout_ms: int,
        give_up: GiveUp,
        save: Callable[[], Awaitable[None]],
        take: TakeOver,
        wake_reader: Callable[[], None],
        report: Callable[[KafkaError], None],
    ) -> None:
        self.membership = membership
        self.topics = topics
        self.gate = ReaderGate(wake_reader)
        #: Why the membership has ended, if it has.
        self.failure: Exception | None = None
        self._cluster = cluster
        self._channel = channel
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._give_up = give_up
        self._save = save
        self._take = take
        self._report = report
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        #: Subscribed topics that do not exist.
        self._missing: frozenset[TopicName] = frozenset()
        self._were_topics_looked_at = asyncio.Event()

    async def start(self) -> None:
        """Find out which topics there are, and start to join."""
        await self.look_at_topics()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run()),
            loop.create_task(self._send_heartbeats()),
            loop.create_task(self._watch_topics()),
        ]

    def wake(self) -> None:
        """Check what is to be done."""
        self._wake.set()

    async def subscribe(self, topics: Topics) -> None:
        """Read these topics instead."""
        self.topics = topics
        await self.look_at_topics()

    async def look_at_topics(self) -> None:
        """Rejoin if the topics, or their partition counts, have changed."""
        membership = self.membership
        if isinstance(self.topics, re.Pattern):
            metadata = await self._cluster.retry("list topics", lambda: self._cluster.refresh(None))
            membership.subscribe(
                topic.name
                for topic in metadata.topics.values()
                if not topic.is_internal and self.topics.fullmatch(topic.name)
            )
        else:
            membership.subscribe(self.topics)
        watched = membership.watched_topics
        if watched is not None and await self._count(watched) != watched:
            membership.rejoin()
        self._were_topics_looked_at.set()
        self.wake()

    async def _check_topics(self) -> bool:
        """Tell whether all topics exist; fail if one of ours may not be read."""
        ours = () if isinstance(self.topics, re.Pattern) else self.topics
        names = {*ours, *(self.membership.watched_topics or ())}
        try:
            counts = await self._count(names) if names else {}
        except KafkaError as error:
            # What may pass is told by the join, which meets it too.
            if not is_retriable(error):
                self._fail(error)
            return False
        errors = self._cluster.metadata.errors
        for name in ours:
            if (refusal := errors.get(name)) is not None and refusal.code in _REFUSED:
                self._fail(refusal)
                return False
        missing = frozenset(name for name, count in counts.items() if not count)
        if new := (missing - self._missing).intersection(ours):
            logger.warning(
                "group %s: topic %s does not exist; waiting for it",
                self.membership.group_id,
                ", ".join(sorted(new)),
            )
        self._missing = missing
        return not missing

    async def stop(self) -> None:
        """Stop without leaving yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A join that is not answered yet would keep the channel busy.
        await self._cluster.close_channel(self._channel)
        self.membership.stopped()

    async def leave(self) -> None:
        """Tell the group that this member has stopped."""
        group_id = self.membership.group_id
        coordinator = self._cluster.coordinators.known(CoordinatorKind.GROUP, group_id)
        if coordinator is None or not self.membership.must_leave:
            return
        try:
            connection = await self._cluster.connection(coordinator)
            version = connection.version_of(LeaveGroupRequest)
            await connection.request(self.membership.leave_request(version), LeaveGroupResponse)
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

    async def _carry_out(self, step: Step) -> None:
        membership = self.membership
        match step:
            case Revoke():
                await self.gate.hold_reader(wait=True)
                # The wait may have been long: partitions to be revoked may be lost by now.
                step = membership.step()
                if isinstance(step, Revoke):
                    await self._give_up(step.partitions, step.is_lost)
                    membership.revoked(step)
                self.gate.release_reader()
            case Save():
                await self.gate.hold_reader(wait=True)
                await self._save()
                membership.saved()
                self.gate.release_reader()
            case Join(request):
                membership.joining()
                await self._join(request)
            case CountPartitions(topics):
                membership.counted(await self._count(topics))
            case Sync(request):
                timeout_ms = self._rebalance_timeout_ms + _JOIN_GRACE_MS
                membership.synced(await self._ask(request, SyncGroupResponse, timeout_ms))
            case Take(partitions):
                await self.gate.hold_reader(wait=False)
                await self._take(partitions)
                membership.taken()
                self.gate.release_reader()

    async def _join(self, request: JoinGroupRequest) -> None:
        timeout_ms = self._rebalance_timeout_ms + _JOIN_GRACE_MS
        asking = asyncio.ensure_future(self._ask(request, JoinGroupResponse, timeout_ms))
        try:
            self.membership.joined(await asyncio.shield(asking))
        except asyncio.CancelledError:
            if request.member_id == NO_MEMBER_ID:
                # The group would wait for the member id that it assigned: get the id, which comes
                # at once, so that the group can be told that the member is not coming.
                await asyncio.wait([asking], timeout=_MEMBER_ID_TIMEOUT_S)
                if asking.done() and asking.exception() is None:
                    self.membership.member_id = asking.result().member_id
            asking.cancel()
            raise

    async def _send_heartbeats(self) -> None:
        while self.failure is None:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            if self.membership.heartbeat() is None:
                continue
            try:
                await self._ask_coordinator(self._send_heartbeat, None)
            except KafkaError as error:
                if not is_retriable(error):
                    self._fail(error)
            self.wake()

    async def _send_heartbeat(self, connection: Connection) -> None:
        # Requested again in each attempt: after a join that was sent meanwhile it would wait.
        request = self.membership.heartbeat()
        if request is None:
            return
        answer = await connection.request(request, HeartbeatResponse)
        self._check_coordinator(answer.error_code)
        self.membership.answered(request.generation_id, answer.error_code, "sending heartbeats")

    async def _watch_topics(self) -> None:
        while self.failure is None:
            self._were_topics_looked_at.clear()
            are_there = await self._check_topics()
            wait_s = self._cluster.config.metadata_max_age_ms / 1000
            try:
                async with asyncio.timeout(wait_s if are_there else min(wait_s, _MISSING_S)):
                    await self._were_topics_looked_at.wait()
            except TimeoutError:
                try:
                    await self.look_at_topics()
                except KafkaError as error:
                    self._report(error)

    async def _count(self, topics: Iterable[TopicName]) -> dict[TopicName, int]:
        """Return the partition counts of topics; 0 for one that does not exist."""
        names = tuple(topics)
        metadata = await self._cluster.retry(
            "partitions of topics", lambda: self._cluster.refresh(names)
        )
        return {
            name: len(metadata.topics[name].partitions) if name in metadata.topics else 0
            for name in names
        }

    async def _ask(self, request: Request, answer: type[_Answer], timeout_ms: int) -> _Answer:
        async def ask(connection: Connection) -> _Answer:
            found: _Answer = await connection.request(request, answer, timeout_ms=timeout_ms)
            self._check_coordinator(found.error_code)
            return found

        return await self._ask_coordinator(ask, self._cluster.config.api_timeout_ms + timeout_ms)

    async def _ask_coordinator(
        self, ask: Callable[[Connection], Awaitable[_Result]], timeout_ms: int | None
    ) -> _Result:
        group_id = self.membership.group_id
        return await self._cluster.coordinators.ask(
            CoordinatorKind.GROUP,
            group_id,
            f"group {group_id}",
            ask,
            channel=self._channel,
            timeout_ms=timeout_ms,
        )

    def _check_coordinator(self, code: int) -> None:
        if code in COORDINATOR_UNREACHED:
            raise answered_error(code, f"coordinator of group {self.membership.group_id}")

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self.gate.end()
