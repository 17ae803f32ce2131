"""What a broker tells the controller, and when (A50-A54), in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.metadata.broker_life import SHUTDOWN_TIMEOUT_MS, BrokerLife, BrokerState, LifeTimes
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tests.metadata.cluster import uuid

TIMES = LifeTimes(
    heartbeat_interval=2_000,
    registration_timeout=60_000,
    session_timeout=9_000,
    directory_failure_timeout=30_000,
)
DIRECTORIES = (uuid(201), uuid(202), uuid(203))
REGISTRATION = BrokerRegistrationRequest(
    broker_id=BrokerId(3), cluster_id="c", log_dirs=DIRECTORIES
)
EPOCH = 17
SILENCE = ErrorCode.REQUEST_TIMED_OUT


class Told:
    """A broker's life, and the clock."""

    def __init__(self, *, is_alone: bool = False) -> None:
        self.now = 1_000.0
        self.life = BrokerLife(REGISTRATION, TIMES, is_alone=is_alone)
        self.life.start(self.now)

    def send(self) -> BrokerRegistrationRequest | BrokerHeartbeatRequest:
        """Wait until something is due, and return what is sent."""
        deadline = self.life.deadline_ms
        assert deadline is not None
        self.now = max(self.now, deadline)
        assert self.life.is_due(self.now)
        return self.life.next_request(99)

    def register(self) -> None:
        assert self.send() is REGISTRATION
        self.life.answered(BrokerRegistrationResponse(broker_epoch=EPOCH), self.now)

    def beat(
        self, code: int = 0, *, caught_up: bool = True, fenced: bool = True, stop: bool = False
    ) -> BrokerHeartbeatRequest:
        """Send the next heartbeat, and take in its answer."""
        request = self.send()
        assert isinstance(request, BrokerHeartbeatRequest)
        self.life.answered(
            BrokerHeartbeatResponse(
                error_code=code, is_caught_up=caught_up, is_fenced=fenced, should_shut_down=stop
            ),
            self.now,
        )
        return request

    def run(self) -> None:
        """Come to be a broker that serves."""
        self.register()
        self.beat()
        self.life.recovered(self.now)
        self.beat(fenced=False)
        assert self.life.state is BrokerState.RUNNING


def test_a_broker_comes_to_serve_without_waiting_if_nobody_makes_it_wait() -> None:
    """A50: register, catch up, recover with wantFence, unfence; a start takes no time by itself."""
    told = Told()
    begun = told.now
    told.register()
    before = told.life.is_caught_up
    first = told.beat()
    assert (before, told.life.is_caught_up) == (False, True)
    assert (first.broker_id, first.broker_epoch, first.current_metadata_offset) == (3, EPOCH, 99)
    assert first.want_fence
    told.life.recovered(told.now)
    second = told.beat(fenced=False)
    assert not second.want_fence
    assert told.life.state is BrokerState.RUNNING
    assert told.now == begun


@pytest.mark.parametrize("is_registered", [False, True])
def test_who_ends_before_its_image_has_caught_up_has_not_caught_up(is_registered: bool) -> None:
    """Else it would open its logs by an image that does not know them, and set them aside."""
    told = Told()
    if is_registered:
        told.register()
        told.life.stop(told.now)
    else:
        assert told.life.deadline_ms is not None
        told.life.tick(told.now + 1e9)
    assert told.life.is_over
    assert not told.life.is_caught_up


def test_heartbeats_hurry_until_the_image_has_caught_up() -> None:
    """A50: every 10 ms while not caught up, and every interval from then on."""
    told = Told()
    told.register()
    begun = told.now
    for _ in range(5):
        told.beat(caught_up=False)
    assert told.now == begun + 40
    told.beat()
    assert told.life.state is BrokerState.RECOVERY
    before = told.now
    assert [told.beat().want_fence for _ in range(3)] == [True] * 3, "recovering takes long"
    assert told.now == before + 10 + 2 * TIMES.heartbeat_interval
    told.life.recovered(told.now)
    assert told.life.is_due(told.now)


def test_what_happens_while_a_heartbeat_is_on_its_way_is_told_right_after_it() -> None:
    """A51: one message at a time."""
    told = Told()
    told.register()
    told.beat()
    told.send()
    told.life.recovered(told.now)
    assert not told.life.is_due(told.now)
    told.life.answered(BrokerHeartbeatResponse(is_caught_up=True), told.now)
    assert told.life.is_due(told.now)


