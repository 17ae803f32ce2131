"""The replicas that are moving into a log directory, and those that have moved out of it.

A future replica grows in a ``-future`` folder until it gets the partition's name: see
``moves.move`` for the order of the steps, and ``moves.places`` for how a start handles an
interrupted move.
"""

from __future__ import annotations

import logging

from dohle.core.ids import TopicPartition, Uuid
from dohle.storage.directory.delayed_deletions import DelayedDeletions
from dohle.storage.directory.directory_checkpoints import DirectoryCheckpoints
from dohle.storage.directory.disk_status import DiskStatus
from dohle.storage.directory.folders import PartitionFolders
from dohle.storage.directory.partition_dirs import write_partition_metadata
from dohle.storage.files import FileSystem
from dohle.storage.log import Log

logger = logging.getLogger("dohle.storage")


class FutureReplicas:
    """The future replicas of one directory."""

    def __init__(
        self,
        fs: FileSystem,
        disk: DiskStatus,
        folders: PartitionFolders,
        checkpoints: DirectoryCheckpoints,
        deletions: DelayedDeletions,
    ) -> None:
        self._fs = fs
        self._disk = disk
        self._folders = folders
        self._checkpoints = checkpoints
        self._deletions = deletions
        #: Their folders, including those that an interrupted move has left.
        self.paths: dict[TopicPartition, str] = {}
        #: Those to which this start has given the partition's name.
        self.promoted: set[TopicPartition] = set()
        # Moved to another directory; the checkpoints may still have their offsets.
        self._departed: set[TopicPartition] = set()

    def begin(self, partition: TopicPartition, topic_id: Uuid) -> str:
        """Create the folder for a replica that moves in; one of an earlier attempt is deleted."""
        self.drop(partition)
        with self._disk.guarding(f"preparing for {partition}"):
            self.forget_departed(partition)
            folder = self._folders.new_future_path(partition)
            self._fs.make_dirs(folder)
            self.paths[partition] = folder
            write_partition_metadata(self._fs, folder, topic_id, sync=False)
            return folder

    def drop(self, partition: TopicPartition) -> None:
        """Delete a future replica whose move is cancelled."""
        folder = self.paths.pop(partition, None)
        if folder is not None:
            self._delete(partition, folder, 0)

    def take_over(self, log: Log, synced_up_to: int) -> str:
        """Give a future replica the partition's name, and return its folder.

        The checkpoints are written first: a start that finds the log here finds its offsets too.
        """
        partition = log.partition
        if (
            log.log_start_offset > log.segments.first.base_offset
            or log.config.remote_storage_enable
        ):
            self._checkpoints.write_log_start_offsets(log)
        # Gaps in its closed segments are intended.
        self._checkpoints.write_recovery_points({partition: synced_up_to})
        if log.cleaner_offset is not None:
            self._checkpoints.write_cleaner_offsets(log)
        folder = self._folders.live_path(partition)
        self._fs.rename(self.paths[partition], folder)
        del self.paths[partition]
        return folder

    def promote(self, partition: TopicPartition, name: str) -> None:
        """At start, make a future replica the log, because there is no other."""
        self._folders.rename(name, self._folders.live_path(partition))
        self.promoted.add(partition)

    def delete_departed(self, log: Log, folder: str) -> None:
        """Delete the folder of a log that has moved to another directory."""
        self._departed.add(log.partition)
        self._delete(log.partition, folder, log.config.file_delete_delay_ms)

    def _delete(self, partition: TopicPartition, folder: str, delay_ms: int) -> None:
        if self._disk.failure is not None:
            return
        target = self._folders.new_delete_path(partition)
        try:
            self._fs.rename(folder, target)
        except FileNotFoundError:
            logger.info("%s was gone already", folder)
        except OSError as error:
            self._disk.failed(f"deleting {folder}", error)
        else:
            self._deletions.add([target], delay_ms)

    def forget_departed(self, partition: TopicPartition) -> None:
        """Remove the offsets of a log that moved out from the checkpoints, before one moves in."""
        if partition in self._departed:
            self._checkpoints.write_all()
            self._departed.clear()
