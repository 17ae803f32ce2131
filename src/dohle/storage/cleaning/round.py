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

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from dohle.storage.cleaning.cleaned_segment import remove_cleaned
from dohle.storage.cleaning.planning import (
    NO_PRODUCERS,
    SegmentGroup,
    last_records,
    plan_groups,
    sources_of,
)
from dohle.storage.cleaning.reading import ClosedSegment, StopFlag
from dohle.storage.cleaning.round_values import CleanerSettings, CleaningAborted, Statistics
from dohle.storage.cleaning.round_work import Mapped, Rewritten, RoundSpec, RoundWork, Work
from dohle.storage.cleaning.selection import Cleanable
from dohle.storage.cleaning.swap import SegmentSwap
from dohle.storage.files import FileSystem
from dohle.storage.log import Log
from dohle.storage.segment.segment import LogSegment

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
        #: Where its jobs work, wherever the log is now.
        self.directory = log.directory
        self._generation = log.files.generation
        context = log.files.context
        self._work: Work = (settings.new_work or RoundWork)(
            context.fs, context.clock, settings.throttle, context.disk.look_soon
        )
        self._holds_map = False
        self._groups: deque[SegmentGroup] = deque()
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
        self._work.stop()
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
        spec = RoundSpec(
            self.directory,
            log.config,
            (),
            first,
            below,
            position,
            first_dirty,
            end,
            NO_PRODUCERS,
            self._now_ms,
            self._settings.dedupe_buffer_bytes,
            self._settings.load_factor,
            self._settings.io_buffer_bytes,
            log.files.context.rng.randbytes(_SECRET_BYTES),
        )
        job = _Map(log, self._work, spec, segments)
        self._completion = lambda: self._mapped(job)
        return Job(job.run)

    def _mapped(self, job: _Map) -> None:
        assert job.mapped is not None
        self._mapping = ()
        self._holds_map = True
        self.statistics.add(job.mapped.statistics)
        self.end_offset = job.mapped.end_offset
        self._groups = deque(job.groups)
        self._next = self._rewrite

    # A group

    def _rewrite(self) -> Job | None:
        if not self._groups:
            return self._free()
        log, group = self._log, self._groups.popleft()
        self._swap = swap = SegmentSwap(log, group.segments)
        if not swap.is_possible:
            raise CleaningAborted("segments that were to be cleaned are gone")
        job = _Rewrite(log.fs, self.directory, self._work, group.sources, self._stop)
        self._completion = lambda: self._rewritten(job)
        return Job(job.run)

    def _free(self) -> Job | None:
        """Give the memory of the map back in the thread, then end."""
        if not self._holds_map:
            return None
        self._holds_map = False
        self._completion = lambda: None
        return Job(self._work.clear)

    def _rewritten(self, job: _Rewrite) -> None:
        assert job.rewritten is not None
        self.statistics.add(job.rewritten.statistics)
        if not job.rewritten.base_offsets:
            self._swap = None
            return
        assert self._swap is not None
        self._swap.base_offsets = job.rewritten.base_offsets
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
        work: Work,
        spec: RoundSpec,
        segments: Sequence[LogSegment],
    ) -> None:
        """Take what is known already, and all segments."""
        self._fs = log.fs
        self._state = log.producer_state
        self._work = work
        self._spec = spec
        self._segments, self._log_end_offset = segments, log.log_end_offset
        self.mapped: Mapped | None = None
        self.groups: list[SegmentGroup] = []

    def run(self) -> None:
        fs, spec = self._fs, self._spec
        remove_cleaned(fs, spec.directory)
        sources = sources_of(self._segments, self._log_end_offset)
        # Who appends later does so behind what is cleaned: as they are now is good enough.
        producers = last_records(self._state.producers)
        self.mapped = self._work.build_map(
            spec._replace(sources=tuple(sources), producers=producers)
        )
        self.groups = plan_groups(
            fs,
            self._segments[: spec.below],
            sources,
            self.mapped.end_offset,
            spec.first_uncleanable_offset,
            spec.config,
        )


class _Rewrite:
    """The job that rewrites a group, and what came of it."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        work: Work,
        sources: Sequence[ClosedSegment],
        stop: StopFlag,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._work = work
        self._sources = sources
        self._stop = stop
        self.rewritten: Rewritten | None = None

    def run(self) -> None:
        try:
            self.rewritten = self._work.rewrite(self._sources)
            if self._stop.is_set:
                raise CleaningAborted("it was stopped")
        except Exception:
            remove_cleaned(self._fs, self._directory)
            raise
        if not self.rewritten.base_offsets:
            remove_cleaned(self._fs, self._directory)
