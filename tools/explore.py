"""Look for failures that no run before has looked for: new examples, new seeds, for a given time.

    python tools/explore.py [--seconds 180] [--seed N]

Half of the time goes to property tests with new examples (``DOHLE_EXPLORE=1``), some files at a
time in random order; the other half to the simulator with new seeds. A failure ends with what to
paste to see it again, and with exit code 1. Tests that time cuts off have not failed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]
SECONDS = 180.0
SIMULATOR = "dohle.testing.simulation"
#: Rooms whose tests need Spark, other clients or Java, and spend their time on those.
_ELSEWHERE = ("interop", "jvm", "node", "oracle", "spark")
_FILES_AT_ONCE = 6
_SEEDS_AT_ONCE = 10
_SEED_MAX = 1 << 31
_NO_TESTS = 5
_STOP_GRACE_S = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a program: its exit code, or None if its time was up."""

    code: int | None
    output: str


Runner = Callable[[Sequence[str], Mapping[str, str], float], Outcome]


def property_tests(tests: Path) -> list[Path]:
    """Return the test files that have properties."""
    return [
        path
        for path in sorted(tests.rglob("test_*.py"))
        if path.relative_to(tests).parts[0] not in _ELSEWHERE
        and re.search(r"^from hypothesis\b", path.read_text(), re.MULTILINE)
    ]


def explore_properties(
    files: Sequence[str], rng: random.Random, left_s: Callable[[], float], run: Runner
) -> Iterator[str]:
    """Run files with new examples while there is time; yield what repeats a failure."""
    order: list[str] = []
    while left_s() > 0 and files:
        if not order:
            order = rng.sample(list(files), len(files))
        chosen, order = order[:_FILES_AT_ONCE], order[_FILES_AT_ONCE:]
        seed = rng.randrange(_SEED_MAX)
        command = [sys.executable, "-m", "pytest", f"--hypothesis-seed={seed}"]
        outcome = run([*command, "-q", "-n", "2", *chosen], {"DOHLE_EXPLORE": "1"}, left_s())
        if outcome.code not in (None, 0, _NO_TESTS):
            print(outcome.output)
            failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", outcome.output, re.M)
            yield f"DOHLE_EXPLORE=1 {shlex.join([*command, *(failed or chosen)])}"


def explore_seeds(rng: random.Random, left_s: Callable[[], float], run: Runner) -> Iterator[str]:
    """Run the simulator on new seeds while there is time; yield what repeats a failure."""
    while left_s() > 0:
        first = rng.randrange(_SEED_MAX)
        command = [sys.executable, "-m", SIMULATOR]
        seeds = ["--seed", str(first), "--seeds", str(_SEEDS_AT_ONCE)]
        outcome = run([*command, *seeds], {}, left_s())
        if outcome.code not in (None, 0):
            print(outcome.output)
            # The simulator itself says which of the seeds it was.
            said = re.findall(r"to repeat: (.+)", outcome.output)
            yield from said or [shlex.join([*command, *seeds])]


def run_for(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Outcome:
    """Run a program for at most so long, and with it whatever it has started."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return Outcome(process.returncode, output)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=_STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return Outcome(None, output)


def has_simulator() -> bool:
    """Tell whether there is a simulator to give seeds to."""
    return find_spec(f"{SIMULATOR}.__main__") is not None


def main(argv: Sequence[str] | None = None) -> int:
    """Explore, and print what repeats each failure."""
    parser = argparse.ArgumentParser(description="Look for failures with new examples and seeds.")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, help="of everything; a fresh one unless given")
    args = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(_SEED_MAX) if args.seed is None else args.seed
    print(f"exploring for {args.seconds:g} s with seed {seed}", flush=True)
    rng = random.Random(seed)
    properties_s = args.seconds / 2 if has_simulator() else args.seconds
    files = [str(path.relative_to(ROOT)) for path in property_tests(ROOT / "tests")]
    runs: list[Outcome] = []

    def run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Outcome:
        runs.append(run_for(command, environment, seconds))
        return runs[-1]

    failures = list(explore_properties(files, rng, _timer(properties_s), run))
    if has_simulator():
        failures += explore_seeds(rng, _timer(args.seconds - properties_s), run)
    cut_off = sum(outcome.code is None for outcome in runs)
    each = f"{_FILES_AT_ONCE} files or {_SEEDS_AT_ONCE} seeds"
    print(f"{len(runs) - cut_off} runs of {each} came to their end")
    for command in failures:
        print(f"failed; to repeat:\n    {command}")
    print("nothing found" if not failures else f"{len(failures)} failures found")
    return 1 if failures else 0


def _timer(seconds: float) -> Callable[[], float]:
    end = monotonic() + seconds
    return lambda: end - monotonic()


if __name__ == "__main__":
    sys.exit(main())
