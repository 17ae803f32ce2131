"""An immutable map with cheap modified copies, however large it is.

The entries are spread over small dicts by the hash of their keys. A modified copy shares all of
them except the few that hold a changed key: with thousands of topics, creating one costs a few
microseconds. The number of dicts grows so that they stay short.

Iteration is by ascending key. So the order is the same in every process, whatever the hashes of
strings are there; it is computed once for a map and then kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload

SHARD_ENTRIES_MEAN_MAX = 32
_GROWTH = 4


class Orderable(Protocol):
    """What a key must be, besides hashable."""

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Orderable)
V = TypeVar("V")
D = TypeVar("D")


class PersistentMap(Mapping[K, V]):
    """An immutable map; see the module."""

    __slots__ = ("_keys", "_shards", "_size")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        content = dict(entries)
        count = 1
        while len(content) > count * SHARD_ENTRIES_MEAN_MAX:
            count *= _GROWTH
        self._shards = _spread(content, count)
        self._size = len(content)
        self._keys: tuple[K, ...] | None = None

    def __getitem__(self, key: K) -> V:
        shards = self._shards
        return shards[hash(key) & len(shards) - 1][key]

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """Return the value of a key, or the default."""
        shards = self._shards
        return shards[hash(key) & len(shards) - 1].get(key, default)

    def __contains__(self, key: object) -> bool:
        shards = self._shards
        return key in shards[hash(key) & len(shards) - 1]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        if self._keys is None:
            self._keys = tuple(sorted(key for shard in self._shards for key in shard))
        return iter(self._keys)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    def changed(self, put: Mapping[K, V], remove: Collection[K] = ()) -> PersistentMap[K, V]:
        """Return a map without the removed keys and with the new entries.

        Removing a missing key is fine, and a key in both is put.
        """
        if not put and not remove:
            return self
        shards = list(self._shards)
        mask = len(shards) - 1
        own: set[int] = set()

        def shard_for(key: K) -> dict[K, V]:
            index = hash(key) & mask
            if index not in own:
                own.add(index)
                shards[index] = shards[index].copy()
            return shards[index]

        size = self._size
        for key in remove:
            if key in self:
                del shard_for(key)[key]
                size -= 1
        for key, value in put.items():
            shard = shard_for(key)
            size += key not in shard
            shard[key] = value
        return _from_shards(shards, size)


def _spread(content: Mapping[K, V], count: int) -> list[dict[K, V]]:
    shards: list[dict[K, V]] = [{} for _ in range(count)]
    for key, value in content.items():
        shards[hash(key) & count - 1][key] = value
    return shards


def _from_shards(shards: list[dict[K, V]], size: int) -> PersistentMap[K, V]:
    if size > len(shards) * SHARD_ENTRIES_MEAN_MAX:
        entries = ((key, value) for shard in shards for key, value in shard.items())
        return PersistentMap(entries)
    result: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
    result._shards = shards
    result._size = size
    result._keys = None
    return result
