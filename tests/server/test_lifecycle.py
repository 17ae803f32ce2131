"""The life of a broker in virtual time: what it says to a controller, and to its operator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dohle.cli.main import main
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import ManualClock
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.broker_life import SHUTDOWN_TIMEOUT_MS
from dohle.metadata.image import EMPTY_IMAGE, BrokerRegistration, ClusterImage
from dohle.metadata.metadata_version import LATEST_LEVEL, METADATA_VERSION
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dohle.protocol.schema import Request, Response
from dohle.server.channel import ImageListener
from dohle.server.lifecycle import BrokerLifecycle
from dohle.server.quorum.refusals import Refusals
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import World
from tests.server.faults import until
from tests.server.wire import Wire, running_node

R = TypeVar("R", bound=Response)
Reply = BrokerRegistrationResponse | BrokerHeartbeatResponse
#: A controller that does not answer is given up after so long.
SILENCE_S = 2.0
ALIVE = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
ANOTHER = Uuid(b"another".ljust(16))
NAMES = "1@a:9093, 2@b:9093"
QUORUM = {
    "controller.quorum.voters": "1@a:9093,2@b:9093",
    "controller.listener.names": "C",
    "listeners": "PLAINTEXT://:1,C://:2",
}


class Images:
    """An image that does not change."""

    kraft_version = 1

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.applied_offset = image.offset

    def subscribe(self, listener: ImageListener) -> None:
        """Never call it."""


def _failure(request: Request, code: ErrorCode) -> Reply:
    if isinstance(request, BrokerRegistrationRequest):
        return BrokerRegistrationResponse(error_code=code)
    return BrokerHeartbeatResponse(error_code=code)


class Controller:
    """A controller whose answers are written down; after the last, it answers for ever so."""

    def __init__(self, *answers: Reply | ErrorCode) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, Request]] = []

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Answer."""
        self.asked.append((asyncio.get_running_loop().time(), request))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, ErrorCode):
            if found is ErrorCode.REQUEST_TIMED_OUT:
                await asyncio.sleep(SILENCE_S)
            found = _failure(request, found)
        assert isinstance(found, answer)
        return found

    def intervals(self) -> list[float]:
        """Return the seconds between two requests."""
        times = [time for time, _ in self.asked]
        return [round(after - before, 2) for before, after in pairwise(times)]


def simulate(
    program: Callable[[BrokerLifecycle], Coroutine[Any, Any, None]],
    controller: Controller,
    image: ClusterImage = EMPTY_IMAGE,
    *,
    is_led: Callable[[], bool] = lambda: True,
    **configs: str,
) -> None:
    world = World(1)
    properties = {name.replace("_", "."): value for name, value in configs.items()}
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **QUORUM, **properties})
    machine = world.machine("broker")

    async def main(host: SimulatedHost) -> None:
        life = BrokerLifecycle(
            asyncio.get_running_loop(),
            config,
            "the-cluster",
            ZERO_UUID,
            Images(image),
            controller,
            is_led=is_led,
            on_fatal=pytest.fail,
        )
        await program(life)

    machine.start(main)
    world.run_until(machine.main.done, 3_600)
    machine.main.result()


async def start(life: BrokerLifecycle) -> None:
    await life.register(BrokerConfig.from_properties(SINGLE_NODE)[0].listeners, [ZERO_UUID], -1)
    await life.unfence()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]


def test_heartbeats_go_on_as_long_as_the_broker_runs() -> None:
    """A51: every broker.heartbeat.interval.ms."""
    controller = Controller(BrokerRegistrationResponse(broker_epoch=5), ALIVE)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        assert life.broker_epoch == 5
        await asyncio.sleep(10)
        assert controller.intervals()[:21] == [0, 0] + [0.5] * 19
        life.abandon()

    simulate(program, controller, broker_heartbeat_interval_ms="500")


