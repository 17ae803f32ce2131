"""One micro-batch into a table, once, however often it is tried.

A batch is known by its query's id (which lives as long as the checkpoint) and its number. Executors
write its files into a folder of this attempt alone; then the driver adds the files to the table and
notes the batch, in one step that the table's format makes atomic. A batch that is noted is never
written again; an attempt that comes too late changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pyspark.sql import DataFrame, types

from dohle.spark.tables.data_files import DataFile, FileTask, write_files

_log = logging.getLogger("dohle.spark.tables")


class Outcome(Enum):
    """What became of a batch."""

    WRITTEN = "written"
    EMPTY = "empty"
    ALREADY_THERE = "already there"


@dataclass(frozen=True, slots=True)
class BatchId:
    """A micro-batch of a query."""

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a batch: its folder in the table, the rows as the table wants them, the task."""

    name: str
    rows: DataFrame
    task: FileTask


class Table(Protocol):
    """A table that takes each batch once."""

    def prepare(self, schema: types.StructType) -> None:
        """Create the table if it is missing; refuse rows that do not fit it."""

    def has(self, batch: BatchId) -> bool:
        """Tell whether the batch, or one behind it, has been added."""

    def begin(self, batch: BatchId, rows: DataFrame) -> Attempt:
        """Say where and how the files of a new attempt are written."""

    def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
        """Add the files and note the batch in one step; False if another attempt was first."""


def write_batch(table: Table, rows: DataFrame, batch: BatchId) -> Outcome:
    """Add the rows of a batch to the table, unless that has happened before."""
    if table.has(batch):
        _log.info("batch %d of query %s is in the table already", batch.number, batch.query_id)
        return Outcome.ALREADY_THERE
    attempt = table.begin(batch, rows)
    files = write_files(attempt.rows, attempt.task)
    if not files:
        return Outcome.EMPTY
    try:
        if table.commit(batch, attempt, files):
            return Outcome.WRITTEN
    except Exception as error:
        # The other attempt may have swept our files away under us, or a catalog have lost its
        # answer: whether the batch is in the table is all that counts.
        if not table.has(batch):
            raise
        _log.info("though batch %d is in the table: %s", batch.number, error)
    _log.warning("batch %d of query %s was added meanwhile", batch.number, batch.query_id)
    return Outcome.ALREADY_THERE
