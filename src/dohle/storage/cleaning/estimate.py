"""What cleaning would save of a log that no broker uses; nothing is written.

The whole log is taken as dirty, as if it had never been cleaned. The segment with the highest
offsets stays as it is, and so do those with undecided transactions, as in a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dohle.core.ids import TopicName, TopicPartition
from dohle.storage.cleaning.grouping import SegmentSize, group_segments
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.mapping import MapBuilder
from dohle.storage.cleaning.planning import last_records
from dohle.storage.cleaning.reading import (
    BatchOrder,
    CleaningPace,
    ClosedSegment,
    StopFlag,
    TransactionIndexes,
    whole_batches,
)
from dohle.storage.cleaning.rewriting import Rewriter, RewritingRules
from dohle.storage.cleaning.round_values import CleanerSettings
from dohle.storage.cleaning.transactions import TransactionTracker
from dohle.storage.files import Buffer, FileSystem, join
from dohle.storage.producers.state import ProducerState, ProducerStateConfig
from dohle.storage.segment.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    has_base_offset,
    segment_file_name,
)

_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """What would become of the segments of one group, which become one."""

    base_offsets: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    #: Of the records after.
    tombstones: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What would become of a log."""

    groups: tuple[GroupEstimate, ...]
    #: The segments that are not cleaned: the last one, and those with undecided transactions.
    untouched_segments: int
    untouched_bytes: int


class _Count:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.size = 0

    def keep(self, data: memoryview, last_offset: int, max_timestamp: int) -> None:
        self.size += len(data)

    def put(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        self.size += len(data)

    def drop(self) -> None:
        pass

    def flush(self) -> None:
        pass


def estimate_cleaning(
    fs: FileSystem,
    folder: str,
    *,
    now_ms: int,
    segment_bytes: int,
    segment_index_bytes: int,
    delete_retention_ms: int,
    settings: CleanerSettings,
    secret: bytes,
) -> Estimate:
    """Look at a partition's folder. Uncleanable and KafkaErrors tell of damage."""
    pace = CleaningPace(settings.io_buffer_bytes, settings.throttle, StopFlag())
    sources = _sources(fs, folder)
    state, stable = _producers(fs, folder, sources, pace)
    cleanable = [s for s in sources[:-1] if s.end_offset <= stable]
    end_offset = cleanable[-1].end_offset if cleanable else 0
    aborted = TransactionIndexes(fs, [(s.base_offset, s.txn_index_path) for s in sources])
    keys = KeyMap(settings.dedupe_buffer_bytes, settings.load_factor, secret)
    first = sources[0].base_offset if sources else 0
    builder = MapBuilder(keys, aborted, first, pace)
    builder.build(fs, cleanable, 0)
    covered = [s for s in cleanable if s.base_offset < builder.end_offset]
    # Tombstones whose time has come are taken to have been seen before.
    map_end = builder.end_offset - 1
    rules = RewritingRules(keys, map_end + 1, map_end, now_ms, delete_retention_ms, end_offset, 0)
    tracker, groups, at = TransactionTracker(), [], 0
    last_record_of = last_records(state.producers).by_producer()
    sizes = [_size(fs, folder, source) for source in covered]
    for count in group_segments(sizes, end_offset, segment_bytes, segment_index_bytes):
        group = covered[at : at + count]
        at += count
        rewriter, sink = Rewriter(rules, tracker, aborted, last_record_of, pace), _Count()
        rewriter.rewrite(fs, group, sink)
        found = rewriter.statistics
        groups.append(
            GroupEstimate(
                tuple(source.base_offset for source in group),
                sum(source.size for source in group),
                sink.size,
                found.messages_read,
                found.messages_written,
                found.tombstones_kept,
            )
        )
    left = sources[at:]
    return Estimate(tuple(groups), len(left), sum(source.size for source in left))


def _sources(fs: FileSystem, folder: str) -> list[ClosedSegment]:
    names = sorted(
        entry.name
        for entry in fs.list_dir(folder)
        if entry.name.endswith(LOG_SUFFIX) and has_base_offset(entry.name)
    )
    bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names]
    return [
        ClosedSegment(
            base,
            following,
            join(folder, name),
            fs.stat(join(folder, name)).size,
            join(folder, segment_file_name(base, TXN_INDEX_SUFFIX)),
        )
        for name, base, following in zip(names, bases, [*bases[1:], _OFFSET_MAX], strict=True)
    ]


def _producers(
    fs: FileSystem, folder: str, sources: Sequence[ClosedSegment], pace: CleaningPace
) -> tuple[ProducerState, int]:
    """Return the producers of the log, and where its first undecided transaction begins."""
    partition = TopicPartition(TopicName("estimate"), 0)
    state = ProducerState(fs, folder, partition, ProducerStateConfig(), snapshot_offsets=())
    for source in sources:
        file, order = fs.open(source.path), BatchOrder(source)
        try:
            for _, piece in whole_batches(file, 0, source.size, pace.buffer_bytes):
                for _, batch in order.batches(piece):
                    if batch.producer_id >= 0:
                        state.replay(batch)
        finally:
            file.close()
    undecided = state.first_undecided_offset
    return state, _OFFSET_MAX if undecided is None else undecided


def _size(fs: FileSystem, folder: str, source: ClosedSegment) -> SegmentSize:
    sizes = []
    for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        path = join(folder, segment_file_name(source.base_offset, kind))
        sizes.append(fs.stat(path).size if fs.exists(path) else 0)
    return SegmentSize(source.base_offset, source.size, *sizes)
