"""What a log says by itself: producers, transactions and their ends, read batch by batch.

It is the plainest reading of the format, beside which the state that brokers keep must stand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dohle.core.ids import TopicPartition
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.records.classic_group import OffsetCommitKey, OffsetCommitValue
from dohle.protocol.record_framing import decode_coordinator_record
from dohle.records.batch import Batch, batches
from dohle.records.control import parse_txn_marker
from dohle.storage import log_read
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.producers.entry import ProducerEntry
from dohle.testing.checking.history import Commit, History, Outcome, Partition

_EPOCH_MAX = 32767
_NOTHING = -1
_TOLD_MAX = 5


class Known(NamedTuple):
    """What a log says of a producer at its end."""

    epoch: int = _NOTHING
    coordinator_epoch: int = _NOTHING
    last_sequence: int = _NOTHING
    last_offset: int = _NOTHING
    open_since: int = _NOTHING


class Marker(NamedTuple):
    """The end of a transaction in a partition."""

    producer_id: int
    epoch: int
    is_commit: bool
    #: Where the transaction began here; -1 if nothing was written here.
    first_offset: int
    offset: int


@dataclass(slots=True)
class Scan:
    """A log as it was read."""

    key: TopicPartition
    producers: dict[int, Known] = field(default_factory=dict)
    markers: list[Marker] = field(default_factory=list)
    #: By value: whose it is; None if nobody wants to know.
    writers: dict[bytes, int] | None = None
    problems: list[str] = field(default_factory=list)

    def take(self, batch: Batch) -> None:
        """Read on."""
        producer_id = batch.producer_id
        if producer_id < 0:
            return
        known = self.producers.get(producer_id, Known())
        if batch.producer_epoch < known.epoch:
            # T3, T6: who was fenced appends nothing, and no marker of an older epoch comes.
            what = "marker" if batch.is_control else "data"
            self.problems.append(
                f"T3 {self.key}: {what} of epoch {batch.producer_epoch} of producer {producer_id} "
                f"at {batch.base_offset}, after epoch {known.epoch}"
            )
        if batch.producer_epoch >= _EPOCH_MAX and not batch.is_control:
            self.problems.append(f"T7 {self.key}: the epoch of producer {producer_id} is used up")
        if batch.is_control:
            self._take_marker(batch, known)
        else:
            self._take_data(batch, known)

    def _take_data(self, batch: Batch, known: Known) -> None:
        opened = known.open_since
        if batch.is_transactional and opened == _NOTHING:
            opened = batch.base_offset
        elif opened != _NOTHING and not batch.is_transactional:
            self.problems.append(f"T2 {self.key}: {batch.base_offset} is outside its transaction")
        self.producers[batch.producer_id] = Known(
            batch.producer_epoch,
            known.coordinator_epoch,
            batch.last_sequence,
            batch.last_offset,
            opened,
        )
        if self.writers is not None:
            for record in batch:
                self.writers[bytes(record.value or b"")] = batch.producer_id

    def _take_marker(self, batch: Batch, known: Known) -> None:
        for record in batch:
            found = parse_txn_marker(record)
            if found.coordinator_epoch < known.coordinator_epoch:
                self.problems.append(
                    f"T3 {self.key}: a marker of coordinator epoch {found.coordinator_epoch} at "
                    f"{batch.base_offset}, after {known.coordinator_epoch}"
                )
            marker = Marker(
                batch.producer_id,
                batch.producer_epoch,
                found.is_commit,
                known.open_since,
                batch.base_offset,
            )
            self.markers.append(marker)
            is_same = batch.producer_epoch == known.epoch
            self.producers[batch.producer_id] = Known(
                batch.producer_epoch,
                found.coordinator_epoch,
                known.last_sequence if is_same else _NOTHING,
                known.last_offset if is_same else _NOTHING,
            )

    def stable_below(self, high_watermark: int, markers_from: int = 0) -> int:
        """Return the last stable offset: below the first undecided, or decided above (T4)."""
        unstable = [known.open_since for known in self.producers.values()]
        above = max(high_watermark, markers_from)
        unstable += [each.first_offset for each in self.markers if each.offset >= above]
        return min((each for each in unstable if each != _NOTHING), default=high_watermark)

    @property
    def aborted(self) -> list[tuple[int, int, int]]:
        """The aborted transactions: producer, first offset, marker."""
        return [
            (each.producer_id, each.first_offset, each.offset)
            for each in self.markers
            if not each.is_commit and each.first_offset != _NOTHING
        ]


def read_log(log: Log) -> Iterator[Batch]:
    """Read all batches of a log from its disk."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log_read.read(log, offset, 1 << 20, Isolation.LOG_END, min_one_batch=True).slice
        assert piece is not None
        for batch in batches(piece.read()):
            offset = batch.next_offset
            yield batch


