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
      if nothing changes, the group is left alone. If the recovery point is not behind the group,
      flush the log up to there;
   b. if the group is still part of the log: rename the new files to ``.swap``; sync the folder;
   c. the same again: readers see the new segment, the old files become ``.deleted``; sync the
      folder; then the new files get their names (``swap``).

What a crash leaves is completed or undone by ``directory.loader``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from dohle.core.errors import KafkaError
from dohle.storage.cleaning.cleaned_segment import CleanedSegment, remove_cleaned
from dohle.storage.cleaning.grouping import SegmentSize, group_segments
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.mapping import MapBuilder
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
from dohle.storage.flush import FlushJob
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

    ``cleaner-offset-checkpoint`` names the partition before the first job is run: see ADR 4.
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
        self._groups: list[tuple[LogSegment, ...]] = []
        # What the map is built from.
        self._mapping: tuple[LogSegment, ...] = ()
        self._swap: SegmentSwap | None = None
        self._is_over = False
        #: Whether the disk has failed in something that cannot be left for another round.
        self.has_failed = False
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
        self._is_over = job is None
        return job

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
        self._stop.is_set = self._is_over = True
        swap, self._swap = self._swap, None
        if swap is not None:
            try:
                swap.give_up()
            except OSError:
                self.has_failed = True
                raise

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
        segments = [s for s in log.segments.from_offset(first_dirty) if s.base_offset < end]
        self._mapping = tuple(segments)
        position = 0
        if segments:
            # Below the first dirty offset there may be nothing left of its segment.
            found = segments[0].reader.find(first_dirty)
            position = segments[0].size if found is None else found.position
        keys = KeyMap(
            self._settings.dedupe_buffer_bytes,
            self._settings.load_factor,
            log.files.context.rng.randbytes(_SECRET_BYTES),
        )
        sources, indexes = self._sources(segments), self._txn_indexes(first_dirty)
        closed = [
            (s.base_offset, s.size, s.indexes.offset.path, s.indexes.time.path)
            for s in log.segments
            if s.base_offset < end
        ]
        fs, directory, pace = log.fs, log.directory, self._pace
        builders: list[MapBuilder] = []
        sizes: dict[int, SegmentSize] = {}

        def work() -> None:
            remove_cleaned(fs, directory)
            aborted = AbortedTransactions(fs, indexes)
            builder = MapBuilder(keys, aborted, first_dirty, pace)
            builder.build(fs, sources, position)
            builders.append(builder)
            for base_offset, size, index_path, time_index_path in closed:
                if base_offset < builder.end_offset:
                    sizes[base_offset] = SegmentSize(
                        base_offset, size, _size_of(fs, index_path), _size_of(fs, time_index_path)
                    )

        self._completion = lambda: self._mapped(builders[0], keys, sizes)
        return Job(work)

    def _mapped(self, builder: MapBuilder, keys: KeyMap, sizes: Mapping[int, SegmentSize]) -> None:
        log, cleanable = self._log, self._cleanable
        self._mapping = ()
        self.statistics.add(builder.statistics)
        self.end_offset = builder.end_offset
        clean = [s for s in log.segments if s.base_offset < cleanable.first_dirty_offset]
        legacy_horizon = 0
        if clean:
            legacy_horizon = clean[-1].log_file.mtime_ms - log.config.delete_retention_ms
        self._rules = Rules(
            keys,
            cleanable.first_dirty_offset,
            self.end_offset - 1,
            self._now_ms,
            log.config.delete_retention_ms,
            cleanable.first_uncleanable_offset,
            legacy_horizon,
        )
        covered = [s for s in log.segments if s.base_offset in sizes]
        config, at = log.config, 0
        for count in group_segments(
            [sizes[s.base_offset] for s in covered],
            cleanable.first_uncleanable_offset,
            config.segment_bytes,
            config.segment_index_bytes,
        ):
            self._groups.append(tuple(covered[at : at + count]))
            at += count
        self._next = self._rewrite

    def _sources(self, segments: Sequence[LogSegment]) -> list[Source]:
        ends = {}
        *_, active = following = list(self._log.segments)
        for segment, behind in pairwise(following):
            ends[segment.base_offset] = behind.base_offset
        ends[active.base_offset] = self._log.log_end_offset
        return [
            Source(s.base_offset, ends[s.base_offset], s.path, s.size, s.indexes.txn.path)
            for s in segments
        ]

    def _txn_indexes(self, offset: int) -> list[tuple[int, str]]:
        return [(s.base_offset, s.indexes.txn.path) for s in self._log.segments.from_offset(offset)]

    # A group

    def _rewrite(self) -> Job | None:
        if not self._groups:
            return None
        log, rules, group = self._log, self._rules, self._groups.pop(0)
        assert rules is not None
        self._swap = swap = SegmentSwap(log, group)
        if not swap.is_possible:
            raise CleaningAborted("segments that were to be cleaned are gone")
        work = _Rewrite(
            log,
            self._sources(group),
            self._txn_indexes(group[0].base_offset),
            rules,
            self._tracker,
            log.producer_state.captured(),
            self._pace,
            self._stop,
        )
        self._completion = lambda: self._rewritten(work, group)
        return Job(work.run)

    def _rewritten(self, work: _Rewrite, group: Sequence[LogSegment]) -> None:
        self.statistics.add(work.statistics)
        if not work.has_changed:
            self._swap = None
            return
        end_offset = work.end_offset
        if self._log.recovery_point < end_offset:
            self._next = lambda: self._flush(end_offset)
        else:
            self._offer()

    def _flush(self, end_offset: int) -> Job:
        """Let the recovery point pass the group, so that a start does not take it for unflushed."""
        flush = self._log.prepare_flush(end_offset)
        self._completion = lambda: self._flushed(flush)

        def work() -> None:
            if flush is not None:
                try:
                    flush.run()
                except OSError:
                    # The next sync could succeed without what this one was to write.
                    self.has_failed = True
                    raise

        return Job(work)

    def _flushed(self, flush: FlushJob | None) -> None:
        if flush is not None:
            self._log.complete_flush(flush)
        self._offer()

    def _offer(self) -> None:
        assert self._swap is not None
        self._swap.offer()
        self._next = lambda: self._sync(self._take_place)

    def _sync(self, then: Callable[[], None]) -> Job:
        fs, directory = self._log.fs, self.directory
        self._completion = then
        return Job(lambda: fs.sync_dir(directory))

    def _take_place(self) -> None:
        assert self._swap is not None
        self._swap.take_place()
        self._next = lambda: self._sync(self._finish)

    def _finish(self) -> None:
        assert self._swap is not None
        self._swap.finish()
        self._swap = None
        self._next = self._rewrite