def test_the_first_registration_is_tried_for_a_time_and_then_given_up() -> None:
    """A50: every interval, until initial.broker.registration.timeout.ms is over."""
    told = Told()
    begun = told.now
    tries = 0
    while not told.life.is_over:
        assert told.send() is REGISTRATION
        tries += 1
        code = SILENCE if tries % 2 else ErrorCode.DUPLICATE_BROKER_REGISTRATION
        told.life.answered(BrokerRegistrationResponse(error_code=code), told.now)
        assert told.life.deadline_ms is not None
        told.now = told.life.deadline_ms
        told.life.tick(told.now)
    assert tries == TIMES.registration_timeout / TIMES.heartbeat_interval
    assert (told.now, told.life.failure) == (begun + TIMES.registration_timeout, SILENCE)


def test_a_registration_that_is_never_answered_is_given_up_too() -> None:
    told = Told()
    told.send()
    assert told.life.deadline_ms == told.now + TIMES.registration_timeout
    told.life.tick(told.life.deadline_ms)
    assert told.life.is_over


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_registration_that_waiting_does_not_help_is_given_up_at_once(code: ErrorCode) -> None:
    told = Told()
    told.send()
    told.life.answered(BrokerRegistrationResponse(error_code=code), told.now)
    assert (told.life.is_over, told.life.failure) == (True, code)


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR, SILENCE]
)
def test_an_error_does_not_make_a_broker_register_again(code: ErrorCode) -> None:
    """A51: it waits for an interval, and goes on with its heartbeats."""
    told = Told()
    told.run()
    for _ in range(100):
        before = told.now
        told.beat(code)
        assert told.now - before <= TIMES.heartbeat_interval
    assert told.life.state is BrokerState.RUNNING
    assert told.life.broker_epoch == EPOCH


def test_a_broker_that_is_fenced_goes_on_asking() -> None:
    told = Told()
    told.run()
    assert not told.beat(fenced=True).want_fence
    assert told.life.state is BrokerState.RUNNING


def test_the_same_incarnation_may_register_again() -> None:
    """A33: its epoch and its state stay."""
    told = Told()
    told.run()
    told.life.register_again(told.now)
    told.register()
    assert told.life.state is BrokerState.RUNNING
    assert not told.beat(fenced=False).want_fence


def test_a_stop_is_asked_for_until_the_controller_agrees() -> None:
    """A52: the second heartbeat after 50 ms, then every interval."""
    told = Told()
    told.run()
    told.life.stop(told.now)
    begun = told.now
    asked = [told.beat(fenced=False) for _ in range(4)]
    assert all(one.want_shut_down and not one.want_fence for one in asked)
    assert told.now == begun + 50 + 2 * TIMES.heartbeat_interval
    assert told.life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    told.beat(stop=True)
    assert (told.life.is_over, told.life.failure) == (True, None)
    assert told.life.deadline_ms is None


@pytest.mark.parametrize(
    ("code", "limit_ms"),
    [
        (0, SHUTDOWN_TIMEOUT_MS),
        (ErrorCode.BROKER_NOT_AVAILABLE, SHUTDOWN_TIMEOUT_MS),
        (SILENCE, TIMES.session_timeout),
    ],
    ids=["a controller that never agrees", "one that answers with errors", "none that answers"],
)
def test_a_stop_does_not_wait_for_ever(code: int, limit_ms: int) -> None:
    """A52: five minutes; who is not heard is fenced after its session anyway."""
    told = Told()
    told.run()
    told.life.stop(told.now)
    begun = told.now
    while not told.life.is_over:
        told.beat(code, fenced=False)
        assert told.life.deadline_ms is not None
        told.now = told.life.deadline_ms
        told.life.tick(told.now)
    assert (told.now, told.life.failure) == (begun + limit_ms, SILENCE)


def test_a_controller_that_comes_back_during_a_stop_is_waited_for() -> None:
    told = Told()
    told.run()
    told.life.stop(told.now)
    for code in (SILENCE, SILENCE, 0, SILENCE, SILENCE):
        told.beat(code, fenced=False)
        told.life.tick(told.now)
    told.beat(stop=True)
    assert (told.life.is_over, told.life.failure) == (True, None)


