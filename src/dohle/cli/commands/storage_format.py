"""Gives empty data directories their identity, for ``dohle storage format``.

Every directory gets ``bootstrap.checkpoint``: the features that a new cluster starts with. If the
quorum's voters are in the metadata log (``kraft.version`` 1, KIP-853) and the first of them are
known (``initial_voters``), the metadata log's directory also gets its first snapshot, with these.
``meta.properties`` comes last, since it marks a directory as formatted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dohle.cli.commands.storage_quorum import QuorumPlan
from dohle.cli.errors import CliError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import SystemClock, system_rng
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.features import TOLERATED_FEATURES
from dohle.metadata.metadata_version import (
    ELR_VERSION,
    KRAFT_VERSION,
    LATEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_VERSION,
    RELEASES,
    level_of_release,
    supports_elr,
)
from dohle.raft.membership import KRAFT_VERSIONS, Membership, Voter
from dohle.server.quorum.metadata_log import METADATA_PARTITION
from dohle.server.quorum.snapshots import (
    BOOTSTRAP_CHECKPOINT,
    SnapshotId,
    snapshot_path,
    write_snapshot,
)
from dohle.storage.directory.meta_properties import MetaProperties, write_meta_properties
from dohle.storage.directory.partition_dirs import (
    NotAPartitionDir,
    parse_partition_dir,
    partition_dir_name,
)
from dohle.storage.files import FileSystem, join, make_dirs_durably

NODE_ID_DEFAULT = BrokerId(1)

_LOCK = ".lock"


class NewCluster(NamedTuple):
    """What a new cluster begins with."""

    bootstrap: Sequence[VersionedRecord]
    #: The voters of a quorum that can change, as far as they are known before it exists.
    initial_voters: tuple[Voter, ...] = ()


def beginning(
    release: str | None, features: Sequence[tuple[str, int]], plan: QuorumPlan
) -> NewCluster:
    """Check by Kafka's rules what was asked for; levels that are not chosen are the release's."""
    chosen = dict(features)
    for name, level in chosen.items():
        if name not in TOLERATED_FEATURES:
            known = ", ".join(sorted(TOLERATED_FEATURES))
            raise CliError(f"Unsupported feature: {name}. Supported features are: {known}")
        if not TOLERATED_FEATURES[name].covers(level):
            raise CliError(f"{name} has no level {level}, only {TOLERATED_FEATURES[name]}")
    level = _release_level(release, chosen.pop(METADATA_VERSION, None))
    plan.check_kraft_version(chosen.pop(KRAFT_VERSION, None))
    if chosen.get(ELR_VERSION) and not supports_elr(level):
        raise CliError(f"{ELR_VERSION} needs the metadata.version of a later release")
    return NewCluster(default_bootstrap_records(level, chosen), plan.initial_voters)


def _release_level(release: str | None, chosen: int | None) -> int:
    if release is None:
        return LATEST_LEVEL if chosen is None else chosen
    if chosen is not None:
        raise CliError(
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
        )
    level = level_of_release(release)
    if level is None:
        raise CliError(
            f"Unknown metadata.version {release}. Supported metadata.version are "
            f"{RELEASES[LOWEST_LEVEL]} to {RELEASES[LATEST_LEVEL]}"
        )
    return level


class Formatter:
    """The identity that the directories of one node get."""

    def __init__(
        self,
        fs: FileSystem,
        cluster_id: str | None,
        node_id: BrokerId,
        begin: NewCluster,
    ) -> None:
        self._fs = fs
        self._begin = begin
        self._rng = system_rng()
        self._now_ms = SystemClock().now_ms()
        self.cluster_id = cluster_id or uuid_to_text(random_uuid(self._rng))
        self.node_id = node_id

    def format(self, path: str, *, has_metadata: bool) -> None:
        """Format one directory, creating it if it does not exist."""
        make_dirs_durably(self._fs, path)
        try:
            lock = self._fs.lock(join(path, _LOCK))
        except BlockingIOError:
            raise CliError(f"{path} is in use by another process: stop it first") from None
        try:
            self._refuse_partitions(path)
            directory_id = self._directory_id(has_metadata=has_metadata)
            file = join(path, BOOTSTRAP_CHECKPOINT)
            write_snapshot(self._fs, file, self._begin.bootstrap, epoch=0, timestamp=self._now_ms)
            if has_metadata and self._begin.initial_voters:
                self._write_initial_voters(path)
            properties = MetaProperties(self.cluster_id, self.node_id, directory_id)
            write_meta_properties(self._fs, path, properties, self._now_ms)
        finally:
            lock.release()

    def _directory_id(self, *, has_metadata: bool) -> Uuid:
        """Return the id of a new directory: a voter's is told to the others before (R101)."""
        own = [one.directory_id for one in self._begin.initial_voters if one.id == self.node_id]
        return own[0] if has_metadata and own else random_uuid(self._rng)

    def _write_initial_voters(self, path: str) -> None:
        folder = join(path, partition_dir_name(METADATA_PARTITION))
        make_dirs_durably(self._fs, folder)
        membership = Membership(KRAFT_VERSIONS.highest, self._begin.initial_voters)
        file = snapshot_path(folder, SnapshotId(0, 0))
        write_snapshot(self._fs, file, (), membership, epoch=0, timestamp=self._now_ms)

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
