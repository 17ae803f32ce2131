"""The partition folders of a log directory; ``partition_dirs`` explains their names."""

from __future__ import annotations

from dohle.core.ids import TopicPartition, Uuid
from dohle.core.seams import Rng
from dohle.core.uuid import random_uuid
from dohle.storage.directory.disk_status import DiskStatus
from dohle.storage.directory.partition_dirs import (
    delete_dir_name,
    future_dir_name,
    partition_dir_name,
    read_partition_metadata,
    stray_dir_name,
)
from dohle.storage.files import FileSystem, join


class PartitionFolders:
    """Which folders exist, and the names for new ones."""

    def __init__(self, fs: FileSystem, directory: str, disk: DiskStatus, rng: Rng) -> None:
        self._fs = fs
        self._directory = directory
        self._disk = disk
        self._rng = rng

    def names(self) -> list[str]:
        """Return the names of all folders, sorted."""
        with self._disk.guarding("listing its folders"):
            return sorted(
                entry.name for entry in self._fs.list_dir(self._directory) if entry.is_dir
            )

    def topic_id_of(self, name: str) -> Uuid | None:
        """Return the topic id in a folder's ``partition.metadata``, if there is one."""
        with self._disk.guarding(f"reading {name}"):
            return read_partition_metadata(self._fs, self.path(name))

    def path(self, name: str) -> str:
        """Return where a folder of this name is."""
        return join(self._directory, name)

    def live_path(self, partition: TopicPartition) -> str:
        """Return the folder of a partition's log."""
        return self.path(partition_dir_name(partition))

    def new_delete_path(self, partition: TopicPartition) -> str:
        """Return the new path for a folder that is to be deleted."""
        return self.path(delete_dir_name(partition, random_uuid(self._rng)))

    def new_stray_path(self, partition: TopicPartition) -> str:
        """Return the new path for a folder that is kept, but not used."""
        return self.path(stray_dir_name(partition, random_uuid(self._rng)))

    def new_future_path(self, partition: TopicPartition) -> str:
        """Return the folder for a future replica."""
        return self.path(future_dir_name(partition, random_uuid(self._rng)))

    def rename(self, name: str, target: str) -> None:
        """Rename a folder, durably."""
        with self._disk.guarding(f"renaming {name}"):
            self._fs.rename(self.path(name), target)
            self._fs.sync_dir(self._directory)

    def mark_stray(self, partition: TopicPartition, name: str) -> None:
        """Rename a folder that is not used, but may be needed, to ``-stray``."""
        self.rename(name, self.new_stray_path(partition))
