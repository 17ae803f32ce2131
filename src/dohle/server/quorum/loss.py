"""Whether a node may start with the metadata log that it finds: it never begins anew by mistake.

A node whose metadata log knows nothing of the partitions on its disks would set them all aside and
serve none. That is refused, before anything is changed, where

- the metadata log is missing, ends before its own snapshot, or is damaged with good batches behind
  the damage;
- it ends before the registration that the last clean stop has noted;
- folders hold records of partitions that it does not know, and it does not say that their topics
  were deleted either: then its end was cut off;
- it knows this node's partitions only as those of other nodes.

With ``--accept-metadata-loss`` all of this is only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from dohle.core.ids import BrokerId, TopicPartition, Uuid
from dohle.metadata.image import ClusterImage
from dohle.server.quorum.survey import (
    LogState,
    RemovedTopics,
    read_pieces,
    read_surviving,
    survey,
)
from dohle.storage.directory.clean_shutdown import read_broker_epoch
from dohle.storage.directory.data_folders import LiveFolder, data_folders, describe
from dohle.storage.files import FileSystem

logger = logging.getLogger("dohle.server")

_WHAT_TO_DO = (
    "Nothing was changed. Restore the metadata log from a backup; or let `dohle storage "
    "recover-metadata` show what it can rebuild from the folders, and write it with --apply; or "
    "start with --accept-metadata-loss: what the metadata log does not know is set aside then, in "
    "folders that `dohle storage strays` lists and restores."
)


class MetadataLost(Exception):
    """The metadata log lacks what it once had; the text says what, and what can be done."""

    def __init__(self, problem: str, data: str) -> None:
        super().__init__(f"{problem}{data}. {_WHAT_TO_DO}")
        self.problem = problem


class LossCheck:
    """The checks of one start, in the order of their use."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        log_dirs: Sequence[str],
        node_id: BrokerId,
        *,
        accept: bool,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._log_dirs = log_dirs
        self._node_id = node_id
        self._accept = accept
        # The start takes the mark of a clean stop away, so it is read now.
        epochs = (read_broker_epoch(fs, path) for path in log_dirs)
        self._broker_epoch = max((epoch for epoch in epochs if epoch is not None), default=-1)

    def before_opening(self) -> None:
        """Look at the files before they are opened, which cuts off what seems to be torn."""
        found = survey(self._fs, self._folder)
        match found.state:
            case LogState.MISSING:
                self._refuse_beside_data(f"the metadata log {self._folder} is missing")
            case LogState.DAMAGED:
                self._refuse(f"the metadata log is damaged: {found.problem}", self._data())
            case LogState.TORN:
                surviving = read_surviving(self._fs, found)
                self._refuse_unknown(surviving.image, lambda: surviving.removed, found.problem)
            case LogState.WHOLE if found.end_offset < found.snapshot_end:
                self._refuse_beside_data(
                    f"the metadata log {self._folder} ends at offset {found.end_offset}, but has a "
                    f"snapshot up to {found.snapshot_end}: batches are missing"
                )

    def after_loading(self, image: ClusterImage) -> None:
        """Look whether what was read is all that there was."""
        if image.offset < self._broker_epoch:
            self._refuse_beside_data(
                f"the metadata log {self._folder} ends at offset {image.offset + 1}, but this node "
                f"was registered at offset {self._broker_epoch}: its end is missing"
            )
        self._refuse_unknown(image, self._removed, None)
        if image.brokers and image.broker(self._node_id) is None:
            owners = ", ".join(map(str, sorted(image.brokers)))
            self._refuse_beside_data(
                f"the metadata log {self._folder} knows of node {owners}, but not of this node, "
                f"{self._node_id}: is that the right node.id?"
            )

    def stray_logs(self, strays: Iterable[tuple[TopicPartition, Uuid | None]]) -> None:
        """Look whether logs are about to be set aside that nobody has decided to delete.

        These are logs whose topic's name is known, but with another id.
        """
        found = dict(strays)
        if not found:
            return
        removed = self._removed()
        lost = {key for key, topic_id in found.items() if not removed.has(topic_id, key.topic)}
        if lost:
            folders = data_folders(self._fs, self._log_dirs, lost.__contains__)
            if folders:
                self._refuse(f"the metadata log {self._folder} knows other topics instead", folders)

    def _refuse_unknown(
        self, image: ClusterImage, removed: Callable[[], RemovedTopics], problem: str | None
    ) -> None:
        def is_unknown(key: TopicPartition) -> bool:
            return image.partition(*key) is None

        folders = data_folders(self._fs, self._log_dirs, is_unknown)
        if folders:
            gone = removed()
            folders = [
                folder
                for folder in folders
                if not gone.has(folder.topic_id(self._fs), folder.partition.topic)
            ]
        if folders:
            why = (
                "its end is missing, or their topics were deleted while their disk was offline"
                if problem is None
                else problem
            )
            self._refuse(
                f"the metadata log {self._folder} does not know of all partitions: {why}", folders
            )

    def _removed(self) -> RemovedTopics:
        """Return what the log says of deleted topics, also from before its newest snapshot."""
        removed = RemovedTopics()
        for batch in read_pieces(self._fs, survey(self._fs, self._folder)):
            removed.note(iter(batch.records))
        return removed

    def _data(self) -> list[LiveFolder]:
        return data_folders(self._fs, self._log_dirs)

    def _refuse_beside_data(self, problem: str) -> None:
        """Refuse unless there is nothing to lose."""
        data = self._data()
        if data:
            self._refuse(problem, data)

    def _refuse(self, problem: str, data: Sequence[LiveFolder]) -> None:
        there = f", while there are {describe(data)}" if data else ""
        if not self._accept:
            raise MetadataLost(problem, there)
        logger.warning("%s%s. Going on, as --accept-metadata-loss says.", problem, there)