def scan(log: Log, *, with_values: bool = False) -> Scan:
    """Read a log."""
    found = Scan(log.partition, writers={} if with_values else None)
    for batch in read_log(log):
        found.take(batch)
    return found


def check_state(log: Log, found: Scan, where: str) -> list[str]:
    """P13, P14, T4: what a broker keeps beside a log is what the log says."""
    problems = []
    kept = {id: _known(entry) for id, entry in log.producer_state.producers.items()}
    if kept != found.producers:
        differences = sorted(kept.items() ^ found.producers.items())
        problems.append(f"P13 {found.key} on {where}: {differences[:4]}")
    index = log_read.aborted_transactions(log.segments, log.log_start_offset, log.log_end_offset)
    aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in index]
    if aborted != found.aborted:
        problems.append(f"P14 {found.key} on {where}: {aborted} and not {found.aborted}")
    watermark = log.high_watermark
    # As in Kafka, a snapshot does not tell which of the transactions that have ended before it were
    # not committed yet. Their end is decided all the same, and their records are committed.
    told_from = log.producer_state.snapshots.latest_offset or 0
    stable = {min(watermark, found.stable_below(watermark, since)) for since in (0, told_from)}
    if log.last_stable_offset not in stable:
        text = f"the last stable offset is {log.last_stable_offset} and not {sorted(stable)}"
        problems.append(f"T4 {found.key} on {where}: {text}")
    return problems


def _known(entry: ProducerEntry) -> Known:
    return Known(
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.last_sequence,
        entry.last_data_offset,
        entry.current_txn_first_offset,
    )


def check_transactions(scans: Iterable[Scan], history: History) -> list[str]:
    """T2: a transaction has one outcome in all partitions. T7: a producer id has one owner."""
    problems = []
    decided: dict[tuple[int, int], dict[bool, TopicPartition]] = defaultdict(dict)
    owners: dict[int, str] = {}
    processes = {send.value: send.process for send in history.sends}
    for found in scans:
        for marker in found.markers:
            if marker.first_offset != _NOTHING:
                decided[marker.producer_id, marker.epoch][marker.is_commit] = found.key
        for value, producer_id in (found.writers or {}).items():
            owner = _owner(processes.get(value))
            if owner is not None and owners.setdefault(producer_id, owner) != owner:
                other = owners[producer_id]
                problems.append(f"T7 {producer_id} is the producer id of {owner} and of {other}")
    for producer, outcomes in decided.items():
        if len(outcomes) > 1:
            problems.append(f"T2 {producer} is committed and aborted: {outcomes}")
    return problems


def committed_offsets(log: Log) -> Iterator[tuple[tuple[str, Partition, int], int]]:
    """Read which offsets groups have committed: group, partition and offset, and where that is."""
    for batch in read_log(log):
        for number, record in enumerate(() if batch.is_control else batch):
            found = decode_coordinator_record(Coordinator.GROUP, record.key or b"", record.value)
            if isinstance(found.key, OffsetCommitKey) and isinstance(
                found.value, OffsetCommitValue
            ):
                where = Partition(found.key.topic, found.key.partition)
                yield (found.key.group, where, found.value.offset), batch.base_offset + number


def check_commits(
    logs: Iterable[Log], history: History, committed_at: Callable[[TopicPartition, int], int]
) -> list[str]:
    """G7: whatever a group was told is committed was in its coordinator's log, and committed."""
    places: dict[tuple[str, Partition, int], list[tuple[TopicPartition, int]]] = defaultdict(list)
    for log in logs:
        for commit, offset in committed_offsets(log):
            places[commit].append((log.partition, offset))
    problems = []
    for event in history.offsets:
        if isinstance(event, Commit) and event.outcome is Outcome.OK and event.at_ns >= 0:
            found = places[event.group, event.partition, event.offset]
            if not any(committed_at(key, event.at_ns) > offset for key, offset in found):
                problems.append(
                    f"G7 {event.group} was told that {event.offset} of {event.partition} is "
                    f"committed, and it was not: {found}"
                )
    return problems[:_TOLD_MAX]


def _owner(process: str | None) -> str | None:
    """Return who has a producer id: a transactional one has it for all of its incarnations."""
    if process is None or process.startswith("producer"):
        return process
    kind, _, rest = process.partition(" ")
    return kind + rest.partition(" ")[2]
