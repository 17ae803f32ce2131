"""``writeStream.format("dohle")`` and ``write.format("dohle")``.

Spark builds a writer in one process, sends it to the tasks, and builds another one where it
commits: tasks can report only through their messages.

- A stream is written exactly once, by the steps of :mod:`dohle.spark.sink.commit`.
- A batch write has no checkpoint to come back to: its tasks leave their transactions open, and the
  driver commits them when all have written. If it fails before, no row becomes visible; if it dies
  while it commits, some rows may be visible.
- ``at-least-once`` writes idempotently and without transactions.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from dohle.client import Cluster, PreparedTransaction, Producer
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.errors import KafkaError
from dohle.core.ids import TransactionalId
from dohle.spark import worker_loop
from dohle.spark.options import Options
from dohle.spark.sink.cluster import BrokerSinkCluster
from dohle.spark.sink.commit import (
    Place,
    SinkCluster,
    TaskId,
    abort_batch,
    all_at_once,
    begin_task,
    check_open,
    choose_id,
    commit_batch,
    confirm_task,
    end_quietly,
)
from dohle.spark.sink.options import Delivery, SinkOptions, parse_sink_options
from dohle.spark.sink.protocol import Batch, TaskResult
from dohle.spark.sink.schema import Columns, find_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dohle.spark.sink.tasks import RowWriter

_log = logging.getLogger("dohle.spark.sink")

#: What Spark tells tasks of a stream; the run's id is the name of its job group.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"


def stream_writer(options: Options, schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer of a streaming query."""
    parsed = parse_sink_options(options)
    return StreamWriter(parsed, find_columns(schema, parsed.topic))


def batch_writer(options: Options, schema: StructType) -> DataSourceArrowWriter:
    """Return the writer of a batch query."""
    parsed = parse_sink_options(options)
    return BatchWriter(parsed, find_columns(schema, parsed.topic), uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):
    """A task's message without a transaction for the driver, or that of a batch write."""

    rows: int
    transaction: PreparedTransaction | None = None


@dataclass(frozen=True, slots=True)
class RowsPrepared(WriterCommitMessage):
    """A task's message in a stream with exactly-once delivery."""

    rows: int
    result: TaskResult


_clusters: dict[SinkOptions, BrokerSinkCluster] = {}


