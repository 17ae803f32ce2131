"""Checks the records of a format 2 batch without creating record objects.

A leader checks every record that it accepts, and in Python that is the most expensive part of
accepting it. So nothing is built here: :func:`begin_scan` follows the lengths, refuses exactly
what :func:`dohle.records.record.decode_records` refuses, and returns a summary that tells a leader
whether it has to look closer. Many records take many steps (``core.steps``): :func:`begin_scan`
takes the first, which is all that most batches need, and :func:`scanning` the others, also in
pieces as they are decompressed.

Producers often send records of one size, or small ones. A run of such records is checked together
(``equal_run``, ``mixed_run``), many times faster than one by one (``one_by_one``). Larger ones of
mixed sizes are followed with fewer looks at each (``sized_run``). A record that comes alone is
known at a glance (``only_record``). Runs are exact, and what they
leave is followed singly: so when they are tried decides nothing but the time that it takes. Slices
of views are slow, so records are read in the memory that a view shows a part of.
"""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import NamedTuple

from dohle.core.steps import Steps
from dohle.records.checking.equal_run import scan_equal_run
from dohle.records.checking.layouts import SAME_LAYOUT, find_layout, forget_layout, remember_layout
from dohle.records.checking.mixed_run import SIZE_MAX, scan_mixed_run
from dohle.records.checking.one_by_one import follow_singly
from dohle.records.checking.only_record import is_key_null
from dohle.records.checking.record_reader import RecordReader
from dohle.records.checking.sized_run import SIZE_MIN as SIZED_MIN
from dohle.records.checking.sized_run import scan_sized_run
from dohle.records.errors import InvalidRecord
from dohle.records.varint import INT64_MAX, INT64_MIN

#: Trying a run costs as much as following about this many records singly: none is tried for fewer.
_RUN_MIN = 20
#: After a run of records of one size the next is tried at once, like at the beginning. After one
#: that was too short it takes so many records of one size, and each time twice as many.
_ALIKE_MIN, _ALIKE_TIMES = 4, 2
#: After a run of mixed records the next is tried at once. After one that was too short so many are
#: followed singly, and each time four times as many.
_PAUSE_MIN, _PAUSE_TIMES = 6, 4
#: The mean size of records of which a run of mixed ones is tried: most are not above its limit.
_MIXED_MEAN_MAX = SIZE_MAX * 3 // 4
#: How much records of one size may grow, each: an offset delta and a length of one byte more.
_GROWTH_MAX = 2
#: How many records are followed singly in one step: what takes about half a millisecond.
_SINGLES_PER_STEP = 512
#: Up to this size records are copied: to find out where they are in their memory takes longer.
_COPIED_BYTES_MAX = 32 * 1024
#: How many records of a run take as long as one that is followed singly.
_EQUAL_PER_SINGLE, _MIXED_PER_SINGLE, _SIZED_PER_SINGLE = 64, 4, 2
#: A run of large records pays from so many on.
_FEW_MIN = 6


# Without the named tuple's own constructor, which takes longer than a few records.
_new = tuple.__new__


class Summary(NamedTuple):
    """What a leader needs to know of a batch's records."""

    min_timestamp: int
    max_timestamp: int
    #: Whether the offset deltas are 0, 1, 2 and so on.
    is_consecutive: bool
    #: Whether a record has no key.
    has_null_key: bool


#: How far a scan has come: the number of records that were followed; the smallest and the largest
#: timestamp delta; whether the offset deltas count from zero, and whether a key is null; the size
#: of the last record, 0 if it is not known; and when runs are tried: after how many records of one
#: size, and after how many of mixed sizes.
_Progress = tuple[int, int, int, bool, bool, int, int, int]
_AT_FIRST: _Progress = (0, INT64_MAX, INT64_MIN, True, False, 0, 1, _PAUSE_MIN)


