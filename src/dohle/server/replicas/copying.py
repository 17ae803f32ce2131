"""Writing what a leader has sent: the same bytes, at the same offsets."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from dohle.records.batch import LOG_OVERHEAD
from dohle.storage.log import Log

#: Base offset, and how many bytes follow.
_HEAD = Struct(">qi")
#: How many batches are checked and written in one go: it takes a few milliseconds at most.
BATCHES_AT_ONCE = 200


def in_pieces(records: memoryview) -> Iterator[memoryview]:
    """Share whole batches out among pieces, of which most answers have one.

    An incomplete batch at the end is left out; without any whole batch there is one empty piece.
    """
    begin = position = count = 0
    end = len(records)
    while position + LOG_OVERHEAD <= end:
        size = LOG_OVERHEAD + max(_HEAD.unpack_from(records, position)[1], 0)
        if position + size > end:
            break
        if count == BATCHES_AT_ONCE:
            yield records[begin:position]
            begin, count = position, 0
        position += size
        count += 1
    yield records[begin:position]


def append_fetched(log: Log, records: memoryview, leader_epoch: int) -> None:
    """Append whole batches of a leader.

    A leader whose log begins within a batch sends the whole batch: an empty log then begins with
    it, while its readers begin where the leader's do (F14).
    """
    if log.log_end_offset == log.log_start_offset:
        base_offset, _ = _HEAD.unpack_from(records)
        if base_offset < log.log_start_offset:
            log.truncate_fully_and_start_at(base_offset, log.log_start_offset)
    log.append_as_follower(records, leader_epoch)
