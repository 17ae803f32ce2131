"""A node's part in the quorum: log, machine, driver and feed, put together.

``start`` needs the addresses at which this node listens; before that nothing is accepted, and
nothing is told. A node that is the only voter leads at once, without any timer (R15).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.steps import PlainSteps
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.schema import Request, Response
from dohle.raft.events import LogChanged, Resign
from dohle.raft.leader import Leader, ReplicaProgress
from dohle.raft.machine import Raft
from dohle.raft.membership import Voter
from dohle.raft.values import LeaderAndEpoch, Node, RaftConfig
from dohle.raft.voters import VoterSet, node_at
from dohle.security.client import PLAINTEXT, ClientSecurity
from dohle.server.host import NodeHost
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.turns import Turns
from dohle.server.quorum.commit_feed import CommitFeed
from dohle.server.quorum.quorum import QuorumListener, QuorumProgress, VoterProgress
from dohle.server.quorum.quorum_state import read_election_state
from dohle.server.quorum.raft_driver import RaftDriver
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.voter_changes import VoterChange

logger = logging.getLogger("dohle.server")

_NOBODY = BrokerId(-1)


class RaftQuorum:
    """The quorum, as one of its nodes sees it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: NodeHost,
        log: RaftLog,
        *,
        turns: Turns,
        linger_ms: int,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """``security`` is how the nodes of the quorum authenticate each other."""
        self._security = security
        self._loop = loop
        self._host = host
        self.log = log
        self._linger_ms = linger_ms
        self._turns = turns
        self._listeners: Sequence[QuorumListener] = ()
        self._driver: RaftDriver | None = None

    # Its life

    async def start(
        self, config: RaftConfig, listeners: Sequence[QuorumListener], position: int = 0
    ) -> None:
        """Take part in the quorum; the listeners know everything below ``position`` already."""
        self._listeners = listeners
        await self._sync_log(config)
        clock, fs = self._host.clock, self._host.files
        restored = read_election_state(fs, self.log.folder)
        raft = Raft(config, self.log, self._host.rng, restored, clock.monotonic_s() * 1000)
        feed = CommitFeed(self._loop, self.log, listeners, turns=self._turns, on_fatal=self._failed)
        feed.position = position
        self._driver = RaftDriver(
            self._loop,
            self._host,
            self.log,
            raft,
            feed,
            turns=self._turns,
            linger_ms=self._linger_ms,
            on_fatal=self._failed,
            security=self._security,
        )
        self._driver.start()

    async def _sync_log(self, config: RaftConfig) -> None:
        """Sync what a process that was killed has left: others may be told that it is here."""
        latest = self.log.memberships.latest
        voters = VoterSet(latest.voters if latest.kraft_version else config.static_voters)
        if voters.is_only(config.key):
            # There are no others, and what it appends next is synced together with all before it.
            return
        job = self.log.log.prepare_flush()
        if job is not None:
            await self._host.run_in_thread(job.run)
            self.log.log.complete_flush(job)

    def log_changed(self) -> None:
        """Take note that a snapshot was made, or that the log begins later now."""
        if self._driver is not None:
            self._driver.post(LogChanged())

    def _failed(self, reason: str) -> None:
        for listener in self._listeners:
            listener.on_failure(reason)

    async def stop(self) -> bool:
        """Hand over leadership and stop; return whether somebody has it, or needs it."""
        return self._driver is None or await self._driver.shut_down()

    def take(self, request: Request, version: int, listener: str) -> asyncio.Future[Response]:
        """Take a request of another node, which came in on a listener."""
        if self._driver is None:
            raise CloseConnection("the quorum of this node has not started yet")
        return self._driver.requests.take(request, version, listener)

    # What a controller needs

    @property
    def next_offset(self) -> int:
        """The offset of the next record that would be appended."""
        driver = self._driver
        return self.log.end_offset if driver is None else driver.accumulator.next_offset

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this node knows of."""
        if self._driver is None:
            return LeaderAndEpoch(None, 0)
        return self._driver.raft.leader

    @property
    def raft(self) -> Raft | None:
        """The state machine, to be read; None before the start."""
        return None if self._driver is None else self._driver.raft

    @property
    def leaderless_ms(self) -> float:
        """For how long this node knows of nobody that leads; 0 if somebody does."""
        return 0.0 if self._driver is None else self._driver.leaderless_ms

    @property
    def leader_node(self) -> Node | None:
        """The leader and its address: that in the voter set, or what it said itself (R122)."""
        if self._driver is None:
            return None
        raft = self._driver.raft
        leader_id, listener = raft.leader.leader_id, raft.replica.config.default_listener
        if leader_id is None:
            return None
        if leader_id == raft.replica.key.id:
            # Nobody connects to itself: a node that is alone need not listen for others.
            return Node(leader_id, "", 0)
        return node_at(leader_id, raft.voters.endpoints(leader_id), listener) or node_at(
            leader_id, raft.replica.leader_endpoints, listener
        )

    @property
    def kraft_version(self) -> int:
        """The level of the quorum, as of the end of the log."""
        return self.log.memberships.latest.kraft_version

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> PlainSteps[int]:
        """Append all records or none, in one batch; return the offset of the last one."""
        return (yield from self._running.accumulator.append(epoch, records))

    async def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Append the records that raise the level of the quorum; it has it from then on."""
        decided = await self._running.upgrade_kraft_version(
            epoch, level, validate_only=validate_only
        )
        if decided.error is not ErrorCode.NONE:
            raise KafkaError(decided.error, decided.message)

    async def change_voters(self, request: VoterChange, version: int) -> Response:
        """Add or remove a voter as a client asks."""
        running = self._running
        return await running.requests.take(
            request, version, running.raft.replica.config.default_listener
        )

    def resign(self, epoch: int) -> None:
        """Give up the leadership of an epoch, if this node has it and there is anybody else."""
        raft = self._running.raft
        if not raft.voters.is_only(raft.replica.key):
            self._running.post(Resign(epoch))

    @property
    def _running(self) -> RaftDriver:
        if self._driver is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node has not joined its quorum yet")
        return self._driver

    def progress(self) -> QuorumProgress:
        """Return how far the voters are; NOT_LEADER_OR_FOLLOWER if this node does not lead."""
        driver = self._driver
        state = None if driver is None else driver.raft.replica.state
        if driver is None or not isinstance(state, Leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        entries = {voter.id: voter for voter in driver.raft.voters.voters}
        now_ms = self._host.clock.now_ms()
        # Times of the machine are those of a clock of its own.
        shift_ms = now_ms - self._host.clock.monotonic_s() * 1000

        def told(progress: ReplicaProgress) -> VoterProgress:
            voter = entries.get(progress.key.id) or Voter(*progress.key)
            if progress.key.id == state.leader_id:
                return VoterProgress(voter, self.log.end_offset, now_ms, now_ms)
            times = (progress.last_fetch_ms, progress.last_caught_up_ms)
            end_offset = -1 if progress.end_offset is None else progress.end_offset
            return VoterProgress(
                voter, end_offset, *(-1 if t is None else round(t + shift_ms) for t in times)
            )

        return QuorumProgress(
            state.leader_id,
            state.epoch,
            -1 if state.high_watermark is None else state.high_watermark,
            tuple(told(each) for _, each in sorted(state.voters.items())),
            tuple(told(each) for _, each in sorted(state.observers.items())),
        )
