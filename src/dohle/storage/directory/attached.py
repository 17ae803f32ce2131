"""The directories that a node has attached: locked, checked, with an identity; and which work.

``log.dirs`` hold records. The metadata log may be in one of them, or in a directory of its own,
which is attached like them but holds nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import Clock, Rng
from dohle.core.uuid import random_uuid
from dohle.storage.directory.data_folders import data_folders, describe, log_bytes
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.meta_properties import (
    HOW_TO_RESTORE,
    METADATA_FOLDER,
    InvalidMetaProperties,
    MetaProperties,
    load_ensemble,
    write_meta_properties,
)
from dohle.storage.files import FileSystem, join, make_dirs_durably

logger = logging.getLogger("dohle.storage")

#: Makes what stands for a path with a directory id; the last argument tells if it holds records.
MakeDirectory = Callable[[str, Uuid, bool], LogDirectory]


class AttachedDirectories:
    """The directories of one node."""

    def __init__(self, fs: FileSystem, clock: Clock, rng: Rng, make: MakeDirectory) -> None:
        self._fs = fs
        self._clock = clock
        self._rng = rng
        self._make = make
        #: Those that hold records.
        self.data: list[LogDirectory] = []
        #: That of the metadata log, if it holds nothing else.
        self.beside: list[LogDirectory] = []
        #: The one of the metadata log, if its path was given to ``attach``.
        self.metadata: LogDirectory | None = None
        #: Those that had no ``meta.properties`` at all.
        self.new: list[LogDirectory] = []
        # Those that have no id yet: ``format_all`` gives them one.
        self._unformatted: list[LogDirectory] = []
        self._gone_offline: dict[str, str] = {}

    def attach(
        self, paths: Sequence[str], cluster_id: str, node_id: BrokerId, metadata_path: str | None
    ) -> None:
        """Lock and check the directories; what is in them stays unchanged.

        A directory whose disk fails is left offline. It is an error if one belongs to another node
        or is in use, if none can be used, or if that of the metadata log cannot. The latter may be
        one of ``log.dirs``, or one that holds nothing else.
        """
        self._cluster_id, self._node_id = cluster_id, node_id
        data_paths = paths
        paths = list(dict.fromkeys([*paths, *([metadata_path] if metadata_path else [])]))
        for path in paths:
            try:
                make_dirs_durably(self._fs, path)
            except OSError as error:
                self._set_offline(path, str(error))
        usable = [path for path in paths if path not in self._gone_offline]
        ensemble = load_ensemble(self._fs, usable)
        for path, problem in ensemble.failed_dirs.items():
            if isinstance(problem, InvalidMetaProperties):
                raise problem
            self._set_offline(path, str(problem))
        ensemble.verify(cluster_id, node_id)
        for path in ensemble.empty_dirs:
            self._refuse_data_without_identity(path)
        if metadata_path is not None:
            ensemble.verify_metadata_dir(self._fs, metadata_path)
        for path in usable:
            if path not in self._gone_offline:
                found = ensemble.properties.get(path)
                self._attach(path, found, is_data=path in data_paths)
        if metadata_path is not None:
            self._choose_metadata_directory(metadata_path)
        self.ensure_any_online()

    def _refuse_data_without_identity(self, path: str) -> None:
        """Do not take a directory for a new one because its ``meta.properties`` is gone."""
        data = data_folders(self._fs, [path])
        found = describe(data) if data else f"a metadata log ({join(path, METADATA_FOLDER)})"
        if data or log_bytes(self._fs, join(path, METADATA_FOLDER)):
            raise InvalidMetaProperties(
                f"{path} has no meta.properties, which says to which cluster and node it belongs, "
                f"but {found}. Nothing was changed. {HOW_TO_RESTORE}"
            )

    def _choose_metadata_directory(self, path: str) -> None:
        """Find the metadata log's directory, and format it first: see ``verify_metadata_dir``."""
        if path not in self._gone_offline:
            attached = [*self.data, *self.beside]
            chosen = next(directory for directory in attached if directory.path == path)
            self._format(chosen)
            self.metadata = chosen
        if path in self._gone_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata log's directory {path} cannot be used: {self._gone_offline[path]}",
            )

    def _attach(self, path: str, found: MetaProperties | None, *, is_data: bool) -> None:
        directory_id = None if found is None else found.directory_id
        directory = self._make(path, directory_id or random_uuid(self._rng), is_data)
        try:
            directory.lock()
            # From here on it must be released, whatever happens.
            (self.data if is_data else self.beside).append(directory)
            if directory_id is None:
                self._unformatted.append(directory)
            if found is None:
                self.new.append(directory)
            directory.space.make_room()
        except OSError as error:
            directory.disk.failed("being attached", error)
            self._gone_offline[path] = str(error)

    def format_all(self) -> None:
        """Give an id to the directories that have none."""
        for directory in list(self._unformatted):
            self._format(directory)

    def _format(self, directory: LogDirectory) -> None:
        if directory not in self._unformatted:
            return
        properties = MetaProperties(self._cluster_id, self._node_id, directory.directory_id)
        try:
            write_meta_properties(self._fs, directory.path, properties, self._clock.now_ms())
        except OSError as error:
            directory.disk.failed("being formatted", error)
            self._gone_offline[directory.path] = str(error)
        self._unformatted.remove(directory)

    def _set_offline(self, path: str, reason: str) -> None:
        logger.error(
            "log directory %s cannot be used, and the broker starts without its partitions: %s",
            path,
            reason,
        )
        self._gone_offline[path] = reason

    @property
    def online(self) -> list[LogDirectory]:
        """The directories with records that work."""
        return [directory for directory in self.data if directory.disk.failure is None]

    @property
    def online_beside(self) -> list[LogDirectory]:
        """That of the metadata log, if it is one of its own and works."""
        return [directory for directory in self.beside if directory.disk.failure is None]

    @property
    def offline(self) -> dict[str, str]:
        """The directories that do not work, and why: those that failed at start, or since."""
        since = {d.path: d.disk.failure for d in self.data if d.disk.failure is not None}
        return self._gone_offline | since

    def ensure_any_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if no directory for records can be used."""
        if not self.online:
            reasons = "; ".join(f"{path}: {why}" for path, why in self.offline.items())
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can be used: {reasons}"
            )

    def release(self) -> None:
        """Let go of all of them, as they are; it stays known which have failed."""
        self._gone_offline = self.offline
        for directory in (*self.data, *self.beside):
            directory.release()
        self.data, self.beside = [], []
