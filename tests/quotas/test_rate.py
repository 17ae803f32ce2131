"""How rates of clients are measured, and how long they wait (facts: security.md, section 9)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.quotas.rate import Meter

WINDOWS, WINDOW_MS = 11, 1000


@dataclass
class KafkaSample:
    start_ms: int
    last_ms: int
    size: float = 0.0


@dataclass
class KafkaRate:
    """Kafka's Rate of a SampledStat, as its source has it: a ring of samples that are reset."""

    windows: int
    window_ms: int
    samples: list[KafkaSample] = field(default_factory=list)
    current: int = 0

    def record(self, size: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(KafkaSample(now_ms, now_ms))
        if now_ms - self.samples[self.current].start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.windows + 1)
            if self.current >= len(self.samples):
                self.samples.append(KafkaSample(now_ms, now_ms))
            else:
                self.samples[self.current] = KafkaSample(now_ms, now_ms)
        self.samples[self.current].size += size
        self.samples[self.current].last_ms = now_ms

    def window(self, now_ms: int) -> int:
        for index, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= self.windows * self.window_ms:
                self.samples[index] = KafkaSample(now_ms, now_ms)
        elapsed_ms = now_ms - min((sample.start_ms for sample in self.samples), default=now_ms)
        full = elapsed_ms // self.window_ms
        if full < self.windows - 1:
            elapsed_ms += (self.windows - 1 - full) * self.window_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        window_ms = self.window(now_ms)
        rate = sum(sample.size for sample in self.samples) / window_ms * 1000
        return round((rate - bound) / bound * window_ms) if rate > bound else 0


def test_who_begins_may_do_at_once_what_ten_windows_allow() -> None:
    """9, Rate: the window is raised to ten whole ones and the part of the current one."""
    meter = Meter(WINDOWS, WINDOW_MS)
    meter.record(10_000, 5_000)
    assert (meter.window_ms(5_000), meter.rate(5_000)) == (10_000, 1000.0)
    assert meter.throttle_ms(1000, 5_000) == 0


def test_one_waits_until_the_rate_would_be_within_the_bound() -> None:
    """9, Violation: (rate - bound) / bound * W; there is no upper limit."""
    meter = Meter(WINDOWS, WINDOW_MS)
    meter.record(15_000, 0)
    assert meter.throttle_ms(1000, 0) == 5_000
    meter.record(10_000_000, 0)
    assert meter.throttle_ms(1000, 0) == 10_005_000


def test_what_is_taken_back_was_never_there() -> None:
    """9, Fetch: what is not sent is un-recorded."""
    meter = Meter(WINDOWS, WINDOW_MS)
    meter.record(700, 100)
    before = meter.rate(100)
    meter.record(50_000, 100)
    meter.record(-50_000, 100)
    assert meter.rate(100) == before


def test_samples_are_dropped_when_their_last_event_is_eleven_windows_old() -> None:
    """9, Rate."""
    meter = Meter(WINDOWS, WINDOW_MS)
    meter.record(1000, 0)
    meter.record(1000, 900)
    assert meter.rate(900 + 10_999) > 0
    assert meter.rate(900 + 11_000) == 0


@given(
    windows=st.integers(1, 12),
    bound=st.integers(1, 5_000),
    events=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 20_000)), max_size=60),
)
def test_rates_are_those_of_kafka(windows: int, bound: int, events: list[tuple[int, int]]) -> None:
    """9, Rate and Violation: after each event, whatever came before."""
    meter, model, now_ms = Meter(windows, WINDOW_MS), KafkaRate(windows, WINDOW_MS), 0
    for pause_ms, size in events:
        now_ms += pause_ms
        meter.record(size, now_ms)
        model.record(size, now_ms)
        assert meter.window_ms(now_ms) == model.window(now_ms)
        assert meter.throttle_ms(bound, now_ms) == pytest.approx(
            model.throttle_ms(bound, now_ms), abs=1
        )
