"""(i) Compacted logs: how fast they are cleaned, and what others notice of that.

Each log is written while nothing of it may be cleaned, with keys of which about half are
superseded, evenly. Then its topic's settings allow it, and the time runs until the cleaner's
checkpoint is at the active segment. It counts what a round reads of the log once: its closed
segments. Both servers have one cleaner thread, as by default, and look for dirty logs every 50 ms.

While more such logs are cleaned, another client produces and fetches at a moderate rate, as in (d).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import quantiles

from bench.comparison.figures import Measure
from bench.coordinators.client import answer_of, expect
from bench.processes import Sample
from bench.raw_client import Load, call, connect, frame, pour, produce_frame
from bench.versus.figures import Figure
from bench.versus.latency import Beat, Loop, places_of
from bench.versus.topics import create_topic, delete_topics
from bench.versus.turns import Turn
from dohle.core.ids import TopicName
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from dohle.records.batch import Codec
from dohle.records.builder import BatchBuilder

TITLE = "cleaner"
SETTINGS = {"num.partitions": "1", "log.cleaner.backoff.ms": "50"}

_ALTER_VERSION = 1
_TOPIC_RESOURCE, _SET = 2, 0
_RATIO = "min.cleanable.dirty.ratio"
#: The ratio must be above it: this lets nothing be cleaned, ...
_NEVER = "1"
#: ... and this everything.
_ALWAYS = "0"
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), _RATIO: _NEVER}
_CHECKPOINT = "cleaner-offset-checkpoint"
_BATCH_BYTES = 16_384
_TIMEOUT_S = 120.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class _Case:
    """What a log has: records of a size, or of many sizes if there is none."""

    codec: Codec
    size: int | None

    def __str__(self) -> str:
        size = "10 B to 10 KB" if self.size is None else f"{self.size:,} B"
        return f"{self.codec.name.lower()}, records of {size}"


_CASES = (
    *(_Case(codec, size) for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD) for size in (100, 1024)),
    _Case(Codec.NONE, None),
)
_SMALL = _CASES[0]
#: What each log has before it is compressed.
_MEGABYTES = 48
#: The logs that are cleaned while others are measured.
_OTHERS = 4
_BEAT = Beat(1, 1_000, 1.0)


def turn(turn: Turn) -> list[Figure]:
    """Clean a log of each kind, then some while others work."""
    megabytes = max(turn.size(_MEGABYTES), 24)
    turn.warm_up(lambda number: _warm_up(turn, number), cycle=len(_CASES))
    found = []
    for number, case in enumerate(_CASES):
        sample = _Logs(turn, f"clean-{number}", case, megabytes, 1).clean()
        found += [
            Figure(str(case), Measure.CLEANING, sample.mb_per_s),
            Figure(str(case), Measure.CLEANING_CPU, sample.cpu_s_per_gb),
        ]
        if case is _SMALL:
            rate = sample.requests / sample.seconds
            found.append(Figure(f"{case}, keys", Measure.KEYS, rate))
    found += _beside_cleaning(turn, megabytes)
    found.append(Figure("at most, RSS", Measure.MEMORY, turn.server.peak_rss_mb))
    return found


def _warm_up(turn: Turn, number: int) -> None:
    case = _CASES[number % len(_CASES)]
    logs = _Logs(turn, f"warm-{number}", case, 24, 1)
    logs.clean()
    logs.delete()


def _beside_cleaning(turn: Turn, megabytes: int) -> list[Figure]:
    logs = _Logs(turn, "beside", _SMALL, megabytes, _OTHERS)
    loops: list[Loop] = []

    def work() -> None:
        while not logs.is_clean:
            places = places_of(turn, f"other-{len(loops)}")
            loops.append(Loop(places, _BEAT, turn.size(_BEAT.count)))
            loops[-1].run()

    logs.clean(work)
    # The last may have gone on after the end of the cleaning.
    counted = loops[:-1] or loops
    found = []
    for action, times in (
        ("produce", [took for loop in counted for took in loop.produced_s]),
        ("end to end", [took for loop in counted for took in loop.fetched_s]),
    ):
        cuts = [cut * 1e3 for cut in quantiles(times, n=1_000)]
        case = f"{action}, {_BEAT} while logs are cleaned"
        found += [
            Figure(f"{case}, p50", Measure.LATENCY, cuts[499]),
            Figure(f"{case}, p99", Measure.LATENCY_P99, cuts[989]),
        ]
    return found


class _Logs:
    """Topics of one partition with the same content, written and not cleaned."""

    def __init__(self, turn: Turn, name: str, case: _Case, megabytes: int, count: int) -> None:
        self._server = turn.server
        self._topics = [f"{name}-{number}" for number in range(count)]
        batches, self._records_of_mb = _batches(case, megabytes)
        for topic in self._topics:
            create_topic(turn.server.address, topic, configs=_CONFIGS)
            frames = [produce_frame(TopicName(topic), batch) for batch in batches]
            with connect(turn.server.address) as sock:
                size = len(call(sock, frames[0]))
                pour(sock, Load([b"".join(frames[1:])], len(frames) - 1), size)
        self._size, self._share = self._closed_bytes()
        if not self._size:
            raise RuntimeError(f"{name} has no closed segment")

    def _folder(self, topic: str) -> Path:
        return self._server.data / f"{topic}-0"

    def _closed_bytes(self) -> tuple[int, float]:
        closed = total = 0
        for topic in self._topics:
            sizes = [path.stat().st_size for path in sorted(self._folder(topic).glob("*.log"))]
            closed += sum(sizes[:-1])
            total += sum(sizes)
        return closed, closed / total

    @property
    def is_clean(self) -> bool:
        """Tell whether the cleaner has been up to the active segment of each."""
        path = self._server.data / _CHECKPOINT
        lines = path.read_text().splitlines() if path.exists() else []
        known = {tuple(line.split()[:2]): line.split()[2] for line in lines[2:]}
        return all(
            int(known.get((topic, "0"), "-1"))
            == max(int(path.stem) for path in self._folder(topic).glob("*.log"))
            for topic in self._topics
        )

    def clean(self, beside: Callable[[], object] = lambda: None) -> Sample:
        """Let them be cleaned, and do something beside it; requests are records."""

        def work() -> None:
            self._allow()
            beside()
            self._wait()

        records = int(self._records_of_mb * self._share * len(self._topics))
        return self._server.measure(self._size, records, work)

    def _allow(self) -> None:
        config = AlterableConfig(name=_RATIO, config_operation=_SET, value=_ALWAYS)
        resources = tuple(
            AlterConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=(config,)
            )
            for topic in self._topics
        )
        with connect(self._server.address) as sock:
            request = IncrementalAlterConfigsRequest(resources=resources)
            answer = call(sock, frame(request, _ALTER_VERSION))
        response = answer_of(IncrementalAlterConfigsResponse, _ALTER_VERSION, answer)
        expect("IncrementalAlterConfigs", (one.error_code for one in response.responses))

    def _wait(self) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.is_clean:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._server.name} does not clean {self._topics[0]}")
            time.sleep(_POLL_S)

    def delete(self) -> None:
        """Delete the topics."""
        delete_topics(self._server.address, *self._topics)


@cache
def _batches(case: _Case, megabytes: int) -> tuple[list[bytes], int]:
    """Build the batches of a log, and tell how many records they have."""
    rng = random.Random(7)
    now_ms = int(time.time() * 1000)
    text = b"abcdefgh" * 1_000
    sizes = _sizes(case, megabytes * 1_000_000, rng)
    keys = len(sizes) // 2
    found, builder, filled = [], BatchBuilder(codec=case.codec), 0
    for size in sizes:
        # Half of it is text that compresses.
        value = rng.randbytes(size - size // 2) + text[: size // 2]
        builder.append(now_ms, b"%016d" % rng.randrange(keys), value)
        filled += size
        if filled >= _BATCH_BYTES:
            found.append(bytes(builder.build()))
            builder, filled = BatchBuilder(codec=case.codec), 0
    return found, len(sizes)


def _sizes(case: _Case, total: int, rng: random.Random) -> list[int]:
    if case.size is not None:
        return [case.size] * (total // case.size)
    found = []
    while total > 0:
        # As many between 10 and 100 as between 1,000 and 10,000.
        found.append(int(10 ** rng.uniform(1, 4)))
        total -= found[-1]
    return found