def begin_scan(
    records: bytes | memoryview, count: int, base_timestamp: int, *, may_stop: bool = False
) -> Summary | Steps[Summary]:
    """Check ``count`` records, which must fill ``records`` exactly; else InvalidRecord.

    Takes the first step, and returns those that are left if there are any.
    If it ``may_stop``, they end after the first offset delta that does not count from zero.
    """
    if count == 1 and (has_null_key := is_key_null(records)) is not None:
        return _new(Summary, (base_timestamp, base_timestamp, True, has_null_key))
    total = len(records)
    shape = find_layout(count, total)
    if shape is not None:
        deltas = shape.timestamp_deltas(records)
        if deltas is not None:
            return _summary(deltas[0], deltas[1], True, shape.has_null_key, base_timestamp)
        forget_layout(count, total)
    data, begin, end = memory_of(records)
    progress = _AT_FIRST
    if count <= _RUN_MIN:
        # Too few for other runs.
        position, index, low, high, is_consecutive, has_null_key, last_size = _follow_few(
            data, begin, end, count
        )
    else:
        position, progress, _ = _follow_records(data, begin, end, count, progress)
        index, low, high, is_consecutive, has_null_key, last_size, _, _ = progress
    if index < count or position != end:
        reader = RecordReader(data, begin, end)
        if progress[0]:
            reader.position = position
        return scanning(reader, count, base_timestamp, progress, may_stop=may_stop)
    if is_consecutive and count in SAME_LAYOUT and last_size * count == total:
        remember_layout(records, count)
    return _summary(low, high, is_consecutive, has_null_key, base_timestamp)


def _follow_few(
    data: bytes | bytearray, begin: int, end: int, count: int
) -> tuple[int, int, int, int, bool, bool, int]:
    """Follow few records, in a run if they are large and so many that it pays."""
    if count < _FEW_MIN or end - begin < count * SIZED_MIN:
        position, index, low, high, is_consecutive, has_null_key, last, _, _ = follow_singly(
            data, begin, end, 0, count
        )
        return position, index, low, high, is_consecutive, has_null_key, last[1]
    position, index, low, high, is_consecutive, has_null_key, last, _, _ = follow_singly(
        data, begin, end, 0, 1
    )
    if is_consecutive and last[1] >= SIZED_MIN:
        found, position, deltas, is_some_null = scan_sized_run(
            data, position, end, last, index, count
        )
        if found:
            index += found
            low, high = min(low, *deltas), max(high, *deltas)
            has_null_key = has_null_key or is_some_null
    if index == count:
        # Their size is known if it is that of the first.
        return position, index, low, high, is_consecutive, has_null_key, last[1]
    position, index, low, high, is_consecutive, has_null_key, last, _, _ = follow_singly(
        data, position, end, index, count, low, high, is_consecutive, has_null_key
    )
    return position, index, low, high, is_consecutive, has_null_key, last[1]


def _summary(
    low: int, high: int, is_consecutive: bool, has_null_key: bool, base_timestamp: int
) -> Summary:
    low += base_timestamp
    high += base_timestamp
    if low < INT64_MIN or high > INT64_MAX:
        raise InvalidRecord(f"{low} to {high} are not timestamps")
    return _new(Summary, (low, high, is_consecutive, has_null_key))


def scanning(
    reader: RecordReader,
    count: int,
    base_timestamp: int,
    progress: _Progress = _AT_FIRST,
    *,
    may_stop: bool = False,
) -> Steps[Summary]:
    """Check the records that ``reader`` has and gets, step by step."""
    while progress[0] < count:
        reader.position, progress, is_doubtful = _follow_records(
            reader.data, reader.position, reader.end, count, progress
        )
        if may_stop and not progress[3]:
            return Summary(0, 0, False, False)
        yield None
        if is_doubtful:
            head, key_size = yield from reader.record()
            index, low, high, is_consecutive, has_null_key, *_ = progress
            progress = (
                index + 1,
                min(low, head.timestamp_delta),
                max(high, head.timestamp_delta),
                is_consecutive and head.offset_delta == index,
                has_null_key or key_size < 0,
                *progress[5:],
            )
    if (yield from reader.has_more()):
        raise InvalidRecord(f"more bytes follow the {count} records of a batch")
    _, low, high, is_consecutive, has_null_key, *_ = progress
    return _summary(low, high, is_consecutive, has_null_key, base_timestamp)


