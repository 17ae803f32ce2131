"""A consumer's commits: explicit and automatic ones.

Rules it keeps:

- One commit at a time, so that an older one that had to be retried never overwrites a newer one.
- An automatic commit covers what had been returned when the caller asked for more: only then can it
  be considered processed.
- A failed automatic commit is not reported, as it only means that records may be read twice. Only
  an error that will not go away is raised.
- A member of a consumer group (KIP-848) gets a new epoch by a heartbeat; a commit that the
  coordinator sees behind that (STALE_MEMBER_EPOCH) is made again with the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from dohle.client.cluster import Cluster
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import TimedOut, is_retriable
from dohle.client.group.consumer_membership import ConsumerMembership
from dohle.client.group.membership import GroupMembership, GroupMetadata
from dohle.client.group.offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from dohle.client.net.connection import Channel, Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

#: Errors of a commit that concern the membership.
_OF_MEMBERS = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class OffsetCommits:
    """The committed offsets of one consumer's group."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: GroupId,
        channel: Channel,
        *,
        wake: Callable[[], None],
        report: Callable[[KafkaError], None],
        on_commit: Callable[[Offsets], None] | None = None,
    ) -> None:
        self.group_id = group_id
        #: The member that commits; without one, commits come from outside the group.
        self.membership: GroupMembership | ConsumerMembership | None = None
        #: Whether the caller's next read should call :meth:`commit_by_itself`.
        self.is_due = False
        self._cluster = cluster
        self._channel = channel
        self._wake = wake
        self._report = report
        self._on_commit = on_commit
        self._turn = asyncio.Lock()
        self._last: dict[TopicPartition, OffsetAndMetadata] = {}
        self._interval_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def who(self) -> GroupMetadata:
        """The identity with which to commit."""
        if self.membership is None:
            return GroupMetadata(self.group_id)
        return self.membership.metadata

    async def commit(self, offsets: Offsets) -> None:
        """Commit offsets, or raise why not."""
        async with self._turn:
            await self._commit(offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without one are left out."""
        wanted = tuple(partitions)

        async def ask(connection: Connection) -> dict[TopicPartition, OffsetAndMetadata]:
            found = await fetch_offsets(connection, self.group_id, wanted, require_stable=True)
            return dict(found.ok())

        return await self._cluster.coordinators.ask(
            CoordinatorKind.GROUP,
            self.group_id,
            f"committed offsets of group {self.group_id}",
            ask,
            channel=self._channel,
        )

    def start(self, interval_ms: int) -> None:
        """Start automatic commits."""
        self._interval_ms = interval_ms
        self._set_timer()

    def commit_by_itself(self, offsets: Offsets) -> None:
        """Commit what has been read since the last commit, in the background."""
        self.is_due = False
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self.commit_quietly(offsets))
        self._set_timer()

    async def commit_quietly(self, offsets: Offsets) -> None:
        """Commit what has been read since the last commit; ignore errors that may go away."""
        news = {each: place for each, place in offsets.items() if self._last.get(each) != place}
        if not news:
            return
        try:
            await self.commit(news)
        except KafkaError as error:
            if not is_retriable(error) and error.code not in _OF_MEMBERS:
                self._report(error)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Treat these partitions as not committed: another member may commit them now."""
        for partition in partitions:
            self._last.pop(partition, None)

    async def close(self) -> None:
        """Stop; a commit in flight is abandoned."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _set_timer(self) -> None:
        if self._interval_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval_ms / 1000, self._become_due)

    def _become_due(self) -> None:
        self.is_due = True
        self._wake()

    async def _commit(self, offsets: Offsets) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = self._cluster.config.api_timeout_ms / 1000
        deadline = loop.time() + timeout_s
        failures = 0
        while not await self._try_to_commit(offsets):
            if loop.time() > deadline:
                raise TimedOut(
                    f"commit of group {self.group_id}: its epoch has been too old for "
                    f"{timeout_s:g} s, for want of answers to heartbeats"
                )
            failures += 1
            await asyncio.sleep(self._cluster.backoff.delay_s(failures))
        self._last.update(offsets)
        if self._on_commit is not None:
            self._on_commit(offsets)

    async def _try_to_commit(self, offsets: Offsets) -> bool:
        """Return whether it was committed; not, if the member's epoch is about to change."""
        membership = self.membership
        who = self.who

        async def ask(connection: Connection) -> None:
            # In each attempt: a rebalance may have begun, and the join would delay the commit.
            if membership is not None and not membership.may_commit:
                raise KafkaError(
                    ErrorCode.REBALANCE_IN_PROGRESS,
                    f"group {self.group_id} is rebalancing: commit again once this consumer has "
                    "its new assignment",
                )
            (await commit_offsets(connection, who, offsets)).ok()

        try:
            await self._cluster.coordinators.ask(
                CoordinatorKind.GROUP,
                self.group_id,
                f"commit of group {self.group_id}",
                ask,
                channel=self._channel,
            )
        except KafkaError as error:
            if membership is not None and error.code in _OF_MEMBERS:
                membership.answered(who.generation_id, error.code, "committing")
                self._wake()
                if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                    return False
            raise
        return True
