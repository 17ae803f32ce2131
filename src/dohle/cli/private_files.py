"""Files with secrets: whoever else is on the machine cannot read them, not even for a moment."""

from __future__ import annotations

import os
from pathlib import Path

_OWNERS = 0o600


def write_private(path: Path, text: str) -> None:
    """Write a file that is its owner's alone; what was there before is replaced in one step."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNERS)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    beside.rename(path)
