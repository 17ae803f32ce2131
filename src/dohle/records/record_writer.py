"""Writes records one by one, with offsets from zero and timestamps from the first one's on."""

from __future__ import annotations

from dohle.records.errors import InvalidRecord
from dohle.records.record import NO_TIMESTAMP
from dohle.records.varint import encode_varint

_ATTRIBUTES = b"\x00"


class RecordWriter:
    """What a batch's header has to say of the records that were written."""

    __slots__ = ("base_timestamp", "count", "max_timestamp")

    def __init__(self) -> None:
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.count = 0

    def head(self, timestamp: int, rest_size: int) -> bytes:
        """Begin the next record: all before its key, with which ``rest_size`` bytes begin."""
        if timestamp < NO_TIMESTAMP:
            raise InvalidRecord(f"{timestamp} is not a timestamp")
        if not self.count:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        delta, offset = encode_varint(timestamp - self.base_timestamp), encode_varint(self.count)
        self.count += 1
        length = encode_varint(1 + len(delta) + len(offset) + rest_size)
        return length + _ATTRIBUTES + delta + offset
