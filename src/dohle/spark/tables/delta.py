"""A Delta table, written without Delta's jars: the package ``deltalake`` keeps its log.

The batch is recorded as a transaction (query id, batch number), which Delta's log has for this
purpose: a number that the query has passed is skipped here, and of two concurrent attempts the log
itself refuses one. Files have only the number of rows as statistics: readers that find minimum and
maximum of some columns but not of others have been seen to skip files that they should read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types

from dohle.spark.tables.attempts import attempt_name, sweep, sync_attempt
from dohle.spark.tables.batches import Attempt, BatchId
from dohle.spark.tables.columns import (
    TableError,
    arrow_schema,
    check_partitioning,
    check_same_columns,
)
from dohle.spark.tables.data_files import DataFile, FileTask
from dohle.spark.tables.scans import scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction, RemoveAction
    from pyarrow.dataset import ParquetFileFragment

#: Properties of a table that ask more of a writer than to add files.
_REFUSED_PROPERTIES = ("delta.constraints.", "delta.columnMapping.mode")


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A table at a location. ``storage_options`` go to deltalake, for stores that need them."""

    location: str
    partition_by: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, schema: types.StructType) -> None:
        """Create the table, or compare its columns and its partitioning."""
        from deltalake import DeltaTable as Log

        check_partitioning(schema, self.partition_by)
        columns = arrow_schema(schema)
        log = Log.create(
            self.location,
            columns,
            mode="ignore",
            partition_by=list(self.partition_by),
            storage_options=dict(self.storage_options),
        )
        check_same_columns(pa.schema(log.schema().to_arrow()), columns, self.location)
        metadata = log.metadata()
        if tuple(metadata.partition_columns) != self.partition_by:
            raise TableError(
                f"the table {self.location} is partitioned by {metadata.partition_columns}, not "
                f"by {list(self.partition_by)}"
            )
        for name in metadata.configuration:
            if name.startswith(_REFUSED_PROPERTIES):
                raise TableError(
                    f"the table {self.location} has {name}, which this writer does not support"
                )

    def has(self, batch: BatchId) -> bool:
        """Tell whether the log has the batch's transaction, or a later one of the query."""
        return _noted(self._log(), batch)

    def begin(self, batch: BatchId, rows: DataFrame) -> Attempt:
        """Write into a folder of this attempt below the table."""
        schema = arrow_schema(rows.schema)
        kept = pa.schema([field for field in schema if field.name not in self.partition_by])
        name = attempt_name(batch)
        return Attempt(name, rows, FileTask(f"{self.location}/{name}", kept, self.partition_by))

    def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
        """Add the files in the transaction that records the batch."""
        from deltalake import CommitProperties, Transaction

        log = self._log()
        if _noted(log, batch):
            return False
        sync_attempt(attempt.task.folder)
        noted = CommitProperties(app_transactions=[Transaction(batch.query_id, batch.number)])
        # If another attempt commits the same transaction after this check, the commit fails.
        log.create_write_transaction(
            self._additions(attempt.name, files),
            "append",
            log.schema(),
            partition_by=list(self.partition_by),
            commit_properties=noted,
        )
        sweep(attempt.task.folder, [file.name for file in files])
        return True

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows, read by the executors file by file."""
        found = self._log().to_pyarrow_dataset()
        pieces = list(found.get_fragments())
        return scan(spark, pieces, found.schema, _Fragments(found.schema))

    def _additions(self, folder: str, files: list[DataFile]) -> list[AddAction | RemoveAction]:
        from deltalake.transaction import AddAction

        now_ms = int(time.time() * 1000)
        return [
            AddAction(
                path=f"{folder}/{file.name}",
                size=file.size_bytes,
                partition_values=dict(zip(self.partition_by, file.partition, strict=True)),
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]

    def _log(self) -> Log:
        from deltalake import DeltaTable as Log
        from deltalake.exceptions import TableNotFoundError

        try:
            return Log(self.location, storage_options=dict(self.storage_options))
        except TableNotFoundError:
            raise TableError(f"there is no Delta table at {self.location}") from None


@dataclass(frozen=True, slots=True)
class _Fragments:
    """Reads one file of a table; the log has the values of its partition columns."""

    schema: pa.Schema

    def __call__(self, piece: ParquetFileFragment) -> Iterator[pa.RecordBatch]:
        yield from piece.to_batches(schema=self.schema)


def _noted(log: Log, batch: BatchId) -> bool:
    version = log.transaction_version(batch.query_id)
    return version is not None and version >= batch.number
