"""Which remote segments are of this log: the lineage of leader epochs decides (T1, T8).

After an election that lost records the store may have segments that no replica has. They have
epochs, or ends of epochs, that the log does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.segments import Epochs, RemoteSegment, SegmentState


def without_empty(epochs: Sequence[tuple[int, int]]) -> Epochs:
    """Leave out epochs without records: those that begin where the next one does (T15b)."""
    kept = []
    for number, entry in enumerate(epochs):
        following = epochs[number + 1 : number + 2]
        if not following or following[0][1] != entry[1]:
            kept.append(entry)
    return tuple(kept)


def epochs_of_range(epochs: Sequence[tuple[int, int]], start: int, end: int) -> Epochs:
    """Cut epochs to ``[start, end)``; the first one begins at ``start`` then (T3.5)."""
    found = []
    for number, (epoch, begin) in enumerate(epochs):
        following = epochs[number + 1 : number + 2]
        behind = following[0][1] if following else end
        if begin < end and behind > start:
            found.append((epoch, max(begin, start)))
    return tuple(found)


def is_within(segment: RemoteSegment, log_end_offset: int, lineage: Epochs) -> bool:
    """Tell whether a segment is of the log with these epochs, none of them empty (T8)."""
    own = without_empty(segment.epochs)
    if not lineage or not own or segment.end_offset >= log_end_offset:
        return False
    ours = [epoch for epoch, _ in lineage]
    if not ours[0] <= own[-1][0] <= ours[-1]:
        return False
    first = next((number for number, (epoch, _) in enumerate(own) if epoch >= ours[0]), None)
    if first is None:
        return False
    for number in range(first, len(own)):
        epoch, start = own[number]
        if epoch not in ours:
            return False
        place = ours.index(epoch)
        if number == first and place > 0 and start < lineage[place][1]:
            return False
        behind = lineage[place + 1] if place + 1 < len(lineage) else None
        if number + 1 < len(own):
            if behind != own[number + 1]:
                return False
        elif behind is not None and segment.end_offset >= behind[1]:
            return False
    return True


def highest_remote_offset(
    cache: RemoteLogMetadataCache,
    epochs: Sequence[tuple[int, int]],
    start: int,
    log_end_offset: int,
) -> int:
    """Return the last offset up to which all of this log is remote from ``start`` on.

    It is ``start - 1`` if nothing is. Kafka takes the highest offset that ever was remote (T3.1):
    it deletes local segments whose copies are deleted as well, or that lie in a hole between two.
    """
    position = start
    for number, (epoch, begin) in enumerate(epochs):
        end = epochs[number + 1][1] if number + 1 < len(epochs) else log_end_offset
        while begin <= position < end:
            last = cache.last_offset(epoch, position)
            if last is None:
                return position - 1
            position = min(last + 1, end)
    return position - 1


def last_common_offset(
    segment: RemoteSegment,
    epochs: Sequence[tuple[int, int]],
    offset: int,
    log_end_offset: int,
) -> int:
    """Return the last offset of a segment up to which it has what this log has, from one on.

    It is the end of the segment, but for one that was copied before an election lost its end.
    """
    own = without_empty(segment.epochs)
    numbers = {epoch: number for number, (epoch, _) in enumerate(own)}
    last = offset - 1
    for number, (epoch, _) in enumerate(epochs):
        end = (epochs[number + 1][1] if number + 1 < len(epochs) else log_end_offset) - 1
        if end < offset:
            continue
        place = numbers.get(epoch)
        if place is None:
            break
        own_end = own[place + 1][1] - 1 if place + 1 < len(own) else segment.end_offset
        last = min(end, own_end)
        if own_end != end:
            break
    return last


def newest_copy_of(cache: RemoteLogMetadataCache, offset: int) -> RemoteSegment | None:
    """Return the copied segment that holds an offset and is of the newest epoch, if there is one.

    For a log that has lost its own epochs: it is the best that can be known.
    """
    found = [
        segment
        for segment in cache
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        and segment.start_offset <= offset <= segment.end_offset
    ]
    return max(found, key=lambda each: each.epochs[-1:], default=None)


def remote_log_start(
    cache: RemoteLogMetadataCache, epochs: Sequence[tuple[int, int]]
) -> int | None:
    """Return where the remote part of a log begins; None if there is none (T3.1)."""
    for epoch, _ in epochs:
        found = [
            segment.start_offset
            for segment in cache.of_epoch(epoch)
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        if found:
            return found[0]
    return None
