"""Several raft machines, their disks and a network between them, in virtual time.

The world is the driver of each machine: it executes effects in their order, may crash a node
between two of them, and delays messages, syncs and installations. Everything follows from a seed.

What may fail is what can: a disk that fails to sync ends the node, as the driver does, and what was
not on it may be gone or torn. Connections are TCP's: a message comes once and whole, or not at all;
but who loses a connection asks again on another, and what sat in the old one may be read later.
"""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Callable
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from dohle.protocol.schema import Request, Response
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.machine import Raft
from dohle.raft.membership import Membership, Voter, VoterEndpoint
from dohle.raft.values import ElectionState, RaftConfig, ReplicaKey
from tests.raft.simulation.checker import Checker
from tests.raft.simulation.model_log import SNAPSHOT_SIZE, Entry, ModelLog, Snapshot

LISTENER = "CONTROLLER"
#: Entries that a fetch returns at most, and bytes of a snapshot in one answer.
_FETCH_MAX, _CHUNK = 5, 16
_MARK = struct.Struct(">Q")
#: How long a request may sit in a connection that its sender has given up.
_READ_LATE_MS = 3_000


def endpoint(id: int) -> VoterEndpoint:
    return VoterEndpoint(LISTENER, f"node-{id}", 9000 + id)


def directory(id: int, generation: int = 0) -> Uuid:
    return Uuid(bytes([generation, *[0] * 13, 1, id]))


class Crashed(Exception):
    """The node has died while it executed effects."""


class SimulatedNode:
    """A machine with its disk and its state machine."""

    def __init__(self, world: World, config: RaftConfig, log: ModelLog) -> None:
        self.world = world
        self.config = config
        self.log = log
        self.quorum_state: ElectionState | None = None
        self.raft: Raft | None = None
        self.incarnation = 0
        self.is_paused = False
        self.applied_offset = 0
        self.applied_digest = 0
        self.inbox: list[events.Event] = []
        self.part: bytes = b""
        self.wakeup: float | None = None

    @property
    def id(self) -> int:
        return self.config.key.id

    @property
    def is_alive(self) -> bool:
        return self.raft is not None

    def start(self) -> None:
        self.incarnation += 1
        self.applied_offset, self.applied_digest = 0, 0
        rng = random.Random(self.world.rng.random())
        machine = self.world.machine
        self.raft = machine(self.config, self.log, rng, self.quorum_state, self.world.now_ms)
        self.world.checker.started(self)
        self.handle(events.Tick())

    def crash(self) -> None:
        """Lose the process, and what was not synced, as a power cut does."""
        self.raft, self.is_paused, self.wakeup = None, False, None
        self.inbox.clear()
        self.log.crash(self.world.rng)
        self.world.forget(self)

    def handle(self, event: events.Event) -> None:
        """Pass an event on, and whatever follows from it at once."""
        if self.raft is None:
            return
        if self.is_paused:
            self.inbox.append(event)
            return
        queue = [event]
        try:
            while queue:
                raft = self.raft
                effects = raft.step(queue.pop(0), self.world.now_ms)
                self.world.checker.stepped(self, raft)
                for effect in effects:
                    self.world.maybe_crash(self)
                    if self._execute(effect) and events.LogChanged() not in queue:
                        queue.insert(0, events.LogChanged())
                self.world.checker.executed(self, raft)
        except Crashed:
            return
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        assert self.raft is not None
        deadline = self.raft.deadline_ms
        if deadline is None or self.wakeup == deadline:
            return
        self.wakeup = deadline
        at = max(deadline, self.world.now_ms + 0.01)
        incarnation = self.incarnation

        def tick() -> None:
            if self.incarnation == incarnation and self.wakeup == deadline:
                self.wakeup = None
                self.handle(events.Tick())

        self.world.at(at, tick)

    def _execute(self, effect: do.Effect) -> bool:
        """Do what the machine wants; return whether the log has changed."""
        world, log = self.world, self.log
        if isinstance(effect, do.Persist) and world.fails_to_sync():
            self._fail_to_persist(effect)
        world.checker.executing(self, effect)
        match effect:
            case do.Persist(state):
                self.quorum_state = state
            case do.Send(correlation_id, node, request):
                world.send(self, correlation_id, node.port - 9000, request)
            case do.Reply(token, response):
                world.reply(self, token, response)
            case do.ReplyWithRecords(token, response, offset, _):
                world.reply(self, token, _with_records(world, response, log, offset))
            case do.ReplyWithSnapshot(token, response, snapshot_id, position, _):
                world.reply(self, token, _with_chunk(world, response, log, snapshot_id, position))
            case do.AppendControlBatch(epoch, records):
                log.append(epoch, world.next_payload(), records)
                return True
            case do.AppendFetched(records, epoch):
                for entry in world.blob(records):
                    if entry.epoch <= epoch:
                        log.append_entry(entry)
                return True
            case do.Truncate(offset):
                log.truncate(offset)
                return True
            case do.SyncLog(end_offset, epoch):
                self._sync(end_offset, epoch)
            case do.BeginSnapshot():
                self.part = b""
            case do.AppendSnapshot(_, data):
                self.part += data
            case do.DiscardSnapshot():
                self.part = b""
            case do.InstallSnapshot(snapshot_id):
                self._install(snapshot_id)
            case do.HighWatermarkMoved(offset):
                self._apply(offset)
        return False

    def _fail_to_persist(self, effect: do.Persist) -> None:
        """Stop, as the driver does; nobody knows whether the old or the new file is there."""
        if self.world.rng.random() < 0.5:
            self.world.checker.executing(self, effect)
            self.quorum_state = effect.state
        self.crash()
        raise Crashed

    def _sync(self, end_offset: int, epoch: int) -> None:
        entries, start_offset = self.log.freeze()
        incarnation = self.incarnation

        def done() -> None:
            if self.incarnation == incarnation and self.is_alive:
                assert self.raft is not None
                if self.world.fails_to_sync():
                    self.sync_failed(events.Synced(end_offset, epoch))
                    return
                if self.raft.leader.epoch == epoch:
                    self.log.sync(entries, start_offset)
                self.handle(events.Synced(end_offset, epoch))

        self.world.after(self.world.sync_delay(), done)

    def sync_failed(self, awaited: events.Synced) -> None:
        """Stop, as the driver does: what was to be synced may be gone, whatever is tried now."""
        self.crash()

    def _install(self, snapshot_id: Any) -> None:
        known = [each for each in self.log.kept if each.id == snapshot_id]
        if not known:
            assert len(self.part) == SNAPSHOT_SIZE
            (index,) = _MARK.unpack_from(self.part)
            known = [self.world.snapshots[index]]
        incarnation = self.incarnation

        def done() -> None:
            if self.incarnation == incarnation and self.is_alive:
                if self.world.fails_to_sync():
                    self.crash()
                    return
                assert known[0].id == snapshot_id
                self.log.install(known[0])
                self.world.checker.installed(self)
                self.handle(events.SnapshotInstalled(snapshot_id))

        self.world.after(self.world.sync_delay(), done)

    def _apply(self, offset: int) -> None:
        """Let the state machine take in what is committed."""
        log = self.log
        if self.applied_offset < log.start_offset:
            newest = next(each for each in reversed(log.kept) if each.id.offset <= offset)
            self.applied_offset, self.applied_digest = newest.id.offset, newest.digest
            self.world.checker.loaded_snapshot(self)
        if self.applied_offset < offset:
            digest = log.digest_at(offset)
            assert digest is not None, f"{self.id} lacks what is committed below {offset}"
            self.applied_offset, self.applied_digest = offset, digest
        self.world.checker.applied(self)


