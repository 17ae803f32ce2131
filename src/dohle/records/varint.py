"""Variable-length integers as records use them: base 128, least significant group first.

Signed values are zig-zag encoded, so that small negative numbers stay short. A varint holds 32 bits
in at most five bytes, a varlong 64 bits in at most ten. Readers take the buffer and a position and
return the value and the position after it; a varint that does not end or does not fit is refused.
"""

from __future__ import annotations

from dohle.records.errors import InvalidRecord

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def _unsigned(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


#: The encodings of the values that make up almost all of a batch, by their zig-zag form.
_SHORT = tuple(_unsigned(value) for value in range(2048))

#: The encodings of 0 to 1023, for loops in which the call of ``encode_varint`` costs most.
SHORT_VARINTS = _SHORT[::2]


def encode_varint(value: int) -> bytes:
    """Encode a signed value of 32 or 64 bits: the two differ only in their range."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    return _SHORT[zigzag] if zigzag < 2048 else _unsigned(zigzag)


def read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a signed 32-bit value."""
    try:
        # Almost all lengths and offset deltas beyond one byte take two.
        if (second := data[position + 1]) < 0x80 <= (first := data[position]):
            raw = first & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), position + 2
    except IndexError:
        pass  # one byte at the very end, or too few: distinguished below
    raw, position = _read_unsigned(data, position, 32)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a signed 64-bit value."""
    raw, position = _read_unsigned(data, position, 64)
    return (raw >> 1) ^ -(raw & 1), position


def _read_unsigned(data: bytes | bytearray, position: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    start = position
    end = len(data)
    while position < end:
        group = data[position]
        position += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            if value >> bits:
                raise InvalidRecord(f"the varint at byte {start} does not fit into {bits} bits")
            return value, position
        shift += 7
        if shift >= bits:
            raise InvalidRecord(f"the varint at byte {start} does not end within {bits} bits")
    raise InvalidRecord(f"the varint at byte {start} runs past the end of the data")