def _size_of(fs: FileSystem, path: str) -> int:
    try:
        return fs.stat(path).size
    except FileNotFoundError:
        # Retention has taken its segment meanwhile, or it is made anew when it is needed.
        return 0


class _Rewrite:
    """The job that rewrites a group, and what came of it."""

    def __init__(
        self,
        log: Log,
        sources: Sequence[Source],
        txn_indexes: Sequence[tuple[int, str]],
        rules: Rules,
        tracker: TransactionTracker,
        producers: Mapping[int, ProducerEntry],
        pace: Pace,
        stop: StopFlag,
    ) -> None:
        self._context, self._config = log.files.context, log.config
        self._directory = log.directory
        self._sources = sources
        self._txn_indexes = txn_indexes
        self._rules = rules
        self._tracker = tracker
        self._producers = producers
        self._pace = pace
        self._stop = stop
        self.end_offset = sources[-1].end_offset
        self.statistics = Statistics()
        #: Whether there are new files, or all is to stay as it is.
        self.has_changed = False

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
        aborted = AbortedTransactions(fs, self._txn_indexes)
        kept: list[AbortedTransaction] = []
        self._tracker.kept_entries = kept
        rewriter = Rewriter(self._rules, self._tracker, aborted, self._producers, self._pace)
        segment = CleanedSegment(self._context, self._directory, sources, self._config, self._pace)
        rewriter.rewrite(fs, sources, segment)
        before = aborted.of_segments(sources[0].base_offset, sources[-1].end_offset)
        self.has_changed = segment.finish(kept, same_aborted=kept == before)
        self.statistics = rewriter.statistics
        if self.has_changed:
            self.statistics.segments_written = 1
            self.statistics.bytes_written = segment.bytes_written
