"""Bringing a log's producer state to its end, from snapshots and from the batches behind them."""

from __future__ import annotations

from dohle.records.batch import CorruptBatch, RecordBatch
from dohle.storage.producers.state import ProducerState
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments


def rebuild_producer_state(
    state: ProducerState,
    segments: Segments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    after_clean_shutdown: bool = False,
) -> None:
    """Bring the producer state to ``end_offset``: newest snapshot, then the batches behind it.

    After a clean stop without any snapshot (a directory from before there were snapshots) the state
    is taken to be empty. Otherwise snapshots are written at the starts of the last two segments and
    at the end.
    """
    wanted = set(segments.base_offsets[-2:])
    if state.snapshots.latest_offset is None and after_clean_shutdown:
        for offset in sorted(wanted | {end_offset}):
            state.map_end_offset = offset
            state.take_snapshot(sync=False)
        return
    was_empty = state.is_empty and state.map_end_offset >= end_offset
    state.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if end_offset > state.map_end_offset and not was_empty:
        for segment in segments.from_offset(state.map_end_offset):
            if segment.base_offset >= end_offset:
                break
            start = max(segment.base_offset, state.map_end_offset, log_start_offset)
            state.map_end_offset = start
            if segment.base_offset in wanted:
                state.take_snapshot(sync=False)
            _replay(state, segment, start, end_offset)
    state.map_end_offset = end_offset
    state.take_snapshot(sync=False)


def _replay(state: ProducerState, segment: LogSegment, start: int, end_offset: int) -> None:
    head = segment.reader.find(start)
    if head is None:
        return
    try:
        for _, batch in segment.reader.batches(head.position):
            if batch.last_offset >= end_offset:
                break
            if isinstance(batch, RecordBatch):
                state.replay(batch)
    except CorruptBatch as error:
        raise CorruptBatch(f"{segment.path}: {error.args[0]}", error.position) from error
