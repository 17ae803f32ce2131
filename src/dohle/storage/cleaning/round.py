"""One round of cleaning of one log, as jobs for another thread.

The driver's loop is::

    round = CleaningRound(log, cleanable, settings, now_ms)
    while (job := round.next_job()) is not None:
        job.run()             # in any thread; may take long, and never raises
        round.complete(job)   # on the log's thread, as all else here; takes no time to speak of

``complete`` raises what went wrong: CleaningAborted, Uncleanable, or an ``OSError`` of the disk.
Then the round is over, has removed its files, and there is no new checkpoint: groups of segments
that were swapped before stay swapped, because cleaning them again changes nothing.
When ``next_job`` returns None, ``end_offset`` is the new first dirty offset.

Between any two steps, and while a job runs, the log may be appended to, read, rolled, flushed,
truncated, shortened by retention, moved or deleted. Only one round of a log may be under way, with
its last job ended.

1. Map: the keys of the dirty part, each with its last offset. The map may fill up: then the round
   ends there, and the rest stays dirty.
2. Groups of neighbouring segments (``grouping``), from the log's first on, one after the other:
   a. rewrite the group's records that stay to one new segment, ``<base>.*.cleaned``, and sync it;
      if nothing changes, the group is left alone;
   b. if the group is still part of the log: rename the new files to ``.swap``; sync the folder;
   c. the same again: readers see the new segment, the old files become ``.deleted``; sync the
      folder; then the new files get their names (``swap``).

What a crash leaves is completed or undone by ``directory.loader``.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from dohle.core.errors import KafkaError
from dohle.storage.cleaning.cleaned_segment import CleanedSegment, remove_cleaned
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.mapping import MapBuilder
from dohle.storage.cleaning.planning import Group, plan_groups, sources_of
from dohle.storage.cleaning.reading import AbortedTransactions, Pace, Source, StopFlag
from dohle.storage.cleaning.rewriting import Rewriter, Rules
from dohle.storage.cleaning.round_values import (
    CleanerSettings,
    CleaningAborted,
    Statistics,
    Uncleanable,
)
from dohle.storage.cleaning.selection import Cleanable
from dohle.storage.cleaning.swap import SegmentSwap
from dohle.storage.cleaning.transactions import TransactionTracker
from dohle.storage.files import FileSystem
from dohle.storage.log import Log
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.segment.index import CorruptIndex
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.transaction_index import AbortedTransaction

logger = logging.getLogger("dohle.storage")

_SECRET_BYTES = 32


class Job:
    """A part of a round that may block: it uses nothing that changes but files."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        #: What went wrong. It is judged by ``CleaningRound.complete``: if the log has changed
        #: meanwhile, a file that is gone or cut is no wonder.
        self.error: Exception | None = None

    def run(self) -> None:
        """Do it, in any thread. ``complete`` tells whether it went well."""
        try:
            self._work()
        except (KafkaError, CorruptIndex) as error:
            self.error = Uncleanable(str(error))
        except Exception as error:
            self.error = error


