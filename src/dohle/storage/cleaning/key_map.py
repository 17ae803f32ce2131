"""The last offset of each key of the dirty part of a log, within a limit of memory.

Few keys are kept as they are, in a ``dict``: nothing is faster, but each takes more than a hundred
bytes. When there are many, they are spread over many dicts, because a large one keeps the
interpreter for tens of milliseconds when it grows. When they have taken an eighth of the memory,
and all that may follow would not fit, they move to a table of 24 bytes a slot, the other seven
eighths: a hash of 16 bytes and an offset of 8. The hash is keyed with a secret of the process and
never reaches the disk, so that nobody can make two keys that would be taken for one: the loser's
last record would be dropped. (Kafka uses MD5 for this.)

The table consists of buckets of 32 slots that fill up from the front. A bucket's hashes are in one
piece of memory, in which ``bytes.find`` finds one as fast as Python can compare two. What does not
fit into its bucket is in the next one that has room, so a bucket with room ends the search. The
memory is the system's, which gives it page by page, and takes it back, while others go on.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import cast

_HASH_BYTES, _OFFSET_BYTES = 16, 8
_BUCKET_SLOTS = 32
_BUCKET_BYTES = _BUCKET_SLOTS * _HASH_BYTES
#: Hash, offset, and a share of the byte that counts a bucket's slots.
SLOT_BYTES = _HASH_BYTES + _OFFSET_BYTES + 1 / _BUCKET_SLOTS

#: What a key in the dict takes beside its own bytes: its object, its offset, its slot.
_DICT_ENTRY_BYTES = 33 + 32 + 74
_DICT_SHARE = 8
#: One dict grows beyond so many keys in two milliseconds; beyond twice as many, in five.
_KEYS_OF_ONE_DICT = 40_000
#: As many as keep each of them about as small with the usual memory.
_DICTS = 32
#: What a key in one dict takes more than in several: while it grows, there is the old one, too.
_GROWING_BYTES = 80

NOT_FOUND = -1


class KeyMap:
    """Keys with their last offsets."""

    def __init__(
        self,
        bytes_max: int,
        load_factor: float,
        secret: bytes,
        records_max: int | None = None,
        *,
        may_hold_up: bool = False,
    ) -> None:
        """Use no more than so many bytes, and that part of the table, so that it stays fast.

        No more than ``records_max`` keys will be put, if that is known. ``may_hold_up`` says that
        no other thread waits while a large dict grows: one is faster than several.
        """
        self._may_hold_up = may_hold_up
        self._bytes_max = bytes_max
        self._dict_bytes_max = bytes_max // _DICT_SHARE
        self._slots = int((bytes_max - self._dict_bytes_max) / SLOT_BYTES)
        #: How many keys there may be.
        self.keys_max = min(int(self._slots * load_factor), self._slots)
        if self.keys_max < 1:
            raise ValueError(
                f"{bytes_max} bytes are too few for the keys of even one record: let"
                " log.cleaner.dedupe.buffer.size be larger"
            )
        self._hash = blake2b(digest_size=_HASH_BYTES, key=secret)
        # While there are few, or many: then by their hash.
        self._few: dict[bytes, int] | None = {}
        self._spread: list[dict[bytes, int]] | None = None
        self._dict_bytes = 0
        self._records_left = records_max
        self._count = 0
        # More slots than keys, so that there is a bucket with room.
        self._buckets = self._slots // _BUCKET_SLOTS + 1
        self._hashes: mmap.mmap | None = None
        self._offset_memory: mmap.mmap | None = None
        self._offsets = memoryview(b"").cast("q")
        self._used = bytearray()

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """How full the table is, or would be, from 0 to 1."""
        return self._count / self._slots

    @property
    def memory_bytes(self) -> int:
        """How much memory the keys take, about."""
        if self._hashes is None:
            return self._dict_bytes
        return len(self._hashes) + _OFFSET_BYTES * len(self._offsets) + len(self._used)

    def clear(self) -> None:
        """Give the memory back, which takes long enough to be done in a thread."""
        self._few = None
        while self._spread:
            self._spread.pop()
        self._offsets.release()
        for memory in (self._hashes, self._offset_memory):
            if memory is not None:
                memory.close()

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Note that keys have a record at these offsets, which rise.

        Returns how many were taken: all, or those before the first new key for which there is no
        room.
        """
        if not keys:
            return 0
        each = _entry_bytes(keys)
        if self._hashes is None and not self._has_room_in_dicts(len(keys), each):
            if self._dict_bytes > self._dict_bytes_max:
                # There is no room for a table beside them.
                return 0
            self._move_to_table()
        if self._records_left is not None:
            self._records_left -= len(keys)
        if self._hashes is not None:
            return self._put_in_table(keys, offsets)
        before = self._count
        if self._few is not None:
            self._few.update(zip(keys, offsets, strict=True))
            self._count = len(self._few)
            if self._count > _KEYS_OF_ONE_DICT and not self._may_be_one_dict(each):
                self._move_to_many()
        else:
            self._put_in_many(keys, offsets)
        # New ones are at the end; which of the keys they are does not matter that much.
        self._dict_bytes += int((self._count - before) * each)
        return len(keys)

    def _may_be_one_dict(self, each: float) -> bool:
        """Tell whether it may go on to grow; its next size must fit, too."""
        return self._may_hold_up and self._count * (each + _GROWING_BYTES) <= self._bytes_max

    def _has_room_in_dicts(self, count: int, each: float) -> bool:
        """Tell whether these may come to the dicts, and so that they need not move later."""
        if self._count + count > self.keys_max:
            return False
        if self._dict_bytes + each * count <= self._dict_bytes_max:
            return True
        left = self._records_left
        return left is not None and self._dict_bytes + each * left <= self._bytes_max

    def get_all(self, keys: Sequence[bytes | None]) -> list[int]:
        """Return the last offsets of keys, NOT_FOUND for those that are not there."""
        if self._few is not None:
            # None may be asked for, and is not there.
            few = cast("dict[bytes | None, int]", self._few)
            return list(map(few.get, keys, repeat(NOT_FOUND)))
        if self._spread is not None:
            spread = cast("list[dict[bytes | None, int]]", self._spread)
            return [spread[hash(key) % _DICTS].get(key, NOT_FOUND) for key in keys]
        return self._get_from_table(keys)

    def _put_in_many(self, keys: Iterable[bytes], offsets: Iterable[int]) -> None:
        assert self._spread is not None
        spread = self._spread
        for key, offset in zip(keys, offsets, strict=True):
            spread[hash(key) % _DICTS][key] = offset
        self._count = sum(map(len, spread))

    def _move_to_many(self) -> None:
        assert self._few is not None
        few, self._few, self._spread = self._few, None, [{} for _ in range(_DICTS)]
        self._put_in_many(few, few.values())

    def _move_to_table(self) -> None:
        dicts = self._spread if self._few is None else [self._few]
        assert dicts is not None
        self._hashes = mmap.mmap(-1, self._buckets * _BUCKET_BYTES)
        self._offset_memory = mmap.mmap(-1, self._buckets * _BUCKET_SLOTS * _OFFSET_BYTES)
        self._offsets = memoryview(self._offset_memory).cast("q")
        self._used = bytearray(self._buckets)
        self._few, self._spread, self._count = None, None, 0
        while dicts:
            some = dicts.pop()
            self._put_in_table(list(some), list(some.values()))

    def _put_in_table(self, keys: Iterable[bytes], values: Sequence[int]) -> int:
        hashes, offsets, used, buckets = self._hashes, self._offsets, self._used, self._buckets
        assert hashes is not None
        copy, from_bytes = self._hash.copy, int.from_bytes
        room = self.keys_max - self._count
        taken = len(values)
        for number, key in enumerate(keys):
            hashing = copy()
            hashing.update(key)
            digest = hashing.digest()
            bucket = from_bytes(digest[:8], "little") % buckets
            while True:
                start, count = bucket * _BUCKET_BYTES, used[bucket]
                end = start + count * _HASH_BYTES
                found = hashes.find(digest, start, end)
                while found >= 0 and (found - start) % _HASH_BYTES:
                    found = hashes.find(digest, found + 1, end)
                if found >= 0 or count < _BUCKET_SLOTS:
                    break
                bucket = (bucket + 1) % buckets
            if found < 0:
                if not room:
                    taken = number
                    break
                room -= 1
                found = end
                hashes[end : end + _HASH_BYTES] = digest
                used[bucket] = count + 1
            offsets[found // _HASH_BYTES] = values[number]
        self._count = self.keys_max - room
        return taken

    def _get_from_table(self, keys: Iterable[bytes | None]) -> list[int]:
        hashes, offsets, used, buckets = self._hashes, self._offsets, self._used, self._buckets
        assert hashes is not None
        copy, from_bytes = self._hash.copy, int.from_bytes
        values: list[int] = []
        add = values.append
        for key in keys:
            if key is None:
                add(NOT_FOUND)
                continue
            hashing = copy()
            hashing.update(key)
            digest = hashing.digest()
            bucket = from_bytes(digest[:8], "little") % buckets
            while True:
                start, count = bucket * _BUCKET_BYTES, used[bucket]
                end = start + count * _HASH_BYTES
                found = hashes.find(digest, start, end)
                while found >= 0 and (found - start) % _HASH_BYTES:
                    found = hashes.find(digest, found + 1, end)
                if found >= 0 or count < _BUCKET_SLOTS:
                    break
                bucket = (bucket + 1) % buckets
            add(NOT_FOUND if found < 0 else offsets[found // _HASH_BYTES])
        return values


def _entry_bytes(keys: Sequence[bytes]) -> float:
    """Return what each of these takes in a dict."""
    return _DICT_ENTRY_BYTES + sum(map(len, keys)) / len(keys)
