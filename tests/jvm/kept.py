"""What these tests fetch and build from elsewhere, in folders that are made once and kept.

A folder's name follows from what it is made of, so a change makes a new one; one that could not be
finished is not there at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


class Unavailable(Exception):
    """What the tests need cannot be had here: a tool is missing, or it failed."""


def made(cache: Path, kind: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    """Return the folder that follows from the sources, making it first if it is not there."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = cache / f"{kind}-{digest}"
    if not folder.exists():
        cache.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as unfinished:
            unfinished_folder = Path(unfinished) / kind
            unfinished_folder.mkdir()
            make(unfinished_folder)
            unfinished_folder.rename(folder)
    return folder


def need(*tools: str) -> None:
    """See that these tools are there."""
    for tool in tools:
        if shutil.which(tool) is None:
            raise Unavailable(f"these tests need {tool}, and it is not on this machine")


def run(
    *command: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Run a tool that makes something, to its end."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
