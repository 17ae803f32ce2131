"""Attacks a broker and tells what that did to another client: see README.md."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire

#: The promise, on a machine that does nothing else: the longest wait.
WAIT_S_MAX = int(os.environ.get("DOHLE_WAIT_MS_MAX", "50")) / 1000
#: The most processor time that the broker may use while a request waits, on any machine.
CPU_S_MAX = 0.050
#: Memory may grow by so many times what was sent, and so much more.
MEMORY_FACTOR = 2
MEMORY_BYTES_MORE = 64 * 1024 * 1024
STOP_S_MAX = 5.0
TRIES = 3
VICTIM_TOPIC = "victims-own"

#: Of each test, what its attacks did.
SUFFERED: list[tuple[str, list[Harm]]] = []

#: Gets the broker's address, and returns how many bytes it has sent.
Attack = Callable[[str], int]
#: Makes the broker ready for the attack, before anything is measured.
Prepare = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Harm:
    """What an attack did."""

    sent_bytes: int
    #: The victim's longest wait, by request, and the most processor time of the broker meanwhile.
    wait_s: Mapping[str, float]
    cpu_s: Mapping[str, float]
    #: For how much of the longest wait either of them was ready to run, and had no processor.
    delayed_s: Mapping[str, float]
    #: How many of each request the victim sent meanwhile.
    requests: int
    #: The errors that the victim got.
    refused: tuple[str, ...]
    grown_bytes: int
    #: What is still held when the attacker has gone.
    left_bytes: int
    stop_s: float

    @property
    def complaints(self) -> list[str]:
        """What of it was not promised."""
        allowed = MEMORY_FACTOR * self.sent_bytes + MEMORY_BYTES_MORE
        found = [
            f"{request} waited {wait_s * 1000:.0f} ms, {self.delayed_s[request] * 1000:.0f} of"
            f" them for a processor; {WAIT_S_MAX * 1000:.0f} are allowed"
            for request, wait_s in self.wait_s.items()
            if wait_s > WAIT_S_MAX
        ]
        found += [
            f"{request} waited for {cpu_s * 1000:.0f} ms of the broker's processor time;"
            f" {CPU_S_MAX * 1000:.0f} are allowed"
            for request, cpu_s in self.cpu_s.items()
            if cpu_s > CPU_S_MAX
        ]
        found += [f"the victim was refused: {error}" for error in self.refused[:3]]
        if self.grown_bytes > allowed:
            found.append(f"memory grew by {_mb(self.grown_bytes)}; {_mb(allowed)} are allowed")
        if self.left_bytes > MEMORY_BYTES_MORE:
            found.append(f"{_mb(self.left_bytes)} were left in memory")
        if self.stop_s > STOP_S_MAX:
            found.append(f"to stop took {self.stop_s:.1f} s")
        return found


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


def assert_harmless(
    attack: Attack,
    *,
    prepare: Prepare | None = None,
    config: Mapping[str, str] | None = None,
) -> Harm:
    """Attack brokers until one attack does no harm, and fail if each does.

    The worst of all tries is kept in ``SUFFERED``.
    """
    tries: list[Harm] = []
    SUFFERED.append((os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0], tries))
    while len(tries) < TRIES:
        harm = harm_of(attack, prepare=prepare, config=config)
        tries.append(harm)
        if not harm.complaints:
            return harm
    told = [harm.complaints for harm in tries]
    raise AssertionError(f"harm was done {TRIES} times out of {TRIES}: {told}")


def table() -> list[str]:
    """Return what was suffered, a line each: the worst of all tries, those that failed too."""
    columns = (f"{name:>8}" for name in ("wait", "delayed", "cpu", "memory", "left", "stop"))
    lines = [f"tries {' '.join(columns)}  attack"]
    for name, tries in SUFFERED:
        if tries:
            waits = [
                (wait_s, harm.delayed_s[of]) for harm in tries for of, wait_s in harm.wait_s.items()
            ]
            wait_s, delayed_s = max(waits)
            cpu_s = max(max(harm.cpu_s.values()) for harm in tries)
            lines.append(
                f"{len(tries):5} {wait_s * 1000:5.0f} ms {delayed_s * 1000:5.0f} ms"
                f" {cpu_s * 1000:5.0f} ms {_mb(max(harm.grown_bytes for harm in tries)):>8}"
                f" {_mb(max(harm.left_bytes for harm in tries)):>8}"
                f" {max(harm.stop_s for harm in tries):6.1f} s  {name}"
            )
    return lines


def harm_of(
    attack: Attack,
    *,
    prepare: Prepare | None = None,
    config: Mapping[str, str] | None = None,
) -> Harm:
    """Attack a new broker once, while a victim measures."""
    with TemporaryDirectory() as folder, BrokerProcess(Path(folder), config) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(VICTIM_TOPIC)
        if prepare is not None:
            prepare(broker.bootstrap)
        # Garbage of the preparation is not to stop the attacker in the middle.
        gc.collect()
        with _victim(broker) as seen:
            before = broker.memory_bytes
            broker.forget_memory_bytes_max()
            sent = attack(broker.bootstrap)
            grown = broker.memory_bytes_max - before
        left = _left(broker, before)
        began = monotonic()
        broker.stop()
        stop_s = monotonic() - began
        return Harm(
            sent_bytes=sent,
            wait_s=seen["wait_s"],
            cpu_s=seen["cpu_s"],
            delayed_s=seen["delayed_s"],
            requests=seen["count"],
            refused=tuple(seen["refused"]),
            grown_bytes=grown,
            left_bytes=left,
            stop_s=stop_s,
        )


def _left(broker: BrokerProcess, before: int) -> int:
    """Return how much memory is held though the attacker has gone, when the broker has noticed."""
    with suppress(AssertionError):
        wait_until(lambda: broker.memory_bytes - before <= MEMORY_BYTES_MORE, 5.0)
    return max(0, broker.memory_bytes - before)


@contextmanager
def _victim(broker: BrokerProcess) -> Iterator[dict[str, Any]]:
    """Run a victim meanwhile; what it has seen is there afterwards."""
    seen: dict[str, Any] = {}
    arguments = [broker.bootstrap, VICTIM_TOPIC, str(broker.pid)]
    command = [sys.executable, "-m", "tests.isolation.victim", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n", "the victim could not begin"
            yield seen
            said, _ = process.communicate(timeout=120)
            seen.update(json.loads(said))
        finally:
            process.kill()