def test_a_broker_that_the_controller_does_not_know_stops_at_once() -> None:
    told = Told()
    told.run()
    told.life.stop(told.now)
    told.beat(ErrorCode.STALE_BROKER_EPOCH)
    assert told.life.is_over


def test_a_broker_that_is_alone_does_not_wait_to_stop() -> None:
    """Nobody takes over from it, and nobody else will answer."""
    for code, asked in ((0, 2), (SILENCE, 1)):
        told = Told(is_alone=True)
        told.run()
        told.life.stop(told.now)
        begun = told.now
        for number in range(asked):
            told.beat(code, stop=number > 0)
        assert (told.life.is_over, told.now) == (True, begun)


def test_a_broker_that_does_not_serve_yet_just_stops() -> None:
    """A52: nobody relies on it."""
    for steps in range(3):
        told = Told()
        if steps:
            told.register()
        if steps > 1:
            told.beat()
        told.life.stop(told.now)
        assert told.life.is_over


def test_a_failed_directory_is_told_at_once_and_in_every_heartbeat_from_then_on() -> None:
    """D3."""
    first, second, _ = DIRECTORIES
    told = Told()
    told.run()
    begun = told.now
    told.life.directory_failed(second, told.now)
    assert (told.beat(fenced=False).offline_log_dirs, told.now) == ((second,), begun)
    told.life.directory_failed(first, told.now)
    told.life.directory_failed(second, told.now)
    assert (told.beat(fenced=False).offline_log_dirs, told.now) == ((first, second), begun)
    assert told.beat(fenced=False).offline_log_dirs == (first, second)
    assert told.now == begun + 2_000


def test_a_directory_that_fails_while_a_heartbeat_is_on_its_way_is_told_in_the_next() -> None:
    told = Told()
    told.run()
    request = told.send()
    told.life.directory_failed(DIRECTORIES[0], told.now)
    told.life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), told.now)
    begun = told.now
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.offline_log_dirs == ()
    assert (told.beat(fenced=False).offline_log_dirs, told.now) == (DIRECTORIES[:1], begun)


def test_a_broker_that_cannot_tell_of_a_failed_directory_ends() -> None:
    """D3: log.dir.failure.timeout.ms."""
    told = Told()
    told.run()
    begun = told.now
    told.life.directory_failed(DIRECTORIES[0], told.now)
    while not told.life.is_over:
        assert told.now <= begun + 30_000
        told.beat(SILENCE)
        deadline = told.life.deadline_ms
        assert deadline is not None
        told.now = deadline
        told.life.tick(told.now)
    assert (told.life.is_cut_off, told.now) == (True, begun + 30_000)


def test_a_broker_that_has_told_of_a_failed_directory_goes_on_without_a_controller() -> None:
    told = Told()
    told.run()
    told.life.directory_failed(DIRECTORIES[0], told.now)
    told.beat(fenced=False)
    for _ in range(100):
        told.beat(SILENCE)
        told.life.tick(told.now)
    assert not told.life.is_over


def test_a_registration_does_not_have_the_directories_that_have_failed() -> None:
    told = Told()
    told.life.directory_failed(DIRECTORIES[1], told.now)
    request = told.send()
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.log_dirs == (DIRECTORIES[0], DIRECTORIES[2])


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans(), st.booleans())))
def test_a_life_always_knows_when_to_look_again(
    steps: list[tuple[int, bool, bool, bool]],
) -> None:
    """Whatever happens, one message is on its way or a time is set, until it is over."""
    told = Told()
    codes = [0, 0, SILENCE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE]
    for kind, caught_up, fenced, stop in steps:
        life = told.life
        if life.is_over:
            break
        assert life.deadline_ms is not None
        if kind < len(codes):
            request = told.send()
            assert life.deadline_ms is None or life.deadline_ms > told.now
            reply: BrokerRegistrationResponse | BrokerHeartbeatResponse
            reply = BrokerHeartbeatResponse(
                error_code=codes[kind],
                is_caught_up=caught_up,
                is_fenced=fenced,
                should_shut_down=stop,
            )
            if isinstance(request, BrokerRegistrationRequest):
                reply = BrokerRegistrationResponse(error_code=codes[kind], broker_epoch=EPOCH)
            life.answered(reply, told.now)
        elif kind == 6:
            life.directory_failed(DIRECTORIES[fenced], told.now)
        elif caught_up:
            life.recovered(told.now)
        elif stop:
            life.stop(told.now)
        life.tick(told.now)
