"""The last offset of each key of the dirty part of a log, within a limit of memory.

Few keys are kept as they are, in a ``dict``: nothing is faster, but each takes more than a hundred
bytes. When they have taken an eighth of the memory, all move to a table of 24 bytes a slot, the
other seven eighths: a hash of 16 bytes and an offset of 8. The hash is keyed with a secret of the
process and never reaches the disk, so that nobody can make two keys that would be taken for one:
the loser's last record would be dropped. (Kafka uses MD5 for this.)

The table consists of buckets of 32 slots that fill up from the front. A bucket's hashes are in one
piece of memory, in which ``bytes.find`` finds one as fast as Python can compare two. What does not
fit into its bucket is in the next one that has room, so a bucket with room ends the search.
"""

from __future__ import annotations

from array import array
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

NOT_FOUND = -1


class KeyMap:
    """Keys with their last offsets."""

    def __init__(self, bytes_max: int, load_factor: float, secret: bytes) -> None:
        """Use no more than so many bytes, and that part of the table, so that it stays fast."""
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
        self._few: dict[bytes, int] | None = {}
        self._few_bytes = 0
        self._count = 0
        # More slots than keys, so that there is a bucket with room.
        self._buckets = self._slots // _BUCKET_SLOTS + 1
        self._hashes = bytearray()
        self._offsets = array("q")
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
        if self._few is not None:
            return self._few_bytes
        return len(self._hashes) + _OFFSET_BYTES * len(self._offsets) + len(self._used)

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Note that keys have a record at these offsets, which rise.

        Returns how many were taken: all, or those before the first new key for which there is no
        room.
        """
        few = self._few
        if few is None:
            return self._put_in_table(keys, offsets)
        if self._count + len(keys) > self.keys_max:
            self._move_to_table(few)
            return self._put_in_table(keys, offsets)
        before = len(few)
        few.update(zip(keys, offsets, strict=True))
        self._count = len(few)
        if self._count > before:
            # New ones are at the end; which of the keys they are does not matter that much.
            added = self._count - before
            mean = sum(map(len, keys)) / len(keys)
            self._few_bytes += int(added * (_DICT_ENTRY_BYTES + mean))
            if self._few_bytes > self._dict_bytes_max:
                self._move_to_table(few)
        return len(keys)

    def get_all(self, keys: Sequence[bytes | None]) -> list[int]:
        """Return the last offsets of keys, NOT_FOUND for those that are not there."""
        if self._few is not None:
            # None may be asked for, and is not there.
            few = cast("dict[bytes | None, int]", self._few)
            return list(map(few.get, keys, repeat(NOT_FOUND)))
        return self._get_from_table(keys)

    def _move_to_table(self, few: dict[bytes, int]) -> None:
        self._hashes = bytearray(self._buckets * _BUCKET_BYTES)
        self._offsets = array("q", (0,)) * (self._buckets * _BUCKET_SLOTS)
        self._used = bytearray(self._buckets)
        self._few, self._count = None, 0
        self._put_in_table(list(few), list(few.values()))
        few.clear()

    def _put_in_table(self, keys: Iterable[bytes], values: Sequence[int]) -> int:
        hashes, offsets, used, buckets = self._hashes, self._offsets, self._used, self._buckets
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
