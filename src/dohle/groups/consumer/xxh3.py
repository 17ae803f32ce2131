"""XXH3 in 64 bits, without a seed: Kafka hashes the topics of a group with it.

Short inputs (up to 240 bytes) are mixed from a few words; longer ones run through eight
accumulators in stripes of 64 bytes. All arithmetic is modulo 2^64.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_MASK32 = (1 << 32) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_AVALANCHE = 0x165667919E3779F9
_RRMXMX = 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // 8
_WORDS = struct.Struct("<8Q")
#: The words of the secret that each stripe of a block is mixed with.
_STRIPE_KEYS = [_WORDS.unpack_from(_SECRET, 8 * at) for at in range(_STRIPES_PER_BLOCK)]
_SCRAMBLE_KEY = _WORDS.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
_LAST_STRIPE_KEY = _WORDS.unpack_from(_SECRET, len(_SECRET) - _STRIPE - 7)
_MERGE_KEY = _WORDS.unpack_from(_SECRET, 11)
_START = (_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1)


def xxh3_64(data: bytes) -> int:
    """Return the hash as an unsigned number."""
    length = len(data)
    if length > 240:
        return _hash_long(data)
    if length > 128:
        return _hash_129_to_240(data)
    if length > 16:
        return _hash_17_to_128(data)
    if length > 8:
        low = _word(data, 0) ^ (_key(24) ^ _key(32))
        high = _word(data, length - 8) ^ (_key(40) ^ _key(48))
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _fold(low, high))
    if length >= 4:
        value = _half(data, length - 4) + (_half(data, 0) << 32)
        return _rrmxmx(value ^ (_key(8) ^ _key(16)), length)
    if length > 0:
        mixed = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _xxh64_avalanche(mixed ^ _key32(0) ^ _key32(4))
    return _xxh64_avalanche(_key(56) ^ _key(64))


def _hash_17_to_128(data: bytes) -> int:
    length = len(data)
    value = length * _P64_1
    for pair in range((length - 1) // 32 + 1):
        value += _mix16(data, 16 * pair, 32 * pair)
        value += _mix16(data, length - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(value)


def _hash_129_to_240(data: bytes) -> int:
    length = len(data)
    value = length * _P64_1
    for at in range(8):
        value += _mix16(data, 16 * at, 16 * at)
    value = _avalanche(value)
    for at in range(8, length // 16):
        value += _mix16(data, 16 * at, 16 * (at - 8) + 3)
    return _avalanche(value + _mix16(data, length - 16, 136 - 17))


def _hash_long(data: bytes) -> int:
    lanes = list(_START)
    stripes = (len(data) - 1) // _STRIPE
    for stripe in range(stripes):
        at = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, _STRIPE_KEYS[at])
        if at == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, len(data) - _STRIPE, _LAST_STRIPE_KEY)
    value = len(data) * _P64_1
    for at in range(0, 8, 2):
        value += _fold(lanes[at] ^ _MERGE_KEY[at], lanes[at + 1] ^ _MERGE_KEY[at + 1])
    return _avalanche(value)


def _accumulate(lanes: list[int], data: bytes, offset: int, keys: tuple[int, ...]) -> None:
    words = _WORDS.unpack_from(data, offset)
    for at in range(8):
        keyed = words[at] ^ keys[at]
        lanes[at ^ 1] += words[at]
        lanes[at] += (keyed & _MASK32) * (keyed >> 32)
    for at in range(8):
        lanes[at] &= _MASK


def _scramble(lanes: list[int]) -> None:
    for at in range(8):
        value = lanes[at]
        lanes[at] = (value ^ value >> 47 ^ _SCRAMBLE_KEY[at]) * _P32_1 & _MASK


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _half(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def _key(offset: int) -> int:
    return _word(_SECRET, offset)


def _key32(offset: int) -> int:
    return _half(_SECRET, offset)


def _mix16(data: bytes, offset: int, key_offset: int) -> int:
    return _fold(
        _word(data, offset) ^ _key(key_offset), _word(data, offset + 8) ^ _key(key_offset + 8)
    )


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ product >> 64


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * _AVALANCHE & _MASK
    return value ^ value >> 32


def _xxh64_avalanche(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _rrmxmx(value: int, length: int) -> int:
    value ^= (value << 49 | value >> 15) & _MASK ^ (value << 24 | value >> 40) & _MASK
    value = value * _RRMXMX & _MASK
    value ^= (value >> 35) + length
    value = value * _RRMXMX & _MASK
    return value ^ value >> 28
