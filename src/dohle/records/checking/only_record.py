"""Checks the only record of a batch, as a producer sends it that waits for each answer.

Such a record says little of itself: its deltas are zero, and it mostly has no headers. What is left
are three lengths, which have to fill the batch exactly.
"""

from __future__ import annotations

from dohle.records.record import ONE_BYTE_VARINTS

#: Which byte of a record tells what, counted from behind its length.
_TIMESTAMP_DELTA, _OFFSET_DELTA, _KEY_LENGTH, _KEY = 1, 2, 3, 4


def is_key_null(record: bytes | memoryview) -> bool | None:
    """Tell whether a record has no key; None if it is not a common one, and must be followed."""
    one_byte, size = ONE_BYTE_VARINTS, len(record)
    try:
        if (length := one_byte[first := record[0]]) is not None:
            at = 1
        elif (second := record[1]) < 0x80:
            length, at = (first >> 1 & 0x3F | second << 6) ^ -(first & 1), 2
        else:
            return None
        if at + length != size or record[at + _TIMESTAMP_DELTA] or record[at + _OFFSET_DELTA]:
            return None
        key_length = one_byte[record[at + _KEY_LENGTH]]
        if key_length is None:
            return None
        at += _KEY
        if key_length > 0:
            at += key_length
        if (length := one_byte[first := record[at]]) is not None:
            at += 1
        elif (second := record[at + 1]) < 0x80:
            length, at = (first >> 1 & 0x3F | second << 6) ^ -(first & 1), at + 2
        else:
            return None
        if length > 0:
            at += length
        # The last byte says that there are no headers.
        return None if at + 1 != size or record[at] else key_length < 0
    except IndexError:
        return None
