"""The assignment protocols that members of a classic group offer, and those that all of them know.

A member may offer very many. What it offers is put in order ahead of its command, in steps
(:func:`offer_of`); the group then works with whole sets of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dohle.core.steps import PlainSteps, finish


@dataclass(frozen=True, slots=True)
class Offer:
    """The protocols of a member: their names in its order of preference, and what goes with each.

    Very many are two tuples, not objects of their own: these would take long to be freed.
    """

    order: tuple[str, ...]
    data: tuple[bytes, ...]
    names: frozenset[str] = field(compare=False, repr=False)

    @property
    def protocols(self) -> Iterator[tuple[str, bytes]]:
        """The protocols by name and metadata for the leader."""
        return zip(self.order, self.data, strict=True)

    def metadata(self, name: str) -> bytes | None:
        """Return the metadata of a protocol; of two with the same name, the first counts."""
        return self.data[self.order.index(name)] if name in self.names else None


def offer_of(protocols: Iterable[tuple[str, bytes]]) -> PlainSteps[Offer]:
    """Return an offer of protocols, given by name and metadata."""
    order, data = [], []
    for name, metadata in protocols:
        order.append(name)
        data.append(metadata)
        yield
    offer = Offer(tuple(order), tuple(data), frozenset(order))
    yield
    return offer


def offer_at_once(protocols: Iterable[tuple[str, bytes]]) -> Offer:
    """Return an offer of few protocols."""
    return finish(offer_of(protocols))


class SharedProtocols:
    """The names that are in every member's offer.

    Most members offer the same names, so the sets of names are counted, not the names.
    """

    __slots__ = ("_counts", "_shared")

    def __init__(self) -> None:
        self._counts: Counter[frozenset[str]] = Counter()
        self._shared: frozenset[str] | None = None

    def add(self, names: frozenset[str]) -> None:
        """Take in a member's names."""
        self._counts[names] += 1
        if self._shared is not None:
            self._shared &= names

    def remove(self, names: frozenset[str]) -> None:
        """Take out a member's names."""
        self._counts[names] -= 1
        if not self._counts[names]:
            del self._counts[names]
            self._shared = None

    @property
    def names(self) -> frozenset[str]:
        """The names that all members know; there must be a member."""
        if self._shared is None:
            fewest, *others = sorted(self._counts, key=len)
            self._shared = fewest.intersection(*others)
        return self._shared