#: Who asks, in which life of its, the correlation id, who is asked, and what.
_Asked = tuple[SimulatedNode, int, int, SimulatedNode, Request]
#: The life of a sender that has given up: its answer goes nowhere.
_NOBODY_WAITS = -1


class World:
    """Time, the network, and the nodes."""

    def __init__(self, seed: int, machine: Callable[..., Raft] = Raft) -> None:
        self.rng = random.Random(seed)
        self.machine = machine
        self.now_ms = 0.0
        self.checker = Checker(self)
        self.nodes: dict[int, SimulatedNode] = {}
        self.snapshots: list[Snapshot] = []
        #: Links that let nothing through, as (from, to).
        self.cut: set[tuple[int, int]] = set()
        self.delay_ms = self.rng.choice([0.5, 2.0, 10.0, 30.0])
        self.sync_ms = self.rng.choice([0.0, 1.0, 20.0])
        self.crash_rate = 0.0
        #: How often a sync fails, and how often a connection is lost when a request has been sent.
        self.sync_failure_rate = 0.0
        self.reset_rate = 0.0
        #: How messages travel; a test that encodes them replaces it.
        self.transport: Callable[[Any], Any] = lambda message: message
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._payloads = 0
        self._blobs: list[list[Entry]] = []
        self._tokens: dict[int, _Asked] = {}

    def add_node(
        self,
        id: int,
        *,
        membership: Membership | None,
        static_voters: tuple[Voter, ...] = (),
        is_controller: bool = True,
        generation: int = 0,
        auto_join: bool = False,
        servers: tuple[int, ...] = (),
    ) -> SimulatedNode:
        """Format a node; it is not started yet."""
        config = RaftConfig(
            key=ReplicaKey(BrokerId(id), directory(id, generation)),
            cluster_id="cluster",
            is_controller=is_controller,
            endpoints=(endpoint(id),) if is_controller else (),
            static_voters=static_voters,
            bootstrap_servers=tuple((f"node-{each}", 9000 + each) for each in servers),
            auto_join=auto_join,
            retry_backoff_ms=50,
        )
        node = SimulatedNode(self, config, ModelLog(membership))
        self.nodes[id] = node
        return node

    # Time

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time_ms, self._count, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    def run_until(self, time_ms: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Let everything happen up to a time, or until something is so."""
        while self._queue and self._queue[0][0] <= time_ms:
            if is_done():
                return True
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = max(self.now_ms, time_ms)
        return is_done()

    # Chance

    def next_payload(self) -> int:
        self._payloads += 1
        return self._payloads

    def sync_delay(self) -> float:
        return self.rng.random() * self.sync_ms

    def fails_to_sync(self) -> bool:
        return self.sync_failure_rate > 0 and self.rng.random() < self.sync_failure_rate

    def maybe_crash(self, node: SimulatedNode) -> None:
        if self.crash_rate and self.rng.random() < self.crash_rate:
            node.crash()
            raise Crashed

    # Messages

    def blob(self, records: Any) -> list[Entry]:
        return self._blobs[_MARK.unpack(records)[0]] if records else []

    def new_blob(self, entries: list[Entry]) -> bytes:
        if not entries:
            return b""
        self._blobs.append(entries)
        return _MARK.pack(len(self._blobs) - 1)

    def forget(self, node: SimulatedNode) -> None:
        """Drop what a dead node would have answered."""
        for token, (_, _, _, target, _) in list(self._tokens.items()):
            if target is node:
                del self._tokens[token]

    def is_open(self, source: int, target: int) -> bool:
        return (source, target) not in self.cut

    def _latency(self) -> float:
        return min(self.rng.expovariate(1 / self.delay_ms), 400.0)

    def send(
        self, source: SimulatedNode, correlation_id: int, target: int, request: Request
    ) -> None:
        self.checker.sent(source, request)
        incarnation = source.incarnation
        token = self._count
        peer = self.nodes.get(target)

        def fail(error: ErrorCode) -> None:
            if source.incarnation == incarnation:
                source.handle(events.Unanswered(correlation_id, error))

        def arrive() -> None:
            peer = self.nodes.get(target)
            if peer is None or not peer.is_alive:
                fail(ErrorCode.BROKER_NOT_AVAILABLE)
            elif self.is_open(source.id, target):
                asked = (source, incarnation, correlation_id, peer, self.transport(request))
                self._deliver(token, asked)

        def arrive_late() -> None:
            peer = self.nodes.get(target)
            if peer is not None and peer.is_alive and self.is_open(source.id, target):
                asked = (source, _NOBODY_WAITS, correlation_id, peer, self.transport(request))
                self._deliver(token, asked)

        if peer is None or not peer.is_alive:
            self.after(self._latency(), lambda: fail(ErrorCode.BROKER_NOT_AVAILABLE))
        elif not self.is_open(source.id, target):
            delay = self.rng.choice([1.0, source.config.request_timeout_ms])
            self.after(delay, lambda: fail(ErrorCode.BROKER_NOT_AVAILABLE))
        elif self.reset_rate and self.rng.random() < self.reset_rate:
            # The sender may ask again before this is read, and whatever is answered is lost.
            self.after(self._latency(), lambda: fail(ErrorCode.BROKER_NOT_AVAILABLE))
            self.after(self.rng.random() * _READ_LATE_MS, arrive_late)
        else:
            self.after(self._latency(), arrive)

    def _deliver(self, token: int, asked: _Asked) -> None:
        *_, peer, request = self._tokens[token] = asked
        if isinstance(request, ApiVersionsRequest):
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.reply(peer, token, ApiVersionsResponse(supported_features=(feature,)))
            return
        version = type(request).VERSIONS.highest
        peer.handle(events.Received(token, request, version, LISTENER))

    def reply(self, node: SimulatedNode, token: int, response: Response) -> None:
        if token not in self._tokens:
            assert token < 0, "a request is answered once"
            self.checker.told_admin(token, response)
            return
        source, incarnation, correlation_id, _, request = self._tokens.pop(token)
        self.checker.replied(node, source, request, response)

        def arrive() -> None:
            if source.incarnation != incarnation or not self.is_open(node.id, source.id):
                return
            source.handle(events.Answered(correlation_id, self.transport(response)))

        self.after(self._latency(), arrive)


def _with_records(world: World, response: Any, log: ModelLog, offset: int) -> Response:
    topic = response.responses[0]
    records = world.new_blob(log.read(offset, _FETCH_MAX))
    partition = topic.partitions[0].replace(records=records)
    replaced: Response = response.replace(responses=(topic.replace(partitions=(partition,)),))
    return replaced


def _with_chunk(
    world: World, response: Any, log: ModelLog, snapshot_id: Any, position: int
) -> Response:
    topic = response.topics[0]
    snapshot = next(each for each in log.kept if each.id == snapshot_id)
    if snapshot not in world.snapshots:
        world.snapshots.append(snapshot)
    content = _MARK.pack(world.snapshots.index(snapshot)).ljust(SNAPSHOT_SIZE, b".")
    chunk = content[position : position + _CHUNK]
    partition = topic.partitions[0].replace(unaligned_records=chunk)
    replaced: Response = response.replace(topics=(topic.replace(partitions=(partition,)),))
    return replaced
