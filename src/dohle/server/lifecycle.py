"""Runs the life of this broker (``metadata/broker_life.py``): sends, waits, and tells the operator.

Each step is a request to the controller, even if that is in the same process.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Event, Task, timeout_at
from collections.abc import Callable, Sequence
from contextlib import suppress

from dohle.core.config.listeners import Listener
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.metadata.broker_life import BrokerLife, BrokerState, LifeTimes
from dohle.metadata.delta import Delta
from dohle.metadata.features import registration_features
from dohle.metadata.image import ClusterImage
from dohle.metadata.metadata_version import supports_directories
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from dohle.protocol.messages.broker_registration import (
    Listener as RegisteredListener,
)
from dohle.server.channel import ControllerChannel, ImageSource

logger = logging.getLogger("dohle.server")

#: How often the operator is told that the controller does not answer, or refuses.
_TOLD_EACH_S = 5.0
_DIRECTORY_FAILURE_TIMEOUT = "log.dir.failure.timeout.ms"

_Reply = BrokerRegistrationResponse | BrokerHeartbeatResponse


class BrokerLifecycle:
    """Tells the controller about the state of this broker, from ``start`` to ``shut_down``."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        config: BrokerConfig,
        cluster_id: str,
        incarnation_id: Uuid,
        images: ImageSource,
        channel: ControllerChannel,
        *,
        is_alone: bool = False,
        is_led: Callable[[], bool] = lambda: True,
        on_fatal: Callable[[str], None],
    ) -> None:
        """``is_led`` tells whether the quorum has a leader; else its own watch says so."""
        self._loop = loop
        self._config = config
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._images = images
        self._channel = channel
        self._is_alone = is_alone
        self._is_led = is_led
        self._on_fatal = on_fatal
        self._controllers = config.placement.quorum_text or "of this node"
        self._life: BrokerLife | None = None
        self._sending: Task[_Reply] | None = None
        self._running: Task[None] | None = None
        self._woken = Event()
        self._changed = Event()
        #: Whether this broker must register again, so that its directories are known.
        self._lacks_directories = False
        self._failing_since_s: float | None = None
        self._told_s = float("-inf")

    @property
    def broker_epoch(self) -> int:
        """The offset of this registration in the metadata log; -1 without one."""
        return -1 if self._life is None else self._life.broker_epoch

    # The broker's wishes

    async def register(
        self, listeners: Sequence[Listener], log_dirs: Sequence[Uuid], previous_epoch: int
    ) -> None:
        """Register with the addresses for clients, and return when the image includes that.

        It is fenced from then on. ``previous_epoch`` is the broker epoch before the restart if the
        broker is known to have stopped cleanly, else -1. KafkaError if it is refused for good.
        """
        config = self._config
        request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=tuple(
                RegisteredListener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.protocol,
                )
                for listener in listeners
            ),
            features=registration_features(),
            rack=config.rack,
            log_dirs=tuple(sorted(log_dirs)),
            previous_broker_epoch=previous_epoch,
        )
        times = LifeTimes(
            config.get_int("broker.heartbeat.interval.ms"),
            config.get_int("initial.broker.registration.timeout.ms"),
            config.get_int("broker.session.timeout.ms"),
            config.get_int(_DIRECTORY_FAILURE_TIMEOUT),
        )
        self._life = BrokerLife(request, times, is_alone=self._is_alone)
        self._life.start(self._now_ms())
        self._running = self._loop.create_task(self._run(self._life))
        await self._until(self._life, lambda life: life.is_caught_up)

    async def unfence(self) -> None:
        """Say that all logs are open, and return when the controller has unfenced this broker."""
        life = self._life
        assert life is not None, "it is registered before"
        life.recovered(self._now_ms())
        self._woken.set()
        await self._until(life, lambda life: life.state is BrokerState.RUNNING)

    def directory_failed(self, directory_id: Uuid) -> None:
        """Tell the controller that the replicas in a directory cannot be used any more (D3)."""
        if self._life is not None:
            self._life.directory_failed(directory_id, self._now_ms())
            self._woken.set()

    async def shut_down(self) -> None:
        """Return when no other node relies on this broker any more, or after waiting in vain."""
        life, running = self._life, self._running
        if life is None or running is None:
            return
        if not self._config.get_bool("controlled.shutdown.enable"):
            self.abandon()
            return
        was_running = life.state is BrokerState.RUNNING
        life.stop(self._now_ms())
        self._woken.set()
        await running
        if was_running and life.failure is ErrorCode.REQUEST_TIMED_OUT:
            logger.error(
                "the controllers (%s) did not approve the shutdown of this broker in time: it stops"
                " all the same",
                self._controllers,
            )
        elif was_running and life.failure is not None:
            logger.error(
                "the controller could not be told that this broker stops: %s. Until the broker"
                " starts again, the controller may take it for alive.",
                life.failure.name,
            )

    def abandon(self) -> None:
        """Say nothing more."""
        for task in (self._running, self._sending):
            if task is not None:
                task.cancel()

    async def _until(self, life: BrokerLife, is_reached: Callable[[BrokerLife], bool]) -> None:
        while not is_reached(life):
            if life.is_over:
                raise self._refused(life)
            assert self._running is not None, "it was begun"
            if self._running.done():
                self._running.result()
            self._changed.clear()
            await self._changed.wait()

    def _refused(self, life: BrokerLife) -> KafkaError:
        code = life.failure or ErrorCode.REQUEST_TIMED_OUT
        if code is ErrorCode.REQUEST_TIMED_OUT:
            limit_s = self._config.get_int("initial.broker.registration.timeout.ms") / 1000
            return KafkaError(
                code,
                f"this broker could not be registered by the controllers ({self._controllers}) "
                f"within {limit_s:g} s (initial.broker.registration.timeout.ms)",
            )
        return KafkaError(code, f"this broker cannot be registered: {self._explain(code)}")

    async def on_image(self, image: ClusterImage, _: Delta) -> None:
        """Register again once metadata.version includes the directories of a broker (A33)."""
        life, level = self._life, image.metadata_version
        registration = image.broker(self._config.node_id)
        if life is None or registration is None or level is None:
            return
        lacks = supports_directories(level) and not registration.log_dirs
        if lacks and not self._lacks_directories and registration.epoch == life.broker_epoch:
            life.register_again(self._now_ms())
            self._woken.set()
        self._lacks_directories = lacks

    # Running

    async def _run(self, life: BrokerLife) -> None:
        try:
            while not life.is_over:
                self._woken.clear()
                if life.is_due(self._now_ms()):
                    self._send(life)
                await self._wait(life.deadline_ms)
                life.tick(self._now_ms())
                self._take_answer(life)
                self._changed.set()
            if life.is_cut_off:
                limit_ms = self._config.get_int(_DIRECTORY_FAILURE_TIMEOUT)
                self._on_fatal(
                    "the controller could not be told that a log directory has failed within "
                    f"{limit_ms} ms ({_DIRECTORY_FAILURE_TIMEOUT})"
                )
        except Exception as error:
            logger.exception("the life of this broker cannot go on. Please report this.")
            self._on_fatal(f"this broker cannot tell the controller that it is alive: {error}")
            raise
        finally:
            self._changed.set()
            if self._sending is not None:
                self._sending.cancel()

    async def _wait(self, deadline_ms: float | None) -> None:
        """Wait until something happens, or it is time."""
        deadline_s = None if deadline_ms is None else deadline_ms / 1000
        with suppress(TimeoutError):
            async with timeout_at(deadline_s):
                await self._woken.wait()

    def _send(self, life: BrokerLife) -> None:
        request = life.next_request(self._images.applied_offset)
        answer: type[_Reply] = BrokerHeartbeatResponse
        if isinstance(request, BrokerRegistrationRequest):
            answer = BrokerRegistrationResponse
        self._sending = self._loop.create_task(self._channel.send(request, answer))
        self._sending.add_done_callback(lambda _: self._woken.set())

    def _take_answer(self, life: BrokerLife) -> None:
        sending = self._sending
        if sending is None or not sending.done():
            return
        self._sending = None
        reply = sending.result()
        self._tell(life, ErrorCode(reply.error_code))
        before = life.state
        life.answered(reply, self._now_ms())
        if life.state is not before:
            logger.debug("this broker is %s, after %s", life.state.name, before.name)

    # What the operator is told

    def _tell(self, life: BrokerLife, code: ErrorCode) -> None:
        now_s = self._loop.time()
        if not code:
            if self._failing_since_s is not None and self._told_s >= self._failing_since_s:
                logger.info("the controller answers this broker again")
            self._failing_since_s = None
            return
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and self._may_be_itself(now_s):
            return
        is_silent = code is ErrorCode.REQUEST_TIMED_OUT
        if is_silent and not self._is_led():
            # The operator is told that by ``LeaderWatch``, once for all who notice.
            self._failing_since_s = now_s
            return
        since_s = max(self._told_s, self._failing_since_s if is_silent else float("-inf"))
        if now_s - since_s < _TOLD_EACH_S:
            return
        self._told_s = now_s
        tried_s = now_s - self._failing_since_s
        if is_silent:
            logger.warning(
                "cannot reach the controllers %s: tried for %.0f s", self._controllers, tried_s
            )
        else:
            what = "registered" if life.state is BrokerState.STARTING else "heard"
            logger.warning(
                "this broker is not %s: %s; tried for %.0f s", what, self._explain(code), tried_s
            )

    def _may_be_itself(self, now_s: float) -> bool:
        """Tell once that a former process counts as alive until its session ends (A36)."""
        assert self._failing_since_s is not None, "it was just refused"
        session_s = self._config.get_int("broker.session.timeout.ms") / 1000
        if now_s == self._failing_since_s:
            logger.info(
                "this broker is not registered yet: its former process is still taken for alive "
                "for up to %g s; waiting",
                session_s,
            )
        return now_s - self._failing_since_s <= session_s

    def _explain(self, code: ErrorCode) -> str:
        node_id = self._config.node_id
        match code:
            case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                return (
                    f"another broker with the id {node_id} is alive: stop it, or give this one an "
                    "id of its own (node.id)"
                )
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                return (
                    f"its directories are of cluster {self._cluster_id}, and the controllers are "
                    "of another"
                )
            case ErrorCode.UNSUPPORTED_VERSION:
                return "the cluster has finalized features that it does not support"
            case ErrorCode.STALE_BROKER_EPOCH:
                return self._explain_stale(node_id)
            case _:
                return f"the controller answered {code.name}"

    def _explain_stale(self, node_id: int) -> str:
        """Tell what has become of the registration, as far as is known here."""
        registration = self._images.image.broker(node_id)
        unregistered = "it was unregistered: restart it to join again"
        another = f"another broker has registered with the id {node_id} since"
        if registration is None:
            return unregistered
        if registration.incarnation_id != self._incarnation_id:
            return another
        # The change is not here yet.
        return f"{unregistered}; or {another}"

    def _now_ms(self) -> float:
        return self._loop.time() * 1000
