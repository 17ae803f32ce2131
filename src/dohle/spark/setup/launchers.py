"""Small wrapper scripts: written once, kept, and run in place of other programs.

A launcher's folder is named after its contents, so that a newer one never meets an older one. It is
executed, so one that another user could have written is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class LauncherUnavailable(RuntimeError):
    """There is no folder to keep a launcher in."""


def cache_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders for launchers; the last is for users without a home."""
    caches = environment.get("XDG_CACHE_HOME")
    kept = Path(caches) if caches else Path.home() / ".cache"
    return [kept / "dohle", Path(tempfile.gettempdir()) / f"dohle-{os.getuid()}"]


def make(
    kind: str, program: str, script: str, caches: Sequence[Path], fill: Callable[[Path], None]
) -> Path:
    """Return the folder with ``script`` as its ``program``, in the first usable cache.

    ``fill`` adds the rest to a new folder. If two processes create it at the same time, both create
    it completely, and one of them wins.
    """
    name = f"{kind}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    last: OSError | None = None
    for cache in caches:
        folder = cache / name
        if _is_ours(folder / program, script):
            return folder
        try:
            _build(folder, program, script, fill)
        except OSError as error:
            last = error
        else:
            return folder
    raise LauncherUnavailable(f"no launcher could be written: {last}")


def _is_ours(program: Path, script: str) -> bool:
    try:
        return program.read_text() == script and program.stat().st_uid == os.getuid()
    except OSError:
        return False


def _build(folder: Path, program: str, script: str, fill: Callable[[Path], None]) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder.parent} belongs to another user")
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        fill(made)
        (made / program).write_text(script)
        (made / program).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not _is_ours(folder / program, script):
            raise
