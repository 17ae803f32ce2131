"""The same seed gives the same run, whatever the process it runs in.

The digest covers every byte that was sent and written, with its time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


def digests(first: int, count: int, hash_seed: str) -> list[str]:
    """Run seeds in a process of their own."""
    command = [sys.executable, "-m", "dohle.testing.simulation"]
    process = subprocess.run(
        [*command, "--seed", str(first), "--seeds", str(count), "--seconds", "3"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"digest (\w+)", process.stdout)
    assert len(found) == count, process.stdout + process.stderr
    return found


@pytest.mark.parametrize("first", [1, 11])
def test_a_seed_gives_the_same_bytes_under_any_hash_seed(first: int) -> None:
    once = digests(first, 10, "1")
    assert digests(first, 10, "2") == once
    assert len(set(once)) == 10
