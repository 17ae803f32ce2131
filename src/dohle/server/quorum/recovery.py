"""Writing a metadata log anew from what is left of it and from the partition folders.

``plan_recovery`` only reads. ``RecoveryPlan.apply`` gives directories their ``meta.properties``
back and puts a log in place that consists of one snapshot; the old one is kept as a ``-stray``
folder.
A crash on the way leaves a directory that does not start, and a second run does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import Rng
from dohle.core.uuid import (
    METADATA_TOPIC_ID,
    ZERO_UUID,
    is_reserved,
    random_uuid,
    uuid_to_text,
)
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.metadata.image import ClusterImage
from dohle.metadata.partition import DIRECTORY_UNASSIGNED
from dohle.metadata.recovery import (
    FoundLog,
    RecoveredMetadata,
    RecoveryContext,
    recover_metadata,
)
from dohle.metadata.replay import apply
from dohle.metadata.snapshot import snapshot_records
from dohle.raft.membership import Membership, Voter
from dohle.records.batch import BATCH_HEADER, HEADER_SIZE, LOG_OVERHEAD, CorruptBatch
from dohle.server.internal_topics import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    internal_topic_configs,
)
from dohle.server.quorum.loss import LossCheck, MetadataLost
from dohle.server.quorum.metadata_log import METADATA_PARTITION, CorruptMetadataLog
from dohle.server.quorum.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from dohle.server.quorum.snapshots import (
    BOOTSTRAP_CHECKPOINT,
    SnapshotId,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from dohle.server.quorum.survey import Surviving, read_surviving, survey
from dohle.storage.directory.checkpoints import CorruptCheckpoint
from dohle.storage.directory.clean_shutdown import read_broker_epoch
from dohle.storage.directory.data_folders import LiveFolder, live_folders
from dohle.storage.directory.directory import LogDirectoryInUse
from dohle.storage.directory.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    MetaPropertiesEnsemble,
    load_ensemble,
    write_meta_properties,
)
from dohle.storage.directory.partition_dirs import (
    future_dir_name,
    partition_dir_name,
    stray_dir_name,
    write_partition_metadata,
)
from dohle.storage.files import FileSystem, join, make_dirs_durably, make_empty
from dohle.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from dohle.storage.producers.snapshot import CorruptSnapshot, snapshot_offset
from dohle.storage.producers.snapshot import read_snapshot as read_producers
from dohle.storage.segment.batch_scan import scan_batches
from dohle.storage.segment.file_names import LOG_SUFFIX, segment_file_name

#: Producer ids are allocated in blocks of this size.
_PRODUCER_ID_BLOCK = 1_000
_NODE_ID_DEFAULT = BrokerId(1)


@dataclass(slots=True)
class RecoveryPlan:
    """What is to be written. Nothing has been changed yet."""

    metadata_path: str
    cluster_id: str
    node_id: BrokerId
    #: Directories that get a ``meta.properties``, and the id that each gets.
    unidentified: dict[str, Uuid]
    #: Why the metadata log is to be written anew; None if it is as it should be.
    problem: str | None
    metadata: RecoveredMetadata
    #: Records of the old metadata log that could not be read or applied.
    skipped: int
    snapshot: SnapshotId
    #: The quorum is this node with its directory of today, at the level that it had.
    membership: Membership
    log_dirs: Sequence[str] = field(default_factory=list)

    def apply(self, fs: FileSystem, rng: Rng, now_ms: int) -> None:
        """Write it; LogDirectoryInUse if a broker runs on one of the directories."""
        with ExitStack() as locks:
            for path in self.log_dirs:
                try:
                    locks.callback(fs.lock(join(path, ".lock")).release)
                except BlockingIOError:
                    raise LogDirectoryInUse(f"{path} is in use: stop the broker first") from None
            if self.problem is not None:
                self._write_log(fs, rng, now_ms)
            # Last: what has no identity does not start.
            for path, directory_id in self.unidentified.items():
                properties = MetaProperties(self.cluster_id, self.node_id, directory_id)
                write_meta_properties(fs, path, properties, now_ms)

    def _write_log(self, fs: FileSystem, rng: Rng, now_ms: int) -> None:
        new = join(self.metadata_path, future_dir_name(METADATA_PARTITION, random_uuid(rng)))
        make_dirs_durably(fs, new)
        write_partition_metadata(fs, new, METADATA_TOPIC_ID)
        # An empty log that begins where the snapshot ends.
        make_empty(fs, join(new, segment_file_name(self.snapshot.end_offset, LOG_SUFFIX)))
        records = snapshot_records(self.metadata.image)
        path = snapshot_path(new, self.snapshot)
        epoch, membership = self.snapshot.epoch, self.membership
        write_snapshot(fs, path, records, membership, epoch=epoch, timestamp=now_ms)
        state = QuorumState(epoch, voter_ids=(self.node_id,))
        write_quorum_state(fs, new, state, kraft_version=membership.kraft_version)
        live = join(self.metadata_path, partition_dir_name(METADATA_PARTITION))
        if fs.exists(live):
            stray = stray_dir_name(METADATA_PARTITION, random_uuid(rng))
            fs.rename(live, join(self.metadata_path, stray))
        fs.rename(new, live)
        fs.sync_dir(self.metadata_path)


def plan_recovery(
    fs: FileSystem,
    rng: Rng,
    config: BrokerConfig,
    log_dirs: Sequence[str],
    metadata_path: str,
    *,
    cluster_id: str | None,
    node_id: BrokerId | None,
) -> RecoveryPlan:
    """Look at the directories and say what can be had back; OSError if one cannot be read."""
    ensemble = load_ensemble(fs, dict.fromkeys([*log_dirs, metadata_path]))
    for error in ensemble.failed_dirs.values():
        if not isinstance(error, InvalidMetaProperties):
            raise error
    folder = join(metadata_path, partition_dir_name(METADATA_PARTITION))
    found = survey(fs, folder)
    surviving = read_surviving(fs, found)
    image = _bootstrapped(fs, metadata_path, surviving.image)
    node_id = _first(node_id, ensemble.node_id, _only_broker(image), _NODE_ID_DEFAULT)
    unidentified = _directory_ids(fs, rng, ensemble, image, node_id)
    voters = surviving.membership.voters
    if metadata_path in unidentified and len(voters) == 1 and voters[0].id == node_id:
        unidentified[metadata_path] = voters[0].directory_id
    folders = list(live_folders(fs, log_dirs))
    producer_ids = [-1]
    logs = list(_found_logs(fs, folders, ensemble, unidentified, producer_ids))
    context = RecoveryContext(
        node_id,
        surviving.removed.has,
        lambda: random_uuid(rng),
        {
            name: internal_topic_configs(config, name)
            for name in (CONSUMER_OFFSETS, TRANSACTION_STATE)
        },
        _next_block(max(producer_ids)),
    )
    epochs = [read_broker_epoch(fs, path) or -1 for path in log_dirs]
    end_offset = max(found.end_offset, found.snapshot_end, max(epochs) + 1, 1)
    return RecoveryPlan(
        metadata_path,
        cluster_id or ensemble.cluster_id or uuid_to_text(random_uuid(rng)),
        node_id,
        unidentified,
        _problem(fs, folder, log_dirs, node_id, surviving),
        recover_metadata(image, logs, context),
        surviving.skipped,
        SnapshotId(end_offset, max(_quorum_epoch(fs, folder), image.epoch, 1)),
        _own_membership(surviving, node_id, _directory_id(ensemble, unidentified, metadata_path)),
        list(dict.fromkeys([*log_dirs, metadata_path])),
    )


def _directory_id(
    ensemble: MetaPropertiesEnsemble, unidentified: dict[str, Uuid], path: str
) -> Uuid:
    known = ensemble.properties.get(path)
    directory_id = None if known is None else known.directory_id
    return directory_id or unidentified.get(path, ZERO_UUID)


def _own_membership(surviving: Surviving, node_id: BrokerId, directory_id: Uuid) -> Membership:
    left = surviving.membership
    if left.kraft_version < 1:
        return Membership()
    endpoints = next((each.endpoints for each in left.voters if each.id == node_id), ())
    return Membership(left.kraft_version, (Voter(node_id, directory_id, endpoints),))


def _first(*values: BrokerId | None) -> BrokerId:
    return next(value for value in values if value is not None)


def _bootstrapped(fs: FileSystem, metadata_path: str, image: ClusterImage) -> ClusterImage:
    if image.metadata_version is not None:
        return image
    records = list(default_bootstrap_records())
    path = join(metadata_path, BOOTSTRAP_CHECKPOINT)
    if fs.exists(path):
        with suppress(CorruptBatch):
            records = read_snapshot(fs, path)
    image, _ = apply(image, [each.record for each in records], image.offset, image.epoch)
    return image


def _problem(
    fs: FileSystem, folder: str, log_dirs: Sequence[str], node_id: BrokerId, surviving: Surviving
) -> str | None:
    """Return why a start would be refused."""
    check = LossCheck(fs, folder, log_dirs, node_id, accept=False)
    try:
        check.before_opening()
        check.after_loading(surviving.image)
    except MetadataLost as error:
        return error.problem
    if surviving.skipped:
        return "a snapshot of the metadata log is damaged"
    return None


def _only_broker(image: ClusterImage) -> BrokerId | None:
    return next(iter(image.brokers)) if len(image.brokers) == 1 else None


def _directory_ids(
    fs: FileSystem, rng: Rng, ensemble: MetaPropertiesEnsemble, image: ClusterImage, node_id: int
) -> dict[str, Uuid]:
    """Return the ids of directories whose ``meta.properties`` is gone.

    That is the one in which the metadata has the partitions whose folders are there.
    """
    taken = {each.directory_id for each in ensemble.properties.values()}
    found: dict[str, Uuid] = {}
    for path in (*ensemble.empty_dirs, *ensemble.failed_dirs):
        named: dict[Uuid, int] = {}
        for folder in live_folders(fs, [path]):
            partition = image.partition(*folder.partition)
            if partition is not None and node_id in partition.replicas:
                directory_id = partition.directory_of(node_id)
                named[directory_id] = named.get(directory_id, 0) + 1
        free = [each for each in named if each not in taken and not is_reserved(each)]
        found[path] = max(free, key=lambda each: named[each]) if free else random_uuid(rng)
        taken.add(found[path])
    return found


def _found_logs(
    fs: FileSystem,
    folders: Sequence[LiveFolder],
    ensemble: MetaPropertiesEnsemble,
    unidentified: dict[str, Uuid],
    producer_ids: list[int],
) -> Iterator[FoundLog]:
    for folder in folders:
        known = ensemble.properties.get(folder.directory)
        directory_id = unidentified.get(folder.directory, DIRECTORY_UNASSIGNED)
        if known is not None and known.directory_id is not None:
            directory_id = known.directory_id
        epoch = _look_into(fs, folder, producer_ids)
        yield FoundLog(folder.partition, folder.topic_id(fs), directory_id, epoch, folder.size)


def _look_into(fs: FileSystem, folder: LiveFolder, producer_ids: list[int]) -> int:
    """Return a log's newest leader epoch, and note its highest producer id."""
    names = sorted(entry.name for entry in fs.list_dir(folder.path))
    epoch = -1
    if LEADER_EPOCH_CHECKPOINT in names:
        path = join(folder.path, LEADER_EPOCH_CHECKPOINT)
        with suppress(CorruptCheckpoint):
            entries = parse_leader_epochs(path, fs.read(path))
            epoch = max((entry.epoch for entry in entries), default=-1)
    snapshots = [name for name in names if snapshot_offset(name) is not None]
    for name in snapshots[-1:]:
        with suppress(CorruptSnapshot):
            entries_of = read_producers(fs, join(folder.path, name))
            producer_ids.append(max((each.producer_id for each in entries_of), default=-1))
    segments = [join(folder.path, name) for name in names if name.endswith(LOG_SUFFIX)]
    # Each roll leaves a snapshot: what is not in the newest one is in the newest segment.
    for path in segments[-1:]:
        for head_epoch, producer_id in _heads(fs, path):
            epoch = max(epoch, head_epoch)
            producer_ids.append(max(producer_id, producer_ids.pop()))
    if folder.partition.topic == TRANSACTION_STATE:
        producer_ids.extend(_highest_transactional(fs, path) for path in segments)
    return epoch


