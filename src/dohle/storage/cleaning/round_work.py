"""The computing of a round: reading records, mapping keys, writing ``.cleaned`` files.

It knows the log by values and paths alone, and tells what came of it by values, so that it can be
done anywhere: in the job that asks for it, or in another process (``Work``). What lives as long as
the round, above all the map of keys, stays where the work is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from dohle.core.errors import KafkaError
from dohle.core.seams import Clock
from dohle.storage.cleaning.cleaned_segment import CleanedSegment
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.mapping import MapBuilder
from dohle.storage.cleaning.planning import LastRecords
from dohle.storage.cleaning.reading import CleaningPace, ClosedSegment, StopFlag, TransactionIndexes
from dohle.storage.cleaning.rewriting import Rewriter, RewritingRules
from dohle.storage.cleaning.round_values import Statistics, Uncleanable
from dohle.storage.cleaning.transactions import TransactionTracker
from dohle.storage.config import LogConfig
from dohle.storage.files import FileSystem
from dohle.storage.segment.index import CorruptIndex
from dohle.storage.segment.transaction_index import AbortedTransaction


class RoundSpec(NamedTuple):
    """What a round is about."""

    directory: str
    config: LogConfig
    #: All segments of the log; from the first to below the last of these the keys are mapped, in
    #: the first of them from a position on.
    sources: tuple[ClosedSegment, ...]
    first: int
    below: int
    position: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    producers: LastRecords
    now_ms: int
    #: As in ``CleanerSettings``.
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    #: What keys are hashed with.
    secret: bytes


class Mapped(NamedTuple):
    """What came of building the map."""

    #: Below it all is in the map: the new first dirty offset.
    end_offset: int
    statistics: Statistics


class Rewritten(NamedTuple):
    """What came of rewriting a group."""

    #: Where the new segments begin; none if all is to stay as it is.
    base_offsets: tuple[int, ...]
    statistics: Statistics


class Work(Protocol):
    """The computing of one round, wherever it is done. All but ``stop`` may take long.

    It raises Uncleanable, CleaningAborted, or an ``OSError``; then the round is over. The files it
    leaves then are removed by the caller.
    """

    def build_map(self, spec: RoundSpec) -> Mapped:
        """Begin the round."""

    def rewrite(self, sources: Sequence[ClosedSegment]) -> Rewritten:
        """Write what stays of a group of segments, and sync it."""

    def clear(self) -> None:
        """End the round: give its memory back."""

    def stop(self) -> None:
        """Let what is done end soon, within about one I/O buffer; called on another thread."""


class RoundWork:
    """Does it here."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        throttle: Callable[[int], None],
        on_written: Callable[[int, int], None],
        *,
        is_alone: bool = False,
    ) -> None:
        """``on_written`` is called before bytes are written, with their number and what is free.

        ``is_alone`` says that no other thread of this process has anything to do.
        """
        self._fs = fs
        self._clock = clock
        self._is_alone = is_alone
        self._throttle = throttle
        self._on_written = on_written
        self._stop = StopFlag()
        self._tracker = TransactionTracker()

    def build_map(self, spec: RoundSpec) -> Mapped:
        """Begin the round."""
        with _told_as_uncleanable():
            return self._build_map(spec)

    def _build_map(self, spec: RoundSpec) -> Mapped:
        fs, first_dirty, sources = self._fs, spec.first_dirty_offset, spec.sources
        self._spec = spec
        self._last_record_of = spec.producers.by_producer()
        self._pace = CleaningPace(spec.io_buffer_bytes, self._throttle, self._stop)
        self._aborted = TransactionIndexes(fs, [(s.base_offset, s.txn_index_path) for s in sources])
        self._keys = KeyMap(
            spec.dedupe_buffer_bytes,
            spec.load_factor,
            spec.secret,
            records_max=spec.first_uncleanable_offset - first_dirty,
            may_hold_up=self._is_alone,
        )
        builder = MapBuilder(self._keys, self._aborted, first_dirty, self._pace)
        builder.build(fs, sources[spec.first : spec.below], spec.position)
        legacy_horizon_ms = 0
        if clean := bisect_left([source.base_offset for source in sources], first_dirty):
            mtime_ms = fs.stat(sources[clean - 1].path).mtime_ms
            legacy_horizon_ms = mtime_ms - spec.config.delete_retention_ms
        self._rules = RewritingRules(
            self._keys,
            first_dirty,
            builder.end_offset - 1,
            spec.now_ms,
            spec.config.delete_retention_ms,
            spec.first_uncleanable_offset,
            legacy_horizon_ms,
        )
        return Mapped(builder.end_offset, builder.statistics)

    def rewrite(self, sources: Sequence[ClosedSegment]) -> Rewritten:
        """Write what stays of a group of segments, and sync it."""
        with _told_as_uncleanable():
            return self._rewrite(sources)

    def _rewrite(self, sources: Sequence[ClosedSegment]) -> Rewritten:
        fs, spec = self._fs, self._spec
        kept: list[AbortedTransaction] = []
        self._tracker.kept_entries = kept
        segment = CleanedSegment(
            fs, self._clock, spec.directory, sources, spec.config, self._pace, self._on_written
        )
        rewriter = Rewriter(
            self._rules, self._tracker, self._aborted, self._last_record_of, self._pace
        )
        rewriter.rewrite(fs, sources, segment)
        before = self._aborted.of_segments(sources[0].base_offset, sources[-1].end_offset)
        statistics = rewriter.statistics
        if not segment.finish(kept, same_aborted=kept == before):
            return Rewritten((), statistics)
        statistics.segments_written = len(segment.base_offsets)
        statistics.bytes_written = segment.bytes_written
        return Rewritten(segment.base_offsets, statistics)

    def clear(self) -> None:
        """Give the memory of the map back."""
        self._keys.clear()

    def stop(self) -> None:
        """Let what is done end soon."""
        self._stop.is_set = True


@contextmanager
def _told_as_uncleanable() -> Iterator[None]:
    try:
        yield
    except (KafkaError, CorruptIndex) as error:
        raise Uncleanable(str(error)) from error
