"""Finding each partition's log at start: interrupted moves may leave several folders for it.

The metadata log says in which directory a replica is, and each folder has its partition's name or
that of a future replica (see ``move`` for the order in which they change):

- One folder with the partition's name: it is the log. If there is a future replica too, its move
  was interrupted and begins anew.
- Two: a move was interrupted between its two renames. The one in the directory that the metadata
  names is the log, the other is renamed to ``-stray``.
- None, but a future replica in the directory that the metadata names: it gets the partition's name.
  The old log's directory is no longer in ``log.dirs``, or a power cut kept only the second rename.
- A folder of a deleted topic, or of another topic with the same name, is renamed to ``-stray``.
- If the metadata names a directory that was not found while one is offline, the log is in that one.
  A folder found elsewhere may be an old one, and is not served until the directory is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dohle.core.ids import TopicPartition, Uuid
from dohle.core.uuid import is_reserved
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.partition_dirs import (
    CLUSTER_METADATA_TOPIC,
    CorruptPartitionMetadata,
    NotAPartitionDir,
    PartitionDirKind,
    parse_partition_dir,
)

logger = logging.getLogger("dohle.storage")


class ReplicaAssignment(NamedTuple):
    """What the metadata log says about a replica on this node."""

    topic_id: Uuid
    #: One of the reserved values if the metadata does not say.
    directory_id: Uuid


AssignmentOf = Callable[[TopicPartition], ReplicaAssignment | None]


@dataclass(slots=True)
class LoadedPlaces:
    """What is to be done, or avoided, after all logs are loaded."""

    #: Replicas whose move was interrupted, and the target directories.
    interrupted: list[tuple[TopicPartition, LogDirectory]] = field(default_factory=list)
    #: Partitions whose log is in a directory that is offline, whatever was found.
    elsewhere: set[TopicPartition] = field(default_factory=set)


class _Folder(NamedTuple):
    directory: LogDirectory
    name: str


class _Found(NamedTuple):
    logs: list[_Folder]
    futures: list[_Folder]


def settle_places(
    directories: Sequence[LogDirectory], assignment_of: AssignmentOf, *, any_offline: bool
) -> LoadedPlaces:
    """Check the names of all folders and rename where needed, before anything is loaded."""
    places = LoadedPlaces()
    for partition, found in _folders(directories).items():
        assignment = assignment_of(partition)
        if assignment is None:
            # A single log is marked stray by the node, when it is loaded and closed again.
            for folder in found.futures + (found.logs if len(found.logs) > 1 else []):
                _mark_stray(partition, folder, "because no such replica is assigned to this broker")
            continue
        logs, futures = found
        # A single log that is another topic's is marked stray by the node too.
        if len(logs) + len(futures) > 1 or futures:
            logs = _of_topic(partition, logs, assignment)
            futures = _of_topic(partition, futures, assignment)
        named = assignment.directory_id
        is_online = any(directory.directory_id == named for directory in directories)
        if any_offline and not is_online and not is_reserved(named):
            places.elsewhere.add(partition)
            continue
        _settle(partition, logs, futures, named, places, any_offline=any_offline)
    return places


def _folders(directories: Sequence[LogDirectory]) -> dict[TopicPartition, _Found]:
    found: dict[TopicPartition, _Found] = {}
    for directory in directories:
        for name in directory.folders.names():
            try:
                partition, kind = parse_partition_dir(name)
            except NotAPartitionDir:
                continue
            if partition.topic == CLUSTER_METADATA_TOPIC:
                # The metadata log is already open, and never moves.
                continue
            if kind in (PartitionDirKind.LIVE, PartitionDirKind.FUTURE):
                logs, futures = found.setdefault(partition, _Found([], []))
                is_log = kind is PartitionDirKind.LIVE
                (logs if is_log else futures).append(_Folder(directory, name))
    return found


def _of_topic(
    partition: TopicPartition, folders: list[_Folder], assignment: ReplicaAssignment
) -> list[_Folder]:
    """Return the folders of this topic; those of another topic are marked stray."""
    kept = []
    for folder in folders:
        try:
            topic_id = folder.directory.folders.topic_id_of(folder.name)
        except CorruptPartitionMetadata:
            # Loading it tells what is wrong, and keeps it offline.
            topic_id = None
        if topic_id in (None, assignment.topic_id):
            kept.append(folder)
        else:
            _mark_stray(partition, folder, "because it is of another topic with this name")
    return kept


def _settle(
    partition: TopicPartition,
    logs: list[_Folder],
    futures: list[_Folder],
    named: Uuid,
    places: LoadedPlaces,
    *,
    any_offline: bool,
) -> None:
    if len(logs) > 1 and any(log.directory.directory_id == named for log in logs):
        for log in logs:
            if log.directory.directory_id != named:
                _mark_stray(partition, log, "because the log has moved to another directory")
    for future in futures:
        if logs:
            places.interrupted.append((partition, future.directory))
            future.directory.futures.paths[partition] = future.directory.folders.path(future.name)
        elif future.directory.directory_id == named and not any_offline:
            logger.warning(
                "%s: no log was found, so the interrupted move is completed: %s is the log now",
                partition,
                future.name,
            )
            future.directory.futures.promote(partition, future.name)
            logs = [future]


def _mark_stray(partition: TopicPartition, folder: _Folder, reason: str) -> None:
    directory, name = folder
    logger.warning(
        "%s: renaming %s/%s to -stray, %s. Remove it if its records are not needed.",
        partition,
        directory.path,
        name,
        reason,
    )
    directory.folders.mark_stray(partition, name)
