"""The folders of tables: paths, URIs, and how they are synced to the disk.

A path without a scheme is on this machine (or on a file system mounted on all machines). Locations
with other schemes are opened by pyarrow, on driver and executors alike.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow import fs


def as_uri(place: str | os.PathLike[str]) -> str:
    """Return the location as a URI; a relative path starts at the current folder."""
    text = os.fspath(place)
    return text if "://" in text else Path(text).absolute().as_uri()


def local_path(uri: str) -> Path | None:
    """Return the path of a location on this machine's file systems, or None."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def open_folder(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location, and the path in it."""
    path = local_path(uri)
    if path is not None:
        return fs.LocalFileSystem(), str(path)
    file_system, name = fs.FileSystem.from_uri(uri)
    return file_system, name


def sync(path: Path) -> None:
    """Sync a file's bytes, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
