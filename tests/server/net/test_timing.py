"""Which requests on the slow path are timed, and how many each of them stands for."""

from __future__ import annotations

import pytest

from dohle.metrics.requests import RequestMetrics
from dohle.server.net.timing import THICK_PER_SAMPLE, THICK_S, ConnectionTimes, RequestKind


def weights(gap_s: float, count: int, *, always: bool = False) -> list[float]:
    """Return what the samples of requests that come one after the other stand for."""
    metrics, now = RequestMetrics("Metadata"), [0.0]
    kind, times = RequestKind(metrics), ConnectionTimes(lambda: now[0])
    for _ in range(count):
        timed = kind.begin(times, now[0], lambda: now[0], 100, always=always)
        if timed.times is not None:
            timed.times.add(timed)
        times.sent()
        now[0] += gap_s
    return list(metrics.samples.columns()[-1])


def test_requests_that_come_seldom_are_all_timed() -> None:
    assert weights(THICK_S * 1.1, 20) == [1] * 20


def test_of_requests_that_come_thick_one_in_some_stands_for_all() -> None:
    found = weights(THICK_S / 1000, 70)
    assert found == [1, 1, *[THICK_PER_SAMPLE] * 9]


@pytest.mark.parametrize("gap_s", [THICK_S / 1000, THICK_S / 3, THICK_S / 10])
def test_samples_stand_for_as_many_requests_as_there_were(gap_s: float) -> None:
    assert 700 - THICK_PER_SAMPLE < sum(weights(gap_s, 700)) <= 700


def test_the_request_log_has_every_request_timed() -> None:
    assert weights(0.0, 20, always=True) == [1] * 20
