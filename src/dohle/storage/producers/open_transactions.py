"""The transactions that hold a partition's last stable offset back.

A transaction is ongoing from its first batch to its marker, and then unreplicated until the high
watermark has passed the marker. Readers of committed records stop before the oldest of both kinds:
a marker that may still be lost decides nothing.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from dohle.core.ids import ProducerId
from dohle.storage.segment.transaction_index import AbortedTransaction


@dataclass(slots=True)
class TransactionChanges:
    """What an append does to transactions, in the order of its batches."""

    #: First offset to producer.
    started: dict[int, ProducerId] = field(default_factory=dict)
    #: First offset to marker.
    completed: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    #: Producers whose verification has ended.
    verified: list[ProducerId] = field(default_factory=list)


class OpenTransactions:
    """The ongoing and the unreplicated transactions of one partition."""

    __slots__ = (
        "ongoing",
        "unreplicated",
    )

    def __init__(self) -> None:
        #: First offset to producer, in the order of the offsets: the oldest comes first.
        self.ongoing: OrderedDict[int, ProducerId] = OrderedDict()
        #: First offset to marker, in the order of the markers.
        self.unreplicated: dict[int, int] = {}

    @property
    def has_unreplicated(self) -> bool:
        """Tell whether a marker is above the high watermark."""
        return bool(self.unreplicated)

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest ongoing transaction began."""
        return next(iter(self.ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is ongoing or unreplicated."""
        ongoing = next(iter(self.ongoing), None)
        if not self.unreplicated:
            return ongoing
        unreplicated = min(self.unreplicated)
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def last_stable_offset(self, marker_offset: int, changes: TransactionChanges) -> int:
        """Return the last stable offset after a marker and the changes appended with it.

        Changes are applied in the order of the batches, so a follower that gets many at once finds
        the same offset as its leader did.
        """
        for first_offset in itertools.chain(self.ongoing, changes.started):
            if first_offset not in changes.completed:
                return first_offset
        return marker_offset + 1

    def apply(self, changes: TransactionChanges) -> None:
        """Start and complete transactions."""
        self.ongoing.update(changes.started)
        for first_offset, marker_offset in changes.completed.items():
            self.ongoing.pop(first_offset, None)
            self.unreplicated[first_offset] = marker_offset

    def load(self, ongoing: Iterable[tuple[int, ProducerId]]) -> None:
        """Start anew with ongoing transactions: first offsets with their producers."""
        self.ongoing = OrderedDict(sorted(ongoing))
        self.unreplicated.clear()

    def markers_replicated_below(self, offset: int) -> None:
        """Forget the transactions whose markers are below an offset."""
        unreplicated = self.unreplicated
        while unreplicated:
            first_offset = next(iter(unreplicated))
            if unreplicated[first_offset] >= offset:
                break
            del unreplicated[first_offset]
