"""What a run was measured on, without names: cores, memory, Python, Java."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path


def memory_gb() -> int:
    """Return how much memory the machine has."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)


def describe() -> str:
    """Describe the machine in one line."""
    return (
        f"{os.cpu_count()} cores, {memory_gb()} GB, {platform.system()},"
        f" Python {platform.python_version()}, {_java()}"
    )


def _java() -> str:
    command = shutil.which("java")
    if command is None:
        return "no Java"
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition("\n")[0]


def find_commit(tree: Path) -> tuple[str | None, bool]:
    """Return the commit of a work tree, and whether the tree differs from it.

    Results do not count as a difference: a run writes them.
    """
    commit = _git(tree, "rev-parse", "--short", "HEAD")
    if commit is None:
        return None, False
    return commit, bool(_git(tree, "status", "--porcelain", "--", ".", ":!bench/results"))


def _git(tree: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.strip()
