"""Gives an empty data directory its identity, for ``dohle storage format``.

The metadata log's directory also gets ``bootstrap.checkpoint``: the features that a new cluster
starts with. ``meta.properties`` is written last, since it marks a directory as formatted.
"""

from __future__ import annotations

from dohle.cli.errors import CliError
from dohle.core.ids import BrokerId
from dohle.core.seams import SystemClock, system_rng
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.server.quorum.snapshots import BOOTSTRAP_CHECKPOINT, write_snapshot
from dohle.storage.directory.meta_properties import MetaProperties, write_meta_properties
from dohle.storage.directory.partition_dirs import NotAPartitionDir, parse_partition_dir
from dohle.storage.files import FileSystem, join, make_dirs_durably

NODE_ID_DEFAULT = BrokerId(1)

_LOCK = ".lock"


class Formatter:
    """The identity that the directories of one node get."""

    def __init__(self, fs: FileSystem, cluster_id: str | None, node_id: BrokerId | None) -> None:
        self._fs = fs
        self._rng = system_rng()
        self._now_ms = SystemClock().now_ms()
        self.cluster_id = cluster_id or uuid_to_text(random_uuid(self._rng))
        self.node_id = NODE_ID_DEFAULT if node_id is None else node_id

    def format(self, path: str, *, has_metadata: bool) -> None:
        """Format one directory, creating it if it does not exist."""
        make_dirs_durably(self._fs, path)
        try:
            lock = self._fs.lock(join(path, _LOCK))
        except BlockingIOError:
            raise CliError(f"{path} is in use by another process: stop it first") from None
        try:
            self._refuse_partitions(path)
            if has_metadata:
                write_snapshot(
                    self._fs,
                    join(path, BOOTSTRAP_CHECKPOINT),
                    default_bootstrap_records(),
                    epoch=0,
                    timestamp=self._now_ms,
                )
            properties = MetaProperties(self.cluster_id, self.node_id, random_uuid(self._rng))
            write_meta_properties(self._fs, path, properties, self._now_ms)
        finally:
            lock.release()

    def _refuse_partitions(self, path: str) -> None:
        """Refuse a directory with data but without an identity: a new one would be a guess."""
        for entry in self._fs.list_dir(path):
            if not entry.is_dir:
                continue
            try:
                parse_partition_dir(entry.name)
            except NotAPartitionDir:
                continue
            raise CliError(
                f"{path} has no meta.properties, but partitions such as {entry.name}: restore "
                "its meta.properties, or move the partitions away"
            )
