"""Stray folders: logs that a start has set aside because the metadata did not know them.

They are kept until somebody decides. A restored one gets its name back; whether it is served then
is for the metadata log to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dohle.core.ids import TopicPartition, Uuid
from dohle.storage.directory.clean_shutdown import remove_clean_shutdown
from dohle.storage.directory.data_folders import log_bytes
from dohle.storage.directory.partition_dirs import (
    NAME_LENGTH_MAX,
    CorruptPartitionMetadata,
    NotAPartitionDir,
    PartitionDirKind,
    parse_partition_dir,
    partition_dir_name,
    read_partition_metadata,
    write_partition_metadata,
)
from dohle.storage.files import FileSystem, join


class NotRestorable(Exception):
    """A stray folder that cannot get its name back; the text says why."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A folder that was set aside."""

    directory: str
    name: str
    partition: TopicPartition
    #: None if it has none that can be read.
    topic_id: Uuid | None
    size: int

    @property
    def path(self) -> str:
        """Where it is."""
        return join(self.directory, self.name)


def list_strays(fs: FileSystem, directories: Iterable[str]) -> list[Stray]:
    """Return the stray folders, sorted by directory and name."""
    found = []
    for directory in directories:
        for name in sorted(entry.name for entry in fs.list_dir(directory) if entry.is_dir):
            try:
                partition, kind = parse_partition_dir(name)
            except NotAPartitionDir:
                continue
            if kind is PartitionDirKind.STRAY:
                path = join(directory, name)
                try:
                    topic_id = read_partition_metadata(fs, path)
                except CorruptPartitionMetadata:
                    topic_id = None
                found.append(Stray(directory, name, partition, topic_id, log_bytes(fs, path)))
    return found


def ensure_restorable(fs: FileSystem, strays: Iterable[Stray], directories: Iterable[str]) -> None:
    """Raise NotRestorable unless each of them can have its name back."""
    directories = list(directories)
    wanted: dict[TopicPartition, Stray] = {}
    for stray in strays:
        live = partition_dir_name(stray.partition)
        if len(stray.name) >= NAME_LENGTH_MAX:
            raise NotRestorable(
                f"{stray.path}: the topic's name was too long for a stray folder and was cut. "
                "Rename the folder to <topic>-<partition> by hand"
            )
        for directory in directories:
            if fs.exists(join(directory, live)):
                raise NotRestorable(
                    f"{stray.path}: {join(directory, live)} is in use. Delete that topic first, if "
                    "its records are not needed"
                )
        other = wanted.setdefault(stray.partition, stray)
        if other is not stray:
            raise NotRestorable(f"{stray.path} and {other.path} are both {live}: choose one")


def restore(fs: FileSystem, stray: Stray, topic_id: Uuid | None = None) -> str:
    """Give a folder its name back, durably, and a new topic id if one is given.

    Its log is checked at the next start, because nobody knows how it was left. The caller has
    locked the directory.
    """
    remove_clean_shutdown(fs, stray.directory)
    if topic_id is not None:
        write_partition_metadata(fs, stray.path, topic_id)
    path = join(stray.directory, partition_dir_name(stray.partition))
    fs.rename(stray.path, path)
    fs.sync_dir(stray.directory)
    return path
