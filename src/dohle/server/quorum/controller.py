"""Running the controller: decide, append, and answer once that is committed.

A request is decided by a pure function of the image (``commands``), when its turn has come. The
records of the decision go to the quorum as one batch. The next request is decided at once, on the
image behind them. Each is answered when what it has appended, and all before that, is committed, is
in the image, and every listener on this node has been told. Only the controller whose node leads
the quorum does so; others read along, and refuse what would change something (NOT_CONTROLLER).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Lock, shield, timeout
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import ApiError, Decision, VersionedRecord
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from dohle.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from dohle.protocol.schema import Request, Response
from dohle.quotas.mutations import Spend, free
from dohle.raft.values import LeaderAndEpoch
from dohle.server.channel import Client
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.claim import Claim, stable_offset
from dohle.server.quorum.commands import COMMANDS, Command, CommandTurn
from dohle.server.quorum.counts import ControllerCounts
from dohle.server.quorum.describe import describe_quorum
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.leadership import Leadership
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.mutation_quotas import MutationQuotas
from dohle.server.quorum.periodic import PeriodicTask
from dohle.server.quorum.quorum import Quorum
from dohle.server.quorum.refusals import Refusals
from dohle.server.quorum.snapshots import SnapshotId
from dohle.server.quorum.voter_changes import VoterChange, voter_change_failed

R = TypeVar("R", bound=Response)

D = TypeVar("D")

_NEWEST = -1


class Controller:
    """A controller, active or not, and the channel to it from within its process."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        quorum: Quorum,
        images: ImageLoader,
        context: ControllerContext,
        clock: Clock,
        *,
        turns: Turns,
        on_fatal: Callable[[str], None],
    ) -> None:
        self.context = context
        self.quorum = quorum
        self.counts = ControllerCounts()
        images.subscribe(self.counts.on_image)
        #: How many commands wait for their turn, without what recurs.
        self.waiting_count = 0
        self._loop = loop
        self._images = images
        self._clock = clock
        self._refusals = Refusals(clock)
        self._mutation_quotas = MutationQuotas(context.config, clock)
        self._turns = turns
        self._on_fatal = on_fatal
        self._turn = Lock()
        self._leadership = Leadership(
            *(loop, quorum, images, context, clock), turns=turns, run_periodic=self._run_periodic
        )
        #: Why it takes no more commands.
        self._closed: ApiError | None = None

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record."""
        return self._images.image

    def begin_with(self, bootstrap: Sequence[VersionedRecord] | None) -> None:
        """Begin a new cluster with what ``storage format`` left for it, if it did."""
        self._leadership.bootstrap = bootstrap

    @property
    def is_active(self) -> bool:
        """Tell whether it takes commands."""
        claim = self._leadership.claim
        return self._closed is None and claim is not None and claim.activated.done()

    @property
    def is_closed(self) -> bool:
        """Tell whether it never takes commands again: it was stopped, or its log has failed."""
        return self._closed is not None

    # Commands

    async def send(
        self,
        request: Request,
        answer: type[R],
        version: int | None = None,
        *,
        client: Client | None = None,
    ) -> R:
        """Carry out a request, and respond when its decision is committed.

        If a client has sent it, it is held to its quotas.

        If its turn does not come in time, it is not carried out: REQUEST_TIMED_OUT. Once begun it
        is completed, however long that takes, unless this node stops leading the quorum.
        """
        if version is None:
            version = request.VERSIONS.highest
        if isinstance(request, DescribeQuorumRequest):
            response: Response = await self._describe_quorum(request, version)
        elif isinstance(request, VoterChange):
            response = await self._change_voters(request, version)
        else:
            if isinstance(request, BrokerHeartbeatRequest):
                # The broker is alive, however long its request has to wait.
                self._note_heartbeat(request)
            command = COMMANDS[type(request)]
            # Shielded: once the records are written, what follows must not be interrupted.
            answering = self._answer(command, request, version, client)
            done = await shield(self._loop.create_task(answering))
            response = command.fit(done, version)
        assert isinstance(response, answer), "a command responds to its own request"
        return response

    async def _describe_quorum(
        self, request: DescribeQuorumRequest, version: int
    ) -> DescribeQuorumResponse:
        # It only reads the current state, so it does not wait for commands that change it.
        try:
            progress = self.quorum.progress()
        except KafkaError:
            progress = None
        return await Slices(self._turns).run(describe_quorum(progress, request, version))

    async def _change_voters(self, request: VoterChange, version: int) -> Response:
        """Pass it to the quorum, which decides about itself."""
        try:
            return await self.quorum.change_voters(request, version)
        except (KafkaError, CloseConnection):
            return voter_change_failed(request, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _note_heartbeat(self, request: BrokerHeartbeatRequest) -> None:
        claim = self._leadership.claim
        if claim is not None:
            claim.heartbeats.note(claim.image, request, self._clock.monotonic_ms())

    async def _answer(
        self, command: Command, request: Request, version: int, client: Client | None
    ) -> Response:
        spending = None
        if client is not None and self.image.client_quotas:
            steps = self._mutation_quotas.spending(self.image, client, request, version)
            spending = await Slices(self._turns).run(steps)
        try:
            decision = await self._carry_out(
                lambda turn: command.decide(turn, request),
                lambda turn, after: command.appended(turn, request, after),
                version=version,
                timeout_ms=command.timeout_ms(request, self.context),
                spend=free if spending is None else spending.spend,
            )
        except KafkaError as error:
            is_late = error.code is ErrorCode.REQUEST_TIMED_OUT
            if is_late and isinstance(request, BrokerHeartbeatRequest):
                self.counts.timed_out_heartbeats += 1
            return await Slices(self._turns).run(command.fail(request, ApiError.of(error)))
        if decision.reason is not None:
            self._refusals.tell(request, decision.reason)
        response: Response = decision.reply
        if spending is not None and (throttle_ms := spending.throttle_ms()):
            response = response.replace(throttle_time_ms=throttle_ms)
        return response

    async def write(self, records: Sequence[VersionedRecord]) -> None:
        """Commit records that no request asked for, when it is their turn."""
        decision = Decision(tuple(records), None)
        await shield(self._loop.create_task(self._carry_out(lambda _: decision)))

    async def _run_periodic(self, task: PeriodicTask) -> bool:
        """Carry out what recurs; return whether there is more of it to be done."""
        return (await self._carry_out(task.decide, counts=False)).reply

    async def _carry_out(
        self,
        decide: Callable[[CommandTurn], Decision[D] | PlainSteps[Decision[D]]],
        appended: Callable[[CommandTurn, ClusterImage], None] = lambda *_: None,
        *,
        version: int = _NEWEST,
        timeout_ms: int | None = None,
        counts: bool = True,
        spend: Spend = free,
    ) -> Decision[D]:
        """Decide and append in turn; return the decision when it is committed."""
        now_s = self._clock.monotonic_s
        arrived = now_s()
        async with self._in_turn(timeout_ms, counts=counts):
            began = now_s()
            claim = await self._active()
            turn = CommandTurn(
                image=claim.image,
                context=self.context,
                heartbeats=claim.heartbeats,
                version=version,
                next_offset=self.quorum.next_offset,
                kraft_version=self.quorum.kraft_version,
                now_ms=self._clock.monotonic_ms(),
                spend=spend,
            )
            try:
                decided = decide(turn)
                if not isinstance(decided, Decision):
                    # Others have their turn in between, but no other command.
                    decided = await Slices(self._turns).run(decided)
                await self._leadership.append(claim, decided)
            except KafkaError:
                raise
            except Exception as error:
                raise self._leadership.give_up(claim, error) from error
            appended(turn, claim.image)
            settled = claim.settled()
            self.counts.carried_out(began - arrived, now_s() - began)
        await settled
        return decided

    @asynccontextmanager
    async def _in_turn(
        self, timeout_ms: int | None = None, *, counts: bool = True
    ) -> AsyncIterator[None]:
        self.waiting_count += counts
        try:
            if timeout_ms is not None and timeout_ms <= 0:
                raise TimeoutError
            async with timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._turn.acquire()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.") from None
        finally:
            self.waiting_count -= counts
        try:
            yield
        finally:
            self._turn.release()

    async def _active(self) -> Claim:
        """Return the claim by which this controller is active, once it is."""
        if self._closed is not None:
            raise self._closed.exception()
        claim = await self._leadership.active()
        if claim is None:
            raise _not_controller(self.quorum.leader).exception()
        return claim

    async def activated(self) -> None:
        """Return when this controller, whose node leads, is active and its beginning committed."""
        await (await self._active()).settled()

    # What the quorum tells

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Claim the leadership, or renounce it."""
        if leader.leader_id is not None:
            self.counts.leads(leader.epoch)
        leads = leader.leader_id == self.context.node_id
        claim = self._leadership.claim
        if leads and claim is not None and claim.epoch == leader.epoch:
            return
        self._leadership.end(_not_controller(leader))
        if leads and self._closed is None:
            self._leadership.begin(leader.epoch)

    async def on_commit(self, batch: MetadataBatch) -> None:
        """Answer those who have waited for it: the image has it already."""
        claim = self._leadership.claim
        if claim is not None:
            claim.commit(stable_offset(self.image))

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        """Nobody waits for it: only a follower ever needs a snapshot."""

    def on_failure(self, reason: str) -> None:
        """Take no more commands: nothing may be decided on top of what nobody knows."""
        self._closed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        self._leadership.end(self._closed)
        self._on_fatal(reason)

    # Stop

    async def close(self) -> None:
        """Take no further commands, and return when none is being carried out.

        Raises KafkaError if the log has failed and must not be closed as if it were clean.
        """
        async with self._in_turn():
            if self._closed is not None:
                raise self._closed.exception()
            self.stop()
            claim = self._leadership.claim
            settled = None if claim is None else claim.settled()
        if settled is None:
            return
        try:
            await settled
        except KafkaError as error:
            # Another node leads meanwhile: what becomes of the rest is up to that one.
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    def stop(self) -> None:
        """Take no further commands."""
        self._leadership.stop_periodic()
        if self._closed is None:
            self._closed = ApiError(ErrorCode.REQUEST_TIMED_OUT, "this node is stopping")


def _not_controller(leader: LeaderAndEpoch) -> ApiError:
    active = "none" if leader.leader_id is None else f"node {leader.leader_id}"
    return ApiError(
        ErrorCode.NOT_CONTROLLER, f"The active controller appears to be {active}, not this node."
    )
