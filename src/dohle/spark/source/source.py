"""Reading topics with Spark: the batch and the stream reader of ``format("dohle")``.

The readers plan, in the process beside Spark's driver, and are pickled to the workers, which read:
so they hold nothing but the options, and what they need to plan is created on first use. All
offsets of a plan come from brokers; all decisions about them are in
:mod:`dohle.spark.source.offsets` and :mod:`dohle.spark.source.splits`.
"""

# ruff: noqa: N802 - the names of methods are Spark's.
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark
from pyspark.sql.streaming import datasource as limits

from dohle.client import Cluster, Since
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.spark import worker_loop
from dohle.spark.group_progress import GroupProgress
from dohle.spark.source.data_loss import report_losses
from dohle.spark.source.fetching import read_range
from dohle.spark.source.filters import Wanted
from dohle.spark.source.lookup import (
    Found,
    earliest_offsets,
    find_partitions,
    latest_offsets,
    resolve_places,
    try_again,
)
from dohle.spark.source.offsets import (
    INITIAL,
    Known,
    LogView,
    Positions,
    StreamOffset,
    batch_ranges,
    go_on_from,
    limit_offsets,
    missed_by,
    offsets_between,
    parse_offset,
    plan_end,
)
from dohle.spark.source.options import Places, SourceOptions
from dohle.spark.source.splits import OffsetRange, split_ranges

if TYPE_CHECKING:
    import pyarrow as pa

#: How long the known partitions of a subscription are used, unless metadata.max.age.ms is less: new
#: ones are found after it.
_DISCOVERY_S_MAX = 1.0


