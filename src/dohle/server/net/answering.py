"""Answers become frames, and are counted and timed."""

from __future__ import annotations

from collections import Counter
from typing import cast

from dohle.core.steps import PlainSteps
from dohle.protocol.apis import find_api
from dohle.protocol.framing import encode_response, encode_response_in_steps, frame_body
from dohle.protocol.response_errors import error_codes_of
from dohle.protocol.schema import Request, Response
from dohle.server.net.handler import Handler
from dohle.server.net.outcome import EncodedResponse, Frame
from dohle.server.net.reply_queue import frame_size
from dohle.server.net.server import Server
from dohle.server.net.slices import Slices
from dohle.server.net.timing import ConnectionTimes, RequestKind, TimedRequest


class Answering:
    """What a request is counted as, and how its answer is framed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kinds: dict[int | str, RequestKind] = {}
        self._now = server.clock.monotonic_s

    def begin(
        self,
        times: ConnectionTimes,
        arrived: float,
        request_bytes: int,
        api_key: int,
        handler: Handler,
        request: Request | None,
        version: int,
        *,
        always: bool,
    ) -> TimedRequest:
        """Count a request by its kind, and begin to time it; some are not, unless ``always``."""
        name = api_key if handler.kind is None or request is None else handler.kind(request)
        kind = self._kinds.get(name) or self._new_kind(name)
        kind.metrics.by_version[version] += 1
        return kind.begin(times, arrived, self._now, request_bytes, always=always)

    def again(
        self, times: ConnectionTimes, arrived: float, request_bytes: int, name: str
    ) -> TimedRequest:
        """Begin to time a request that a shortcut serves, and counts by its kind's name."""
        kind = self._kinds.get(name) or self._new_kind(name)
        return kind.begin(times, arrived, self._now, request_bytes)

    def _new_kind(self, name: int | str) -> RequestKind:
        metrics = self._server.requests.of(name if isinstance(name, str) else find_api(name).name)
        kind = self._kinds[name] = RequestKind(metrics)
        return kind

    def has_frame(self, timed: TimedRequest, frame: Frame) -> None:
        """Let the connection time the sending of an answer that was waited for and is framed."""
        self._answered(timed, frame, has_waited=True)

    def frame(
        self,
        timed: TimedRequest,
        response: Response | EncodedResponse | None,
        version: int,
        correlation_id: int,
        *,
        has_waited: bool = False,
    ) -> Frame:
        """Encode an answer, and let its connection time the sending."""
        errors = timed.metrics.errors
        if timed.charge is not None:
            response = timed.charge.settle(response)
        if isinstance(response, Response):
            frame = cast("Frame", encode_response(response, version, correlation_id))
            for code in error_codes_of(type(response))(response):
                errors[code] += 1
        elif response is None:
            frame = []
        else:
            body = response.body
            frame = cast("Frame", frame_body(response.api_key, version, correlation_id, body))
            errors[0] += 1
        self._answered(timed, frame, has_waited=has_waited)
        return frame

    async def frame_in_slices(
        self,
        slices: Slices,
        timed: TimedRequest,
        response: Response | EncodedResponse | None,
        version: int,
        correlation_id: int,
        *,
        has_waited: bool = False,
    ) -> Frame:
        """Do the same with an answer that may be very long."""
        if not isinstance(response, Response):
            return self.frame(timed, response, version, correlation_id, has_waited=has_waited)
        if timed.charge is not None:
            timed.charge.used(slices.used_s)
            response = cast("Response", timed.charge.settle(response))
        steps = encode_response_in_steps(response, version, correlation_id)
        frame = cast("Frame", await slices.run(steps))
        await slices.run(_counted(response, timed.metrics.errors))
        self._answered(timed, frame, has_waited=has_waited)
        return frame

    def _answered(self, timed: TimedRequest, frame: Frame, *, has_waited: bool) -> None:
        if timed.times is None:
            return
        if timed.told is not None:
            timed.response_bytes = frame_size(frame) if frame else 0
        timed.answered = self._now()
        if not has_waited:
            timed.handled = timed.answered
        timed.times.add(timed)


def _counted(response: Response, errors: Counter[int]) -> PlainSteps[None]:
    for code in error_codes_of(type(response))(response):
        errors[code] += 1
        yield