class CleaningRound:
    """A round that may be given up at any time.

    Before the first job is run, ``cleaner-offset-checkpoint`` names the partition, and all that may
    be cleaned is below the recovery point on the disk: see ADR 4.
    """

    def __init__(
        self, log: Log, cleanable: Cleanable, settings: CleanerSettings, now_ms: int
    ) -> None:
        self.statistics = Statistics()
        #: Valid when ``next_job`` has returned None: the new first dirty offset.
        self.end_offset = cleanable.first_dirty_offset
        self._log = log
        self._cleanable = cleanable
        self._settings = settings
        self._now_ms = now_ms
        self._stop = StopFlag()
        self._pace = Pace(settings, self._stop)
        self._tracker = TransactionTracker()
        #: Where its jobs work, wherever the log is now.
        self.directory = log.directory
        self._generation = log.files.generation
        self._rules: Rules | None = None
        self._groups: deque[Group] = deque()
        self._aborted: AbortedTransactions | None = None
        self._producers: Mapping[int, ProducerEntry] = {}
        # What the map is built from.
        self._mapping: tuple[LogSegment, ...] = ()
        self._swap: SegmentSwap | None = None
        self._is_over = False
        #: Whether the disk has failed in something that cannot be left for another round.
        self.has_failed = False
        log.cleaning = self
        self._next: Callable[[], Job | None] = self._map
        self._completion: Callable[[], None] = lambda: None

    def next_job(self) -> Job | None:
        """Return what to do next; None if the round is over.

        Raises as ``complete`` does.
        """
        if self._is_over:
            return None
        try:
            self._ensure_unchanged()
            job = self._next()
        except BaseException:
            self.abort()
            raise
        if job is None:
            self._end()
        return job

    def _end(self) -> None:
        self._is_over = True
        if self._log.cleaning is self:
            self._log.cleaning = None

    def complete(self, job: Job) -> None:
        """Take in that a job has ended."""
        try:
            if self._stop.is_set:
                raise CleaningAborted("it was stopped")
            self._ensure_unchanged()
            if job.error is not None:
                raise job.error
            self._completion()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """End the round; a job that runs notices within about one I/O buffer.

        Its ``complete`` raises CleaningAborted then, and need not be called.
        """
        self._stop.is_set = True
        self._end()
        swap, self._swap = self._swap, None
        if swap is not None:
            try:
                swap.give_up()
            except OSError:
                self.has_failed = True
                raise

    def before_removal(self, gone: Sequence[LogSegment]) -> None:
        """Make sure that segments which are about to be removed do not come back after a crash."""
        if self._swap is not None:
            self._swap.before_removal(gone)

    def _ensure_unchanged(self) -> None:
        log = self._log
        if self._generation != log.files.generation or self.directory != log.directory:
            raise CleaningAborted("the log was truncated or moved")
        if not set(log.segments).issuperset(self._mapping) or (
            self._swap is not None and not self._swap.is_possible
        ):
            raise CleaningAborted("segments that were being cleaned are gone")

    # The map

    def _map(self) -> Job | None:
        log, cleanable = self._log, self._cleanable
        first_dirty, end = cleanable.first_dirty_offset, cleanable.first_uncleanable_offset
        segments = tuple(log.segments)
        below = bisect_left(log.segments.base_offsets, end)
        first = max(bisect_right(log.segments.base_offsets, first_dirty) - 1, 0)
        self._mapping = segments[first:below]
        position = 0
        if self._mapping:
            # Below the first dirty offset there may be nothing left of its segment.
            found = self._mapping[0].reader.find(first_dirty)
            position = self._mapping[0].size if found is None else found.position
        keys = KeyMap(
            self._settings.dedupe_buffer_bytes,
            self._settings.load_factor,
            log.files.context.rng.randbytes(_SECRET_BYTES),
            records_max=end - first_dirty,
        )
        work = _Map(log, segments, below, first, position, cleanable, keys, self._pace)
        self._completion = lambda: self._mapped(work, keys)
        return Job(work.run)

    def _mapped(self, work: _Map, keys: KeyMap) -> None:
        log, cleanable = self._log, self._cleanable
        self._mapping = ()
        self.statistics.add(work.statistics)
        self.end_offset = work.end_offset
        self._rules = Rules(
            keys,
            cleanable.first_dirty_offset,
            self.end_offset - 1,
            self._now_ms,
            log.config.delete_retention_ms,
            cleanable.first_uncleanable_offset,
            work.legacy_horizon_ms,
        )
        self._aborted, self._producers = work.aborted, work.producers
        self._groups = deque(work.groups)
        self._next = self._rewrite

    # A group

    def _rewrite(self) -> Job | None:
        if not self._groups:
            return self._free()
        log, rules, group = self._log, self._rules, self._groups.popleft()
        assert rules is not None
        assert self._aborted is not None
        self._swap = swap = SegmentSwap(log, group.segments)
        if not swap.is_possible:
            raise CleaningAborted("segments that were to be cleaned are gone")
        rewriter = Rewriter(rules, self._tracker, self._aborted, self._producers, self._pace)
        work = _Rewrite(log, group.sources, self._aborted, rewriter, self._tracker, self._pace)
        self._completion = lambda: self._rewritten(work)
        return Job(work.run)

    def _free(self) -> Job | None:
        """Give the memory of the map back in the thread, then end."""
        rules, self._rules = self._rules, None
        if rules is None:
            return None
        self._completion = lambda: None
        return Job(rules.keys.clear)

    def _rewritten(self, work: _Rewrite) -> None:
        self.statistics.add(work.statistics)
        if not work.has_changed:
            self._swap = None
            return
        assert self._swap is not None
        self._swap.base_offsets = work.base_offsets
        self._swap.offer()
        self._next = lambda: self._sync(self._take_place)

    def _sync(self, then: Callable[[], None]) -> Job:
        fs, directory = self._log.fs, self.directory
        self._completion = then
        return Job(lambda: fs.sync_dir(directory))

    def _take_place(self) -> None:
        assert self._swap is not None
        self._swap.take_place()
        self._next = self._delete_some

    def _delete_some(self) -> Job:
        """Delete a few of the old segments between two others' turns, then sync."""
        assert self._swap is not None
        if not self._swap.delete_some():
            return self._sync(self._finish)
        self._completion = lambda: None
        return Job(lambda: None)

    def _finish(self) -> None:
        assert self._swap is not None
        self._swap.finish()
        self._swap = None
        self._next = self._rewrite