def _follow_records(
    data: bytes | bytearray, position: int, end: int, count: int, progress: _Progress
) -> tuple[int, _Progress, bool]:
    """Follow as many records as can be done in one step, in runs where that may be faster.

    Returns the position behind them, the progress, and whether the next record must be read with
    care (``one_by_one``).
    """
    index, low, high, is_consecutive, has_null_key, size, alike_max, pause = progress
    singles = _SINGLES_PER_STEP
    is_doubtful = False
    while index < count and singles > 0 and not is_doubtful:
        first, start = index, position
        if not is_consecutive or count - index <= _RUN_MIN:
            # No run is tried any more.
            alike_max, pause = 0, count
        stop = min(count, index + min(singles, 1 if alike_max == 1 else pause))
        position, index, low, high, is_consecutive, has_null_key, last, alike, is_doubtful = (
            follow_singly(
                data,
                position,
                end,
                index,
                stop,
                low,
                high,
                is_consecutive,
                has_null_key,
                alike_max,
            )
        )
        size = last[1]
        singles -= index - first
        if is_doubtful or not is_consecutive or count - index < _RUN_MIN:
            continue
        is_mixed = False
        if index == 1 and not 0 <= end - position - (count - 1) * size <= count * _GROWTH_MAX:
            # The others cannot all be like the first, and may be too large on average.
            is_mixed, alike_max = True, _ALIKE_MIN
            if end - position > count * _MIXED_MEAN_MAX:
                pause = count
        if size >= SIZED_MIN and (is_mixed or alike < alike_max):
            found, position, deltas, is_some_null = scan_sized_run(
                data, position, end, last, index, count
            )
            low, high = min((low, *deltas)), max((high, *deltas))
            has_null_key = has_null_key or is_some_null
            pause = 1 if found > _FEW_MIN else max(_PAUSE_MIN, pause * _PAUSE_TIMES)
            index += found
            singles -= found // _SIZED_PER_SINGLE + 1
            size = 0
        elif is_mixed:
            continue
        elif alike >= alike_max and size:
            found, low, high = scan_equal_run(data, end, last, index, count, low, high)
            alike_max = 1 if found > _RUN_MIN else max(_ALIKE_MIN, alike_max * _ALIKE_TIMES)
            index += found
            position += found * size
            singles -= found // _EQUAL_PER_SINGLE + 1
        elif 0 < size <= SIZE_MAX and position - start <= _MIXED_MEAN_MAX * (index - first):
            found, position, deltas, is_some_null = scan_mixed_run(
                data, position, end, last, index, count
            )
            low, high = min((low, *deltas)), max((high, *deltas))
            has_null_key = has_null_key or is_some_null
            pause = 1 if found > _PAUSE_MIN else max(_PAUSE_MIN, pause * _PAUSE_TIMES)
            index += found
            singles -= found // _MIXED_PER_SINGLE + _PAUSE_MIN
            size = 0
        else:
            alike_max = max(_ALIKE_MIN, alike_max)
            pause = max(_PAUSE_MIN, pause * _PAUSE_TIMES)
    return (
        position,
        (index, low, high, is_consecutive, has_null_key, size, alike_max, pause),
        is_doubtful,
    )


def memory_of(records: bytes | memoryview) -> tuple[bytes | bytearray, int, int]:
    """Return the memory that is fastest to read, and where in it the records begin and end.

    That is the memory of a receive buffer, of which a view shows a part; else a copy, like that of
    few bytes. Bytes past the end may be read as well, but no record that reaches there is accepted.
    """
    size = len(records)
    if not isinstance(records, memoryview):
        return records, 0, size
    if size <= _COPIED_BYTES_MAX:
        return bytes(records), 0, size
    whole = records.obj
    if type(whole) is not bytearray or records.readonly:
        return bytes(records), 0, size
    begin = addressof(c_char.from_buffer(records)) - addressof(c_char.from_buffer(whole))
    return whole, begin, begin + size
