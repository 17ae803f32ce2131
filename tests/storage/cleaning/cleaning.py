"""What the tests of cleaning share: logs with keys, and rounds in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dohle.records.batch import Batch, Codec, Record, batches
from dohle.records.builder import BatchBuilder
from dohle.storage.cleaning.round import CleaningRound
from dohle.storage.cleaning.round_values import CleanerSettings
from dohle.storage.cleaning.selection import look_at
from dohle.storage.config import LogConfig
from dohle.storage.log import Log
from dohle.storage.log_read import read
from dohle.storage.log_values import Isolation
from dohle.storage.producers.state import AppendOrigin
from tests.storage.logs import LEADER_EPOCH, NOW_MS, log_batches, marker

COMPACT = frozenset({"compact"})
SETTINGS = CleanerSettings(dedupe_buffer_bytes=1 << 20)
Pair = tuple[bytes | None, bytes | None]


def compacted(segment_bytes: int = 1 << 20, **changed: int) -> LogConfig:
    return LogConfig(
        cleanup_policy=COMPACT,
        segment_bytes=segment_bytes,
        index_interval_bytes=100,
        retention_ms=-1,
        file_delete_delay_ms=1_000,
        **changed,  # type: ignore[arg-type]
    )


def tiny_map(keys: int) -> CleanerSettings:
    """A map for about so many keys."""
    return CleanerSettings(dedupe_buffer_bytes=int(keys * 24.04 * 8 / 7) + 30, load_factor=1.0)


def keyed(
    pairs: Iterable[Pair],
    *,
    pid: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
    timestamps: Sequence[int] = (NOW_MS,),
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytearray:
    """A batch with these records."""
    builder = BatchBuilder(
        producer_id=pid,
        producer_epoch=epoch if pid >= 0 else -1,
        base_sequence=sequence,
        is_transactional=transactional,
        codec=codec,
    )
    for number, (key, value) in enumerate(pairs):
        builder.append(timestamps[number % len(timestamps)], key, value, headers)
    return builder.build()


def put(log: Log, *pairs: Pair, pid: int = -1, sequence: int = -1, **fields: object) -> int:
    """Append one batch; return its first offset."""
    batch = keyed(pairs, pid=pid, sequence=sequence, **fields)  # type: ignore[arg-type]
    guard = None
    if fields.get("transactional"):
        guard = log.producer_state.start_transaction_verification(pid, sequence, 0, False, NOW_MS)
    if guard is None:
        info = log.append_as_leader(batch, LEADER_EPOCH)
    else:
        info = log.append_as_leader(batch, LEADER_EPOCH, verification_guard=guard)
    log.update_high_watermark(log.log_end_offset)
    return info.first_offset


def end(log: Log, pid: int, *, commit: bool) -> int:
    """Append a marker."""
    info = log.append_as_leader(
        marker(pid, commit=commit),
        LEADER_EPOCH,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=0,
    )
    log.update_high_watermark(log.log_end_offset)
    return info.first_offset


def clean(
    log: Log,
    checkpoint: int | None = None,
    now_ms: int = NOW_MS,
    settings: CleanerSettings = SETTINGS,
    between: Callable[[], object] = lambda: None,
) -> CleaningRound:
    """Do a whole round; ``between`` any two steps something may happen."""
    cleanable = look_at(log, checkpoint, now_ms)
    log.flush(cleanable.first_uncleanable_offset)
    log.files.context.checkpoint_recovery_points()
    cleaning = CleaningRound(log, cleanable, settings, now_ms)
    while (job := cleaning.next_job()) is not None:
        between()
        job.run()
        between()
        cleaning.complete(job)
        between()
    return cleaning


class Shape(NamedTuple):
    """What is told of a batch."""

    base_offset: int
    last_offset: int
    offsets: list[int]
    control: bool


def shapes(log: Log) -> list[Shape]:
    return [
        Shape(b.base_offset, b.last_offset, [r.offset for r in b], b.is_control)
        for b in log_batches(log)
    ]


def offsets_of(log: Log) -> list[int]:
    """The offsets of all records, markers too."""
    return [record.offset for batch in log_batches(log) for record in batch]


def read_all(log: Log, isolation: Isolation = Isolation.HIGH_WATERMARK) -> list[Record]:
    """Read as a consumer does, filtering aborted transactions by the list that the log gives."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        data = read(log, offset, 1 << 20, isolation, min_one_batch=True)
        if data.slice is None:
            return found
        aborted = sorted(
            data.aborted_transactions or (), key=lambda transaction: transaction.first_offset
        )
        active: set[int] = set()
        for batch in batches(data.slice.read()):
            while aborted and aborted[0].first_offset <= batch.last_offset:
                active.add(aborted.pop(0).producer_id)
            if batch.is_control:
                if _is_abort(batch):
                    active.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in active):
                found += [record for record in batch if record.offset >= offset]
            offset = batch.next_offset


def _is_abort(batch: Batch) -> bool:
    return any(record.key == b"\x00\x00\x00\x00" for record in batch)


def last_values(records: Iterable[Record]) -> dict[bytes, bytes | None]:
    """The last value of each key; a tombstone is as good as no record."""
    found: dict[bytes, bytes | None] = {}
    for record in records:
        if record.key is not None:
            found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}


def producers(log: Log) -> dict[int, tuple[object, ...]]:
    """What must survive of each producer."""
    return {
        pid: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.batches[-1].last_offset if entry.batches else None,
            entry.current_txn_first_offset,
        )
        for pid, entry in log.producer_state.producers.items()
    }


def extent(log: Log) -> tuple[int, ...]:
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
    )


def is_subsequence(some: list[Record], all_: list[Record]) -> bool:
    rest = iter(all_)
    return all(record in rest for record in some)