class _Map:
    """The job that builds the map and looks at the log, and what came of it."""

    def __init__(
        self,
        log: Log,
        segments: Sequence[LogSegment],
        below: int,
        first: int,
        position: int,
        cleanable: Cleanable,
        keys: KeyMap,
        pace: Pace,
    ) -> None:
        """Take all segments, and which of them are cleaned and mapped."""
        self._fs, self._config = log.fs, log.config
        self._directory = log.directory
        self._state = log.producer_state
        self._segments, self._log_end_offset = segments, log.log_end_offset
        self._below, self._first, self._position = below, first, position
        self._cleanable = cleanable
        self._keys = keys
        self._pace = pace
        self.end_offset = cleanable.first_dirty_offset
        self.statistics = Statistics()
        self.groups: list[Group] = []
        self.aborted: AbortedTransactions | None = None
        self.producers: Mapping[int, ProducerEntry] = {}
        self.legacy_horizon_ms = 0

    def run(self) -> None:
        fs, first_dirty = self._fs, self._cleanable.first_dirty_offset
        remove_cleaned(fs, self._directory)
        # Who appends later does so behind what is cleaned: as they are now is good enough.
        self.producers = self._state.captured()
        sources = sources_of(self._segments, self._log_end_offset)
        self.aborted = AbortedTransactions(fs, [(s.base_offset, s.txn_index_path) for s in sources])
        builder = MapBuilder(self._keys, self.aborted, first_dirty, self._pace)
        builder.build(fs, sources[self._first : self._below], self._position)
        self.end_offset, self.statistics = builder.end_offset, builder.statistics
        self.groups = plan_groups(
            fs,
            self._segments[: self._below],
            sources,
            self.end_offset,
            self._cleanable.first_uncleanable_offset,
            self._config,
        )
        clean = bisect_left([source.base_offset for source in sources], first_dirty)
        if clean:
            mtime_ms = fs.stat(sources[clean - 1].path).mtime_ms
            self.legacy_horizon_ms = mtime_ms - self._config.delete_retention_ms


class _Rewrite:
    """The job that rewrites a group, and what came of it."""

    def __init__(
        self,
        log: Log,
        sources: Sequence[Source],
        aborted: AbortedTransactions,
        rewriter: Rewriter,
        tracker: TransactionTracker,
        pace: Pace,
    ) -> None:
        self._context, self._config = log.files.context, log.config
        self._directory = log.directory
        self._sources = sources
        self._aborted = aborted
        self._rewriter = rewriter
        self._tracker = tracker
        self._pace = pace
        self.statistics = Statistics()
        #: Whether there are new files, or all is to stay as it is.
        self.has_changed = False
        #: Where the new segments begin.
        self.base_offsets: tuple[int, ...] = ()

    def run(self) -> None:
        fs: FileSystem = self._context.fs
        try:
            self._run(fs)
            self._pace.done(0)
        except Exception:
            self.has_changed = False
            remove_cleaned(fs, self._directory)
            raise
        if not self.has_changed:
            remove_cleaned(fs, self._directory)

    def _run(self, fs: FileSystem) -> None:
        sources = self._sources
        kept: list[AbortedTransaction] = []
        self._tracker.kept_entries = kept
        segment = CleanedSegment(self._context, self._directory, sources, self._config, self._pace)
        self._rewriter.rewrite(fs, sources, segment)
        before = self._aborted.of_segments(sources[0].base_offset, sources[-1].end_offset)
        self.has_changed = segment.finish(kept, same_aborted=kept == before)
        self.statistics = self._rewriter.statistics
        if self.has_changed:
            self.base_offsets = segment.base_offsets
            self.statistics.segments_written = len(self.base_offsets)
            self.statistics.bytes_written = segment.bytes_written
