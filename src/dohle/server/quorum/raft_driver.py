"""Runs the raft machine of a node: one event at a time in, its effects carried out in their order.

This is one task. Whatever the machine wants done is completed before its next effect, except what
is only begun (requests, syncs of the log, the end of a download): that ends in an event of its own.
So what the machine says first is a fact before what it says next: a vote is on the disk before it
is answered. Whatever fails on the way to the disk ends the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import zip_longest
from typing import Any

from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId
from dohle.core.seams import Clock
from dohle.raft import effects, events
from dohle.raft.machine import Raft
from dohle.raft.values import ElectionState, LeaderAndEpoch
from dohle.security.client import PLAINTEXT, ClientSecurity
from dohle.server.host import NodeHost
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.accumulator import Accepted, BatchAccumulator
from dohle.server.quorum.commit_feed import CommitFeed
from dohle.server.quorum.filled_replies import with_records, with_snapshot
from dohle.server.quorum.leader_watch import LeaderWatch
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.part_file import PartFile
from dohle.server.quorum.peers import Peers
from dohle.server.quorum.quorum_state import write_election_state
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.received_requests import ReceivedRequests
from dohle.server.quorum.snapshots import SnapshotId

logger = logging.getLogger("dohle.server")

#: Even a timer that is overdue lets others have their turn.
_WAIT_MS_MIN = 1


class RaftDriver:
    """The task around a raft machine."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: NodeHost,
        log: RaftLog,
        raft: Raft,
        feed: CommitFeed,
        *,
        turns: Turns,
        linger_ms: int,
        on_fatal: Callable[[str], None],
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self._loop = loop
        self._host = host
        self._clock: Clock = host.clock
        self._log = log
        self._feed = feed
        self._turns = turns
        self._linger_ms = linger_ms
        self._on_fatal = on_fatal
        self.raft = raft
        self.accumulator = BatchAccumulator(host.clock, lambda: log.end_offset, self._wake)
        self.requests = ReceivedRequests(loop, self.post)
        config = raft.replica.config
        self._peers = Peers(
            loop, host, config.key.id, config.request_timeout_ms, self.post, security
        )
        self._watch = LeaderWatch(raft, self._peers.unheard)
        # Bounded by where they come from: peers, requests and syncs each have a limit of their own.
        self._events: deque[events.Event] = deque()
        self._waking: asyncio.Future[None] | None = None
        self._was_tick = False
        self._part: PartFile | None = None
        self._decisions: dict[int, asyncio.Future[effects.UpgradeDecided]] = {}
        self._last_token = 0
        self._begun: set[asyncio.Task[None]] = set()
        self._is_log_changed = False
        #: How many syncs of the log are under way.
        self._syncs = 0
        self._shut_down: asyncio.Future[bool] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    # From outside

    def start(self) -> None:
        """Begin to take part in the quorum."""
        self._task = self._loop.create_task(self._run())

    @property
    def leaderless_ms(self) -> float:
        """For how long this node knows of nobody that leads."""
        return self._watch.leaderless_ms(self._now_ms())

    def post(self, event: events.Event) -> None:
        """Pass an event to the machine when it is its turn."""
        self._events.append(event)
        self._wake()

    async def upgrade_kraft_version(
        self, epoch: int, level: int, *, validate_only: bool
    ) -> effects.UpgradeDecided:
        """Have the machine raise the level of the quorum, if it may; return what it says."""
        self._last_token += 1
        decided: asyncio.Future[effects.UpgradeDecided] = self._loop.create_future()
        self._decisions[self._last_token] = decided
        self.post(events.UpgradeKraftVersion(self._last_token, epoch, level, validate_only))
        return await decided

    async def shut_down(self) -> bool:
        """Hand over leadership, if there is any, and stop; return whether that went well."""
        if self._task is not None and not self._task.done():
            self.post(events.Shutdown())
        else:
            self._shut_down.cancel()
        await asyncio.wait([self._shut_down])
        is_clean = not self._shut_down.cancelled() and self._shut_down.result()
        await self._close()
        return is_clean

    async def _close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._peers.close()
        if self._begun:
            await asyncio.wait(self._begun)
        self._end()
        await self._feed.close()

    # The task

    async def _run(self) -> None:
        try:
            await self._step(events.Tick())
            while not self._shut_down.done():
                await self._step(await self._next_event())
        except Exception as error:
            self._fail(error)

    async def _next_event(self) -> events.Event:
        """Wait for what comes first: accepted records to write, a timer, or an event."""
        while True:
            now_ms = self._now_ms()
            due_ms = None if self._is_writing_alone else self.accumulator.due_ms(self._linger)
            if due_ms is not None and due_ms <= now_ms:
                self._write_accepted(self.accumulator.drain_one if self._is_alone else None)
                return events.LogChanged()
            deadline_ms = self.raft.deadline_ms
            if deadline_ms is not None and deadline_ms <= now_ms and not self._was_tick:
                self._was_tick = True
                return events.Tick()
            self._was_tick = False
            if self._events:
                return self._events.popleft()
            wanted = [each for each in (due_ms, deadline_ms) if each is not None]
            await self._wait(max(min(wanted) - now_ms, _WAIT_MS_MIN) if wanted else None)

    @property
    def _is_alone(self) -> bool:
        return len(self.raft.voters.ids) <= 1

    @property
    def _is_writing_alone(self) -> bool:
        """Whether there is a batch that is nowhere on a disk yet.

        There is at most one: of several a power cut could take the first, and leave what looks like
        a log that was damaged later. What comes meanwhile is gathered in the next batch.
        """
        return self._is_alone and self._syncs > 0

    @property
    def _linger(self) -> int:
        """Whoever is alone waits for nobody else's commit, so there is nothing to gain."""
        return 0 if self._is_alone else self._linger_ms

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    async def _wait(self, delay_ms: float | None) -> None:
        self._waking = self._loop.create_future()
        timer = None
        if delay_ms is not None:
            timer = self._loop.call_later(delay_ms / 1000, self._wake)
        try:
            await self._waking
        finally:
            self._waking = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    async def _step(self, event: events.Event) -> None:
        if isinstance(event, events.Received):
            self._peers.heard()
        elif isinstance(event, events.SnapshotInstalled):
            self._log.install(SnapshotId(*event.snapshot_id))
        await self._execute(self.raft.step(event, self._now_ms()))
        while self._is_log_changed:
            self._is_log_changed = False
            await self._execute(self.raft.step(events.LogChanged(), self._now_ms()))
        self._watch.look(self._now_ms())
        if self._events:
            # Others have their turn in between.
            await asyncio.sleep(0)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what ends in an event of its own."""
        task = self._loop.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._begun.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the node: it is not known what is on the disk, and only a restart can tell."""
        logger.error(
            "the metadata log cannot be used any more; this node stops: %s",
            error,
            # What a disk does needs no traceback.
            exc_info=not isinstance(error, OSError | KafkaError),
        )
        self._shut_down.cancel()
        self._wake()
        self._end()
        self._on_fatal(f"the metadata log cannot be used any more: {error}")

    def _end(self) -> None:
        self.accumulator.end()
        self.requests.close()
        for decided in self._decisions.values():
            decided.cancel()

    # What the machine wants

    async def _execute(self, wanted: list[effects.Effect]) -> None:
        for effect, following in zip_longest(wanted, wanted[1:]):
            if isinstance(effect, effects.Persist) and isinstance(following, effects.Persist):
                # Nobody has seen it: the only voter votes for itself and leads at once.
                continue
            if not (self._tell(effect) or self._change_log(effect)):
                await self._wait_for(effect)

    def _tell(self, effect: effects.Effect) -> bool:
        """Carry out what others are to be told; False if it is none of that."""
        match effect:
            case effects.Send():
                self._peers.send(effect)
            case effects.Reply(token, response):
                self.requests.answer(token, response)
            case effects.HighWatermarkMoved(offset):
                self._log.log.update_high_watermark(offset)
                self._feed.committed(offset)
            case effects.LeaderChanged(leader_id, epoch, start_offset):
                if start_offset is not None:
                    self.accumulator.begin(epoch)
                elif leader_id == self.raft.replica.key.id:
                    # It has led this epoch, and does not any more.
                    leader_id = None
                leader = LeaderAndEpoch(None if leader_id is None else BrokerId(leader_id), epoch)
                self._feed.leader_changed(leader, start_offset)
            case effects.LeadershipLost(epoch):
                self.accumulator.end()
                self._feed.forget_own()
                self._feed.leader_changed(LeaderAndEpoch(None, epoch), None)
            case effects.UpgradeDecided(token):
                decided = self._decisions.pop(token)
                if not decided.done():
                    decided.set_result(effect)
            case effects.ShutdownDone(clean):
                self._shut_down.set_result(clean)
            case _:
                return False
        return True

    def _change_log(self, effect: effects.Effect) -> bool:
        """Carry out a change of the log; False if it is none."""
        match effect:
            case effects.AppendControlBatch(epoch, records):
                self._write_accepted()
                now_ms = self._clock.now_ms()
                size = self._log.append_control(records, epoch, now_ms)
                last_offset = self._log.end_offset - 1
                self._feed.wrote(MetadataBatch((), last_offset, epoch, size, records, now_ms))
            case effects.Truncate(offset):
                self._log.truncate_to(offset)
            case _:
                return False
        self._is_log_changed = True
        return True

    def _write_accepted(self, drain: Callable[[], list[Accepted]] | None = None) -> None:
        for data, batch in (drain or self.accumulator.drain)():
            self._log.append_batch(data, batch.epoch)
            self._feed.wrote(batch)

    async def _wait_for(self, effect: effects.Effect) -> None:
        """Carry out what waits for the disk, or is begun."""
        match effect:
            case effects.Persist(state):
                await self._persist(state)
            case effects.AppendFetched(records, epoch):
                await Slices(self._turns).run(self._log.append_fetched(records, epoch))
                self._is_log_changed = True
            case effects.SyncLog():
                self._sync(effect)
            case effects.ReplyWithRecords(token):
                if self.requests.is_waiting(token):
                    self.requests.answer(token, await with_records(self._host, self._log, effect))
            case effects.ReplyWithSnapshot(token):
                if self.requests.is_waiting(token):
                    self.requests.answer(token, await with_snapshot(self._host, self._log, effect))
            case effects.BeginSnapshot(snapshot_id):
                await self._discard_part()
                begin = partial(self._log.store.begin_download, SnapshotId(*snapshot_id))
                self._part = await self._host.run_in_thread(begin)
            case effects.AppendSnapshot(_, data):
                assert self._part is not None, "it was begun"
                await self._host.run_in_thread(partial(self._part.append, data))
            case effects.DiscardSnapshot():
                await self._discard_part()
            case effects.InstallSnapshot():
                part, self._part = self._part, None
                self._begin(self._install(effect, part))

    async def _persist(self, state: ElectionState) -> None:
        voters, level = self.raft.voters.ids, self._log.memberships.latest.kraft_version
        folder = self._log.folder
        write = partial(
            write_election_state, self._host.files, folder, state, voters, kraft_version=level
        )
        await self._host.run_in_thread(write)

    def _sync(self, effect: effects.SyncLog) -> None:
        synced = events.Synced(effect.end_offset, effect.epoch)
        job = self._log.log.prepare_flush()
        if job is None:
            self.post(synced)
            return

        async def sync() -> None:
            await self._host.run_in_thread(job.run)
            self._log.log.complete_flush(job)
            self._syncs -= 1
            self.post(synced)

        self._syncs += 1
        self._begin(sync())

    async def _install(self, effect: effects.InstallSnapshot, part: PartFile | None) -> None:
        if part is not None:
            # Otherwise it is here since before, and only has to take the log's place.
            await self._host.run_in_thread(part.finish)
        self.post(events.SnapshotInstalled(effect.snapshot_id))

    async def _discard_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            await self._host.run_in_thread(part.discard)
