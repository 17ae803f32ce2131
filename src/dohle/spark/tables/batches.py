"""Adds one micro-batch to a table, once, however often it is tried.

A batch is identified by its query's id (which lives as long as the checkpoint) and its number.
Executors write its files to a folder of this attempt alone; then the driver adds the files to the
table and records the batch, in one step that the table's format makes atomic. A recorded batch is
never written again; an attempt that is too late changes nothing.
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
    """The outcome of a batch."""

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
    """One attempt at a batch: its folder in the table, the rows in the table's form, the task."""

    name: str
    rows: DataFrame
    task: FileTask


class Table(Protocol):
    """A table that accepts each batch once."""

    def prepare(self, schema: types.StructType) -> None:
        """Create the table if it is missing; refuse rows that do not fit it."""

    def has(self, batch: BatchId) -> bool:
        """Tell whether the batch, or a later one, has been added."""

    def begin(self, batch: BatchId, rows: DataFrame) -> Attempt:
        """Return where and how the files of a new attempt are written."""

    def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
        """Add the files and record the batch in one step; False if another attempt was first."""


def write_batch(table: Table, rows: DataFrame, batch: BatchId) -> Outcome:
    """Add the rows of a batch to the table, unless that has happened before."""
    if table.has(batch):
        _log.info("batch %d of query %s is already in the table", batch.number, batch.query_id)
        return Outcome.ALREADY_THERE
    attempt = table.begin(batch, rows)
    files = write_files(attempt.rows, attempt.task)
    if not files:
        return Outcome.EMPTY
    try:
        if table.commit(batch, attempt, files):
            return Outcome.WRITTEN
    except Exception as error:
        # The other attempt may have deleted our files, or a catalog's response was lost: all that
        # counts is whether the batch is in the table.
        if not table.has(batch):
            raise
        _log.info(
            "batch %d of query %s is in the table, although committing it failed: %s",
            batch.number,
            batch.query_id,
            error,
        )
    _log.warning(
        "batch %d of query %s was added by another attempt; this one changed nothing. Check that"
        " the query does not run twice.",
        batch.number,
        batch.query_id,
    )
    return Outcome.ALREADY_THERE