class _PushFilters:
    """``pushFilters`` of a reader, for sessions with pushdown and for those without.

    Spark refuses a reader with a method of this name if ``spark.sql.python.filterPushdown.enabled``
    is false, as it is by default: it checks whether the function behind the method is the inherited
    one. Here it is, so that reading works everywhere, and filters reduce reading where they are
    pushed down.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.__func__ = spark.DataSourceReader.pushFilters
        self._wanted = wanted

    def __call__(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        return [each for each in filters if not self._wanted.take(each)]


class BatchReader(spark.DataSourceReader):
    """Reads from one position to another, once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = Wanted()
        self.pushFilters = _PushFilters(self._wanted)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[spark.InputPartition]:
        """Find out where to start and to end, and split that into tasks."""
        cluster = worker_loop.cluster(self._options.bootstrap, self._options.client)
        work = worker_loop.run(try_again(self._options, lambda: self._plan(cluster)))
        return [spark.InputPartition(each) for each in work]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        return _read(partition, self._options)

    async def _plan(self, cluster: Cluster) -> list[OffsetRange]:
        options, wanted = self._options, self._wanted
        found = await find_partitions(cluster, options.subscription)
        found.check_complete()
        partitions = found.partitions
        starts, ends, latest = await asyncio.gather(
            resolve_places(
                cluster,
                options.starting,
                partitions,
                options,
                latest_if_none_so_late=options.latest_if_none_so_late,
            ),
            resolve_places(
                cluster, options.ending, partitions, options, latest_if_none_so_late=True
            ),
            latest_offsets(cluster, partitions, options.isolation_level),
        )
        report_losses(
            (*options.starting.behind(latest), *options.ending.behind(latest)),
            fail=options.fail_on_data_loss,
        )
        left = tuple(partition for partition in partitions if wanted.has(partition))
        since = await self._since(cluster, left)
        ranges = {
            partition: wanted.narrowed(
                max(starts[partition], since.get(partition, 0)),
                min(ends[partition], latest[partition]),
            )
            for partition in left
        }
        return split_ranges(
            ranges,
            found.topic_ids,
            partitions_min=options.partitions_min,
            records_max=options.records_per_partition_max,
        )

    async def _since(
        self, cluster: Cluster, partitions: tuple[TopicPartition, ...]
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets that a filter on time leaves."""
        if self._wanted.timestamp_ms_min is None:
            return {}
        places = Places("filter on timestamp", Since(self._wanted.timestamp_ms_min))
        return await resolve_places(
            cluster, places, partitions, self._options, latest_if_none_so_late=True
        )


class StreamReader(spark.DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """Reads batch after batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: StreamPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return an empty offset: see :mod:`dohle.spark.source.offsets`."""
        return INITIAL

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        """Return how much a batch may contain."""
        if self._options.offsets_per_trigger_max is not None:
            return limits.ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return limits.ReadMinRows(self._options.offsets_per_trigger_min)
        return limits.ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: limits.ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends. What comes before ``start`` has been processed."""
        return worker_loop.run(self._plans().next_end(parse_offset(start), limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where partitions ended when last checked."""
        return self._plans().report()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit reading to what is there now."""
        worker_loop.run(self._plans().fix_target())

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        """Split a batch into tasks."""
        stop = parse_offset(end)
        if stop is None:
            return []
        work = split_ranges(
            batch_ranges(parse_offset(start), stop),
            stop.topic_ids,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        return [spark.InputPartition(each) for each in work]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of one task."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the progress that Spark has recorded was already made visible."""
        worker_loop.run(self._plans().commit(parse_offset(end)))

    def _plans(self) -> StreamPlanner:
        if self._planner is None:
            cluster = worker_loop.cluster(self._options.bootstrap, self._options.client)
            self._planner = StreamPlanner(cluster, self._options)
        return self._planner


class StreamPlanner:
    """The state of a running stream reader; its coroutines run on the worker's loop.

    Spark asks for the end of the next batch only when the previous one is complete, its results
    written and its number recorded. So the offset that it passes as the start has been processed:
    that is when progress is committed to the group, also after the last batch of a query that ends
    when everything is read, for which Spark makes no separate call.
    """

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._progress = (
            GroupProgress(cluster, options.group_id) if options.group_id is not None else None
        )
        self._found: Found | None = None
        self._found_at = float("-inf")
        #: The end of a query that stops when everything there was is read.
        self._target: LogView | None = None
        self._seen: LogView | None = None
        self._last_batch_at = float("-inf")

    async def next_end(self, start: StreamOffset | None, limit: limits.ReadLimit) -> dict[str, Any]:
        """Plan the next batch."""
        end: dict[str, Any]
        end, _ = await asyncio.gather(self._plan(start, limit), self.commit(start))
        return end

    async def commit(self, done: StreamOffset | None) -> None:
        """Make it visible that everything up to here has been processed."""
        if self._progress is not None and done is not None:
            await self._progress.commit(done.positions)

    async def fix_target(self) -> None:
        """Remember what there is now as all that is to be read."""
        self._target = await try_again(self._options, self._look)

    def report(self) -> dict[str, Any] | None:
        """Return where partitions ended when last checked."""
        if self._seen is None:
            return None
        return StreamOffset(self._seen.latest, topic_ids=self._seen.topic_ids).to_json()

    async def _plan(self, start: StreamOffset | None, limit: limits.ReadLimit) -> dict[str, Any]:
        options = self._options
        view = self._target
        if view is None:
            view = await try_again(options, self._look)
        if start is None:
            known = Known({}, tuple(sorted(view.latest)), ())
            first = await self._first(view)
        else:
            view, known = await self._known(start, view)
            first = await earliest_offsets(self._cluster, known.new)
            report_losses((*known.losses, *missed_by(known, first)), fail=options.fail_on_data_loss)
        begins = {**known.positions, **first}
        ranges = {
            partition: (begins[partition], max(begins[partition], end))
            for partition, end in view.latest.items()
        }
        if not isinstance(limit, limits.ReadAllAvailable):
            ranges = await self._without_lost(ranges)
        ends = self._limited(ranges, limit)
        return plan_end(start, known, first, ends, view)

    async def _known(self, start: StreamOffset, view: LogView) -> tuple[LogView, Known]:
        """Find out where to continue; a log that seems truncated is checked again a few times.

        Its leader may be a new one that does not know yet how far its predecessor was.
        """
        known = go_on_from(start, view)
        for _ in range(self._options.offset_lookup_retries):
            if not known.is_cut:
                break
            await asyncio.sleep(self._options.offset_lookup_retry_interval_ms / 1000)
            view = await try_again(self._options, self._look)
            known = go_on_from(start, view)
            if self._target is not None:
                self._target = view
        return view, known

    async def _first(self, view: LogView) -> Positions:
        """Find where the stream starts: this is the first batch."""
        options = self._options
        if self._found is not None:
            self._found.check_complete()
        report_losses(options.starting.behind(view.latest), fail=options.fail_on_data_loss)
        first = await resolve_places(
            self._cluster,
            options.starting,
            tuple(sorted(view.latest)),
            options,
            latest_if_none_so_late=options.latest_if_none_so_late,
        )
        if options.starting.each is None:
            return first
        return {partition: min(at, view.latest[partition]) for partition, at in first.items()}

    async def _without_lost(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Start at the current log start, if that is later: limits count what can be read.

        The task that misses the lost records reports them.
        """
        some = [partition for partition, (begin, end) in ranges.items() if begin < end]
        earliest = await earliest_offsets(self._cluster, some)
        return {
            partition: (min(max(begin, earliest.get(partition, begin)), end), end)
            for partition, (begin, end) in ranges.items()
        }

    def _limited(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], limit: limits.ReadLimit
    ) -> Positions:
        everything = {partition: end for partition, (_, end) in ranges.items()}
        if isinstance(limit, limits.ReadAllAvailable):
            return everything
        options = self._options
        fewest = options.offsets_per_trigger_min
        if fewest is not None and self._target is None:
            now = time.monotonic()
            waited_ms = (now - self._last_batch_at) * 1000
            if offsets_between(ranges) < fewest and waited_ms < options.trigger_delay_ms_max:
                return {}
            self._last_batch_at = now
        if isinstance(limit, limits.ReadMaxRows):
            return limit_offsets(ranges, limit.max_rows)
        return everything

    async def _look(self) -> LogView:
        """Ask which partitions there are and where they end."""
        try:
            self._seen = await self._ends()
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._found_at = float(
                "a topic may have been deleted since"
            )  # a topic may be gone since it was found
            self._seen = await self._ends()
        return self._seen

    async def _ends(self) -> LogView:
        now = time.monotonic()
        age_s_max = min(_DISCOVERY_S_MAX, self._options.client.metadata_max_age_ms / 1000)
        if self._found is None or now - self._found_at >= age_s_max:
            # A topic that was missing before is not waited for again.
            is_missing = self._found is not None and bool(self._found.missing)
            self._found = await find_partitions(
                self._cluster, self._options.subscription, wait_for_missing=not is_missing
            )
            self._found_at = now
        found = self._found
        level = self._options.isolation_level
        latest = await latest_offsets(self._cluster, found.partitions, level)
        return LogView(latest, found.topic_ids)


def _read(partition: spark.InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    # If there is nothing to read, Spark creates its own task, without a value.
    if isinstance(partition.value, OffsetRange):
        yield from read_range(partition.value, options)
        worker_loop.task_done("read")