def open_cluster(options: SinkOptions) -> BrokerSinkCluster:
    """Return this process's view of the brokers."""
    cluster = worker_loop.cluster(options.bootstrap, options.client)
    found = _clusters.get(options)
    if found is None or found.cluster is not cluster:
        found = _clusters[options] = BrokerSinkCluster(
            cluster,
            topic=options.commits_topic,
            prefix=options.transactional_id_prefix,
            timeout_ms=options.producer.max_block_ms,
        )
    return found


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self.options = options
        self.columns = columns

    # Replaceable by tests

    def cluster(self) -> SinkCluster:
        """Return the interface to the brokers for the steps of a batch."""
        return open_cluster(self.options)

    def prepare(self, writer: RowWriter) -> PreparedTransaction | None:
        """Write a task's rows."""
        return writer.prepare()

    # Called by Spark

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        if self.options.delivery is Delivery.AT_LEAST_ONCE:
            return _write_at_least_once(self.options, self.columns, iterator)
        batch, place = _whereabouts()
        cluster = self.cluster()
        standing = worker_loop.run(begin_task(cluster, batch, place))
        if standing is None:
            for _ in iterator:
                pass  # a worker whose rows are not read to the end is not used again
            return RowsPrepared(0, TaskResult(batch, place.task, None, is_skipped=True))
        opening = _Opening(
            self.options,
            lambda: choose_id(cluster, standing, batch, place),
            lambda: confirm_task(cluster, batch),
            may_wait_for_ever=True,
        )
        writer = _row_writer(opening.cluster.cluster, self.options, self.columns, opening.open)
        with _leaving_nothing(writer):
            writer.write(iterator)
            transaction = self.prepare(writer)
        result = TaskResult(
            batch,
            place.task,
            transaction,
            is_two_phase=opening.is_two_phase,
            claim=opening.claim,
        )
        return RowsPrepared(writer.rows, result)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit the rows of all tasks, once."""
        results = _results(messages)
        if results:
            _tell_of_timeouts(results)
            fail = self.options.fail_on_data_loss
            worker_loop.run(commit_batch(self.cluster(), results, fail_on_data_loss=fail))

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Discard the rows, unless it is decided that they are written."""
        results = _results(messages)
        if results:
            worker_loop.run(abort_batch(self.cluster(), results))


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: SinkOptions, columns: Columns, write_id: str) -> None:
        self.options = options
        self.columns = columns
        #: An id that becomes known to its coordinator when the write is over.
        self._over = TransactionalId(f"{options.transactional_id_prefix}/write/{write_id}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        if self.options.delivery is Delivery.AT_LEAST_ONCE:
            return _write_at_least_once(self.options, self.columns, iterator)
        place = _place(_context())
        name = TransactionalId(f"{self._over}/{place.task}/{place.task_attempt_id}")
        cluster = open_cluster(self.options)

        async def only_this() -> TaskId:
            return TaskId(name)

        # Nobody would come back to a transaction without a timeout.
        opening = _Opening(
            self.options, only_this, lambda: self._confirm(cluster), may_wait_for_ever=False
        )
        writer = _row_writer(opening.cluster.cluster, self.options, self.columns, opening.open)
        with _leaving_nothing(writer):
            writer.write(iterator)
            transaction = writer.prepare()
        return RowsWritten(writer.rows, transaction)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks have written."""
        transactions = _transactions(messages)
        if transactions:
            worker_loop.run(self._commit(open_cluster(self.options), transactions))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what the tasks have written."""
        if self.options.delivery is Delivery.EXACTLY_ONCE:
            worker_loop.run(self._abort(open_cluster(self.options), _transactions(messages)))

    async def _confirm(self, cluster: BrokerSinkCluster) -> None:
        """Raise if the write is over; called when the task's producer has its identity."""
        if await cluster.describe([self._over]):
            raise RuntimeError("the write was over when this attempt of a task began")

    async def _commit(
        self, cluster: BrokerSinkCluster, transactions: Sequence[PreparedTransaction]
    ) -> None:
        await check_open(cluster, transactions)
        await all_at_once(partial(cluster.end, commit=True), transactions)
        await self._shut_out_others(cluster)

    async def _abort(
        self, cluster: BrokerSinkCluster, transactions: Sequence[PreparedTransaction]
    ) -> None:
        await self._shut_out_others(cluster)
        await all_at_once(partial(end_quietly, cluster, commit=False), transactions)

    async def _shut_out_others(self, cluster: BrokerSinkCluster) -> None:
        """Abort what other attempts have left open, and let none start.

        An attempt that has its identity now is fenced; one that gets it later finds the write over.
        """
        await cluster.fence([self._over])
        found = await cluster.states(f"{self._over}/")
        await cluster.fence([TransactionalId(each) for each in found])


class _Opening:
    """Opens a task's producer when its first row comes."""

    def __init__(
        self,
        options: SinkOptions,
        choose: Callable[[], Awaitable[TaskId]],
        confirm: Callable[[], Awaitable[None]],
        *,
        may_wait_for_ever: bool,
    ) -> None:
        self.is_two_phase = False
        self.claim: ProducerIdentity | None = None
        self.cluster = open_cluster(options)
        self._options = options
        self._choose = choose
        self._confirm = confirm
        self._may_wait_for_ever = may_wait_for_ever

    async def open(self) -> Producer:
        """Open it, and record whether its transaction has no timeout."""
        chosen = await self._choose()
        self.claim = chosen.claim
        producer, self.is_two_phase = await self.cluster.open_producer(
            chosen.transactional_id,
            self._options.producer,
            self._options.transaction_timeout_ms,
            may_wait_for_ever=self._may_wait_for_ever,
        )
        try:
            await self._confirm()
        except BaseException:
            await producer.close(flush=False)
            raise
        return producer


def _row_writer(
    cluster: Cluster,
    options: SinkOptions,
    columns: Columns,
    open_producer: Callable[[], Awaitable[Producer]],
) -> RowWriter:
    # Importing Arrow and numpy would double the start-up time of processes that plan or commit.
    from dohle.spark.sink.tasks import RowWriter

    return RowWriter(cluster, options, columns, open_producer)


@contextmanager
def _leaving_nothing(writer: RowWriter) -> Iterator[None]:
    """Abort what was sent if something fails, and close the producer in any case."""
    try:
        yield
    except BaseException:
        # The failure itself is to be raised; the later clean-up aborts as well.
        with suppress(KafkaError, TimeoutError):
            writer.abort()
        raise
    finally:
        writer.close()
    worker_loop.task_done("write")


def _write_at_least_once(
    options: SinkOptions, columns: Columns, iterator: Iterator[pa.RecordBatch]
) -> RowsWritten:
    cluster = worker_loop.cluster(options.bootstrap, options.client)

    async def open_producer() -> Producer:
        return Producer(cluster, options.producer)

    writer = _row_writer(cluster, options, columns, open_producer)
    with _leaving_nothing(writer):
        writer.write(iterator)
        writer.flush()
    return RowsWritten(writer.rows)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are written by a task of Spark's, and this is none")
    return context


def _place(context: TaskContext) -> Place:
    return Place(context.partitionId(), context.attemptNumber(), context.taskAttemptId())


def _whereabouts() -> tuple[Batch, Place]:
    """Return which batch of which query this task writes."""
    context = _context()
    query_id, run_id, batch_id = (
        context.getLocalProperty(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)
    )
    if query_id is None or run_id is None or batch_id is None:
        raise RuntimeError(
            f"Spark does not tell which batch this is ({_QUERY_ID} {query_id}, {_RUN_ID} {run_id}, "
            f"{_BATCH_ID} {batch_id}): without that nothing can be written exactly once. Write "
            'with option("delivery", "at-least-once")'
        )
    return Batch(query_id, run_id, int(batch_id)), _place(context)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Return the reports of tasks; failed ones have none."""
    return [each.result for each in messages if isinstance(each, RowsPrepared)]


def _transactions(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTransaction]:
    return [
        each.transaction
        for each in messages
        if isinstance(each, RowsWritten) and each.transaction is not None
    ]


_told_of_timeouts = False


def _tell_of_timeouts(results: Sequence[TaskResult]) -> None:
    """Warn once that a decided batch can be lost if the driver is away for too long."""
    global _told_of_timeouts
    if _told_of_timeouts or all(each.is_two_phase or not each.transaction for each in results):
        return
    _told_of_timeouts = True
    _log.warning(
        "the brokers do not support transactions without a timeout: a decided batch is lost if "
        "it is not committed within transaction.max.timeout.ms. Set "
        "transaction.two.phase.commit.enable=true on the brokers to avoid that"
    )
