"""``format("faulty")``: the sink, with somebody killed when a step of the protocol is reached.

Its option ``faults`` names a folder. A file there with the name of a step says who is to be killed
by whoever gets there first: ``self``, ``broker`` or the id of a process. The broker is killed by
the test, which is asked to by another file.

Spark's workers do not find this module by its name: it is sent to them (:func:`register`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dohle.client import PreparedTransaction
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.ids import TransactionalId
from dohle.spark.sink.commit import LedgerHold, SinkCluster
from dohle.spark.sink.options import SinkOptions, parse_sink_options
from dohle.spark.sink.protocol import Standing
from dohle.spark.sink.schema import Columns, find_columns
from dohle.spark.sink.sink import StreamWriter
from dohle.spark.sink.tasks import RowWriter
from pyspark_dohle import DefaultSource

TASK_STEPS = ("task-begins", "before-flush", "after-flush")
DRIVER_STEPS = (
    "before-take-over",
    "after-take-over",
    "before-decision",
    "after-decision",
    "before-commit",
    "after-first-commit",
    "after-last-commit",
)
SELF, BROKER = "self", "broker"
#: What the test looks for: the broker is to be killed.
KILL_BROKER = "kill-broker"
_BROKER_DEADLINE_S = 60


class Faults:
    """Who is to be killed where."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def reach(self, step: str) -> None:
        """Kill who is to be killed here, once."""
        plan, taken = self._folder / step, self._folder / f"{step}.taken"
        try:
            plan.rename(taken)
        except FileNotFoundError:
            return
        victim = taken.read_text()
        if victim == SELF:
            os.kill(os.getpid(), signal.SIGKILL)
        if victim != BROKER:
            os.kill(int(victim), signal.SIGKILL)
            return
        wanted = self._folder / KILL_BROKER
        wanted.touch()
        deadline = time.monotonic() + _BROKER_DEADLINE_S
        while wanted.exists() and time.monotonic() < deadline:
            time.sleep(0.01)


class FaultySource(DefaultSource):
    """The data source, with a sink that has faults."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if name != "faults"}
        parsed = parse_sink_options(options)
        columns = find_columns(schema, parsed.topic)
        return FaultyWriter(parsed, columns, Faults(self.options["faults"]))


class FaultyWriter(StreamWriter):
    """Writes as the sink does, and dies where it is told to."""

    def __init__(self, options: SinkOptions, columns: Columns, faults: Faults) -> None:
        super().__init__(options, columns)
        self._faults = faults

    def cluster(self) -> SinkCluster:
        return FaultyCluster(super().cluster(), self._faults)

    def prepare(self, writer: RowWriter) -> PreparedTransaction | None:
        self._faults.reach("before-flush")
        prepared = super().prepare(writer)
        self._faults.reach("after-flush")
        return prepared


class FaultyCluster:
    """The brokers, with steps before and after what is asked of them."""

    def __init__(self, cluster: SinkCluster, faults: Faults) -> None:
        self.prefix = cluster.prefix
        self._cluster = cluster
        self._faults = faults
        self._commits = 0

    async def peek(self, query_id: str) -> Standing | None:
        return await self._cluster.peek(query_id)

    @asynccontextmanager
    async def hold(self, query_id: str) -> AsyncIterator[LedgerHold]:
        async with self._cluster.hold(query_id) as held:
            yield FaultyHold(held, self._faults)
            if self._commits:
                self._faults.reach("after-last-commit")

    async def claim(self, transactional_id: TransactionalId) -> ProducerIdentity:
        self._faults.reach("task-begins")
        return await self._cluster.claim(transactional_id)

    async def describe(
        self, ids: Collection[TransactionalId]
    ) -> Mapping[str, tuple[str, ProducerIdentity]]:
        return await self._cluster.describe(ids)

    async def states(self, begin: str) -> Mapping[str, str]:
        return await self._cluster.states(begin)

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        if commit:
            self._faults.reach("before-commit")
        await self._cluster.end(transaction, commit=commit)
        if commit:
            self._commits += 1
            self._faults.reach("after-first-commit")

    async def fence(self, ids: Collection[TransactionalId]) -> None:
        await self._cluster.fence(ids)


class FaultyHold:
    """The ledger, with steps before and after it is written."""

    def __init__(self, hold: LedgerHold, faults: Faults) -> None:
        self.standing = hold.standing
        self._hold = hold
        self._faults = faults

    async def write(self, standing: Standing) -> None:
        before = self._hold.standing
        is_same = before is not None and before.decision == standing.decision
        what = "take-over" if before is None or is_same else "decision"
        self._faults.reach(f"before-{what}")
        await self._hold.write(standing)
        self._faults.reach(f"after-{what}")


def register(spark: SparkSession) -> None:
    """Let a session know the format."""
    import tests.spark.sink.faulty_sink as module

    by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    by_value(module)
    spark.dataSource.register(FaultySource)