def _heads(fs: FileSystem, path: str) -> Iterator[tuple[int, int]]:
    """Yield leader epoch and producer id of each batch, as far as the file makes sense."""
    file = fs.open(path)
    try:
        position = 0
        while len(head := file.read_at(position, HEADER_SIZE)) == HEADER_SIZE:
            fields = BATCH_HEADER.unpack(head)
            size, epoch, magic, producer_id = fields[1] + LOG_OVERHEAD, *fields[2:4], fields[9]
            if magic != 2 or size < HEADER_SIZE:
                return
            yield epoch, producer_id
            position += size
    finally:
        file.close()


def _highest_transactional(fs: FileSystem, path: str) -> int:
    """Return the highest producer id of a transactional id, as its coordinator has written it."""
    highest = -1
    file = fs.open(path)
    try:
        for _, batch in scan_batches(file, 0, file.size()):
            if not batch.is_control:
                # Two bytes of version, then the producer id, in every version.
                values = [r.value for r in batch if r.value is not None and len(r.value) >= 10]
                ids = (int.from_bytes(value[2:10], "big", signed=True) for value in values)
                highest = max(highest, *ids, -1)
    except CorruptBatch:
        pass  # The rest is cut off at the next start.
    finally:
        file.close()
    return highest


def _next_block(highest: int) -> int:
    return -1 if highest < 0 else (highest // _PRODUCER_ID_BLOCK + 1) * _PRODUCER_ID_BLOCK


def _quorum_epoch(fs: FileSystem, folder: str) -> int:
    try:
        state = read_quorum_state(fs, folder)
    except CorruptMetadataLog:
        return 0
    return 0 if state is None else state.leader_epoch