def test_the_operator_is_told_whom_a_broker_cannot_reach(caplog: pytest.LogCaptureFixture) -> None:
    """A50: after a minute the start fails, and until then it is told every few seconds."""
    controller = Controller(ErrorCode.REQUEST_TIMED_OUT)

    async def program(life: BrokerLifecycle) -> None:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(KafkaError) as refused:
            await start(life)
        assert round(asyncio.get_running_loop().time() - begun) == 60
        assert refused.value.args[0] == (
            f"this broker could not be registered by the controllers ({NAMES}) within 60 s "
            "(initial.broker.registration.timeout.ms)"
        )

    simulate(program, controller)
    told = lines(caplog)
    assert told[0] == f"cannot reach the controllers {NAMES}: tried for 8 s"
    assert 5 <= len(told) <= 12


def test_a_broker_says_nothing_of_a_quorum_without_a_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That is told once for all who notice, by ``LeaderWatch``."""
    caplog.set_level(logging.INFO, "dohle.server")
    silent = [ErrorCode.REQUEST_TIMED_OUT] * 5
    controller = Controller(*silent, BrokerRegistrationResponse(broker_epoch=5), ALIVE)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        life.abandon()

    # The last attempt fails when another leader was just elected: that is no news either.
    simulate(program, controller, is_led=lambda: len(controller.asked) >= 5)
    assert lines(caplog) == []


def test_a_controller_that_is_back_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dohle.server")
    silent = [ErrorCode.REQUEST_TIMED_OUT] * 3
    controller = Controller(*silent, BrokerRegistrationResponse(broker_epoch=5), ALIVE)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        life.abandon()

    simulate(program, controller)
    assert lines(caplog) == [
        f"cannot reach the controllers {NAMES}: tried for 8 s",
        "the controller answers this broker again",
    ]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            ErrorCode.UNSUPPORTED_VERSION,
            "this broker is not registered: the cluster has finalized features that it does not "
            "support; tried for 0 s",
        ),
        (
            ErrorCode.BROKER_NOT_AVAILABLE,
            "this broker is not registered: the controller answered BROKER_NOT_AVAILABLE; tried "
            "for 0 s",
        ),
    ],
)
def test_a_registration_that_is_refused_is_told_at_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, code: ErrorCode, text: str
) -> None:
    """It may be mended meanwhile."""
    controller = Controller(code, code, BrokerRegistrationResponse(broker_epoch=5), ALIVE)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        life.abandon()

    simulate(program, controller)
    assert lines(caplog)[0] == text
    assert controller.intervals()[:2] == [2, 2]


@pytest.mark.parametrize("refusals", [4, 7])
def test_another_broker_is_suspected_only_when_the_former_process_must_be_forgotten(
    caplog: pytest.LogCaptureFixture, refusals: int
) -> None:
    """A36: the session of a process that was killed lasts for 9 s."""
    caplog.set_level(logging.INFO, "dohle.server")
    refused = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * refusals
    controller = Controller(*refused, BrokerRegistrationResponse(broker_epoch=5), ALIVE)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        life.abandon()

    simulate(program, controller)
    assert controller.intervals()[:3] == [2, 2, 2]
    told = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.levelno > logging.DEBUG
    ]
    waiting = (
        "this broker is not registered yet: its former process is still taken for alive for up to "
        "9 s; waiting"
    )
    suspecting = (
        "this broker is not registered: another broker with the id 1 is alive: stop it, or give "
        "this one an id of its own (node.id); tried for 10 s"
    )
    expected = [("INFO", waiting)]
    if refusals > 5:
        expected += [
            ("WARNING", suspecting),
            ("INFO", "the controller answers this broker again"),
        ]
    assert told == expected


def registered(incarnation: Uuid) -> ClusterImage:
    broker = BrokerRegistration(BrokerId(1), 9, incarnation, {})
    return replace(EMPTY_IMAGE, brokers=EMPTY_IMAGE.brokers.changed({broker.id: broker}))


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (EMPTY_IMAGE, "it was unregistered: restart it to join again"),
        (registered(ANOTHER), "another broker has registered with the id 1 since"),
        (
            registered(ZERO_UUID),
            "it was unregistered: restart it to join again; or another broker has registered with "
            "the id 1 since",
        ),
    ],
)
def test_a_broker_that_is_not_heard_any_more_says_what_has_become_of_its_registration(
    caplog: pytest.LogCaptureFixture, image: ClusterImage, reason: str
) -> None:
    stale = ErrorCode.STALE_BROKER_EPOCH
    controller = Controller(BrokerRegistrationResponse(broker_epoch=5), ALIVE, ALIVE, stale)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        await asyncio.sleep(60)
        life.abandon()

    simulate(program, controller, image)
    assert lines(caplog)[0] == f"this broker is not heard: {reason}; tried for 0 s"


def test_the_controller_does_not_repeat_why_it_refuses_with_each_heartbeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    refusals = Refusals(clock)
    for _ in range(300):
        for broker in (2, 3):
            refusals.tell(BrokerHeartbeatRequest(), f"Broker {broker} is not registered.")
        clock.advance(2_000)
    refused = "BrokerHeartbeatRequest was refused"
    told = [f"{refused}: Broker {each} is not registered." for each in (2, 3)]
    assert lines(caplog) == told
    refusals.tell(BrokerHeartbeatRequest(), "Broker 2 is not registered.")
    assert lines(caplog) == [*told, told[0]]


def test_a_broker_of_another_cluster_does_not_wait() -> None:
    async def program(life: BrokerLifecycle) -> None:
        with pytest.raises(KafkaError, match="its directories are of cluster the-cluster, and"):
            await start(life)

    simulate(program, Controller(ErrorCode.INCONSISTENT_CLUSTER_ID))


def test_a_stop_asks_the_controller_first() -> None:
    """A52."""
    leave = BrokerHeartbeatResponse(is_caught_up=True, should_shut_down=True)
    registered = BrokerRegistrationResponse(broker_epoch=5)
    controller = Controller(registered, ALIVE, ALIVE, ALIVE, ALIVE, leave)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        await life.shut_down()

    simulate(program, controller)
    heartbeats = [one for _, one in controller.asked if isinstance(one, BrokerHeartbeatRequest)]
    asked = [one.want_shut_down for one in heartbeats]
    assert asked == [False, False, True, True, True]
    assert controller.intervals()[-2:] == [0.05, 2]


def test_a_stop_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """A52: it ends after five minutes, and at once without controlled.shutdown.enable."""
    controller = Controller(BrokerRegistrationResponse(broker_epoch=5), ALIVE)

    async def program(life: BrokerLifecycle) -> None:
        await start(life)
        begun = asyncio.get_running_loop().time()
        await life.shut_down()
        assert round(asyncio.get_running_loop().time() - begun) in (0, SHUTDOWN_TIMEOUT_MS // 1000)

    simulate(program, controller)
    assert "did not approve the shutdown of this broker in time" in lines(caplog)[-1]
    count = len(lines(caplog))
    asked = Controller(BrokerRegistrationResponse(broker_epoch=5), ALIVE)
    simulate(program, asked, controlled_shutdown_enable="false")
    assert len(lines(caplog)) == count
    assert not any(
        isinstance(one, BrokerHeartbeatRequest) and one.want_shut_down for _, one in asked.asked
    )
    assert isinstance(asked.asked[0][1], BrokerRegistrationRequest)


def test_a_broker_registers_again_when_its_directories_are_asked_for(tmp_path: Path) -> None:
    """A33: the log has none for it from the time before; its epoch stays, and it is not fenced."""
    data = str(tmp_path / "data")
    assert main(["storage", "format", "--data", data, "--release-version", "3.6"]) == 0

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            before = node.images.image.brokers[BrokerId(1)]
            assert before.log_dirs == ()
            level = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=LATEST_LEVEL)
            await wire.send(UpdateFeaturesRequest(feature_updates=(level,)))
            here = tuple(one.directory_id for one in node.logs.online_directories)
            await until(lambda: node.images.image.brokers[BrokerId(1)].log_dirs == here)
            after = node.images.image.brokers[BrokerId(1)]
            assert (after.epoch, after.fenced) == (before.epoch, False)

    asyncio.run(run())
