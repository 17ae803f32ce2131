"""The partition folders of log directories, found by looking at names and sizes.

Nothing is opened for writing or changed: this is how a start, or a command, finds out what there is
to lose before anything is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dohle.core.ids import TopicPartition, Uuid
from dohle.storage.directory.partition_dirs import (
    CLUSTER_METADATA_TOPIC,
    CorruptPartitionMetadata,
    NotAPartitionDir,
    PartitionDirKind,
    parse_partition_dir,
    read_partition_metadata,
)
from dohle.storage.files import FileSystem, join
from dohle.storage.segment.file_names import LOG_SUFFIX

_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class LiveFolder:
    """A folder in use."""

    directory: str
    name: str
    partition: TopicPartition
    #: The size of its log files; 0 if it holds no records.
    size: int

    @property
    def path(self) -> str:
        """Where it is."""
        return join(self.directory, self.name)

    def topic_id(self, fs: FileSystem) -> Uuid | None:
        """Return the topic id in it; None if it has none that can be read."""
        try:
            return read_partition_metadata(fs, self.path)
        except (CorruptPartitionMetadata, OSError):
            return None


def _any(partition: TopicPartition) -> bool:
    return True


def data_folders(
    fs: FileSystem,
    directories: Iterable[str],
    wanted: Callable[[TopicPartition], bool] = _any,
) -> list[LiveFolder]:
    """Return the folders that hold records of partitions that are wanted, sorted by name."""
    return [folder for folder in live_folders(fs, directories, wanted) if folder.size]


def live_folders(
    fs: FileSystem,
    directories: Iterable[str],
    wanted: Callable[[TopicPartition], bool] = _any,
) -> Iterator[LiveFolder]:
    """Yield the folders of the partitions that are wanted, sorted by name.

    The metadata log is none of them. A directory that cannot be read is passed over: whoever opens
    it finds that out.
    """
    for directory in directories:
        try:
            names = sorted(entry.name for entry in fs.list_dir(directory) if entry.is_dir)
        except OSError:
            continue
        for name in names:
            partition = _live_partition(name)
            if partition is not None and wanted(partition):
                size = log_bytes(fs, join(directory, name))
                yield LiveFolder(directory, name, partition, size)


def _live_partition(name: str) -> TopicPartition | None:
    """Return whose folder in use this is; None for any other folder, and the metadata log's."""
    try:
        found = parse_partition_dir(name)
    except NotAPartitionDir:
        return None
    is_metadata = found.topic_partition.topic == CLUSTER_METADATA_TOPIC
    is_live = found.kind is PartitionDirKind.LIVE and not is_metadata
    return found.topic_partition if is_live else None


def log_bytes(fs: FileSystem, folder: str) -> int:
    """Return the size of a folder's log files; 0 if it cannot be read."""
    try:
        names = [entry.name for entry in fs.list_dir(folder)]
        return sum(fs.stat(join(folder, name)).size for name in names if name.endswith(LOG_SUFFIX))
    except OSError:
        return 0


def describe(found: Sequence[LiveFolder]) -> str:
    """Say how many there are, how large, and where, in half a sentence."""
    names = ", ".join(folder.path for folder in found[:_NAMED_MAX])
    more = ", ..." if len(found) > _NAMED_MAX else ""
    count = "1 partition" if len(found) == 1 else f"{len(found)} partitions"
    size = sum(folder.size for folder in found)
    return f"{count} with {size:,} bytes of records ({names}{more})"
