"""Where the files of a batch are, in tables that list their files: one folder for each attempt.

    <table>/dohle/<query>/<number>/<attempt>/part-…

When a batch is in the table, everything else in its folder is left over from other attempts, which
can no longer be added, since the batch is recorded. Before that nothing is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from uuid import uuid4

from pyarrow import fs

from dohle.spark.tables.batches import BatchId
from dohle.spark.tables.folders import local_path, open_folder, sync

_log = logging.getLogger("dohle.spark.tables")

FOLDER = "dohle"


def attempt_name(batch: BatchId) -> str:
    """Return the folder of a new attempt, relative to the table."""
    return f"{FOLDER}/{batch.query_id}/{batch.number}/{uuid4().hex}"


def sync_attempt(folder: str) -> None:
    """Sync the names of an attempt's files to the disk, if it is on one."""
    path = local_path(folder)
    if path is not None:
        for parent in (path, *list(path.parents)[:4]):
            sync(parent)


def sweep(attempt_folder: str, kept: Collection[str]) -> None:
    """Delete what other attempts at the same batch have left, except the kept files."""
    file_system, folder = open_folder(attempt_folder)
    batch_folder, _, attempt = folder.rpartition("/")
    kept_paths = {f"{folder}/{name}" for name in kept}
    try:
        for found in file_system.get_file_info(fs.FileSelector(batch_folder, recursive=True)):
            if found.type is fs.FileType.File and found.path not in kept_paths:
                file_system.delete_file(found.path)
        for found in file_system.get_file_info(fs.FileSelector(batch_folder)):
            if found.type is fs.FileType.Directory and found.base_name != attempt:
                file_system.delete_dir(found.path)
    except OSError as error:
        _log.warning(
            "could not delete files of failed attempts in %s; delete them by hand: %s",
            batch_folder,
            error,
        )
