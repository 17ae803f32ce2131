"""An Iceberg table, written without Iceberg's jars: the package ``pyiceberg`` keeps its metadata.

The last batch of a query is recorded in a table property, which is set in the same commit that adds
the files (snapshots expire, properties stay); the snapshot's summary has the same for people. The
catalog accepts a commit only if nobody else has committed since the table was loaded and checked;
otherwise it is loaded and checked again. pyiceberg's own retry would add the files without that
check, so it is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as f

from dohle.spark.tables.attempts import attempt_name, sweep, sync_attempt
from dohle.spark.tables.batches import Attempt, BatchId
from dohle.spark.tables.columns import (
    TableError,
    arrow_schema,
    check_partitioning,
    check_same_columns,
    widened,
)
from dohle.spark.tables.data_files import DataFile, FileTask
from dohle.spark.tables.folders import as_uri
from dohle.spark.tables.scans import scan

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as Loaded

_COMMIT_ATTEMPTS_MAX = 20
_PROPERTY = "dohle.query."
_KEY = "__dohle_key_"
_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """``namespace.name`` in a catalog; ``catalog`` has pyiceberg's properties for that catalog."""

    identifier: str
    catalog: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    catalog_name: str = field(default="dohle")

    def prepare(self, schema: types.StructType) -> None:
        """Create the table in one commit, or compare its columns and its partitioning."""
        from pyiceberg.exceptions import NoSuchTableError

        check_partitioning(schema, self.partition_by)
        columns = widened(arrow_schema(schema))
        with closing(self._open()) as catalog:
            try:
                table = catalog.load_table(self.identifier)
            except NoSuchTableError:
                table = self._create(catalog, columns)
            check_same_columns(table.schema().as_arrow(), columns, self.identifier)
            _partition_keys(table)
            if self.partition_by and _divided_by(table) != self.partition_by:
                raise TableError(
                    f"the table {self.identifier} is partitioned by {list(_divided_by(table))}, "
                    f"not by {list(self.partition_by)}"
                )

    def has(self, batch: BatchId) -> bool:
        """Tell whether the table has the batch, or a later one of the query."""
        with closing(self._open()) as catalog:
            return _noted(self._load(catalog), batch)

    def begin(self, batch: BatchId, rows: DataFrame) -> Attempt:
        """Write into a folder of this attempt below the table, with one partition in each file."""
        with closing(self._open()) as catalog:
            table = self._load(catalog)
        schema = widened(arrow_schema(rows.schema))
        keys = {f"{_KEY}{i}": key for i, key in enumerate(_partition_keys(table))}
        name = attempt_name(batch)
        folder = f"{_folder(table)}/{name}"
        return Attempt(name, rows.withColumns(keys), FileTask(folder, schema, tuple(keys)))

    def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
        """Add the files and record the batch in one commit; check again after every conflict."""
        from pyiceberg.exceptions import CommitFailedException

        folder = attempt.task.folder
        sync_attempt(folder)
        with closing(self._open()) as catalog:
            for attempts_left in reversed(range(_COMMIT_ATTEMPTS_MAX)):
                table = self._load(catalog)
                if _noted(table, batch):
                    return False
                try:
                    _append(table, batch, attempt.name, files)
                    break
                except CommitFailedException:
                    if not attempts_left:
                        raise
        sweep(folder, [file.name for file in files])
        return True

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the current snapshot, read by the executors file by file."""
        with closing(self._open()) as catalog:
            table = self._load(catalog)
            pieces = list(table.scan().plan_files())
        schema = table.schema().as_arrow()
        return scan(spark, pieces, schema, _Pieces(table.metadata, table.io))

    def _open(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.catalog_name, **self.catalog)

    def _load(self, catalog: Catalog) -> Loaded:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return catalog.load_table(self.identifier)
        except NoSuchTableError:
            raise TableError(f"the catalog has no table {self.identifier}") from None

    def _create(self, catalog: Catalog, columns: pa.Schema) -> Loaded:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        namespace = self.identifier.rpartition(".")[0]
        if not namespace:
            raise TableError(f"{self.identifier!r} has no namespace: say namespace.table")
        catalog.create_namespace_if_not_exists(namespace)
        try:
            with (
                catalog.create_table_transaction(self.identifier, columns) as transaction,
                transaction.update_spec() as spec,
            ):
                for name in self.partition_by:
                    spec.add_identity(name)
        except (CommitFailedException, TableAlreadyExistsError):
            pass
        return catalog.load_table(self.identifier)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Reads one planned file with its deletes, in the table's current columns."""

    metadata: Any
    io: Any

    def __call__(self, piece: Any) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        reading = ArrowScan(self.metadata, self.io, self.metadata.schema(), AlwaysTrue())
        yield from reading.to_record_batches([piece])


def _noted(table: Loaded, batch: BatchId) -> bool:
    number = table.properties.get(f"{_PROPERTY}{batch.query_id}")
    return number is not None and int(number) >= batch.number


def _folder(table: Loaded) -> str:
    """Return the table's location as a URI; pyiceberg does not decode escapes in one."""
    location = table.location()
    return as_uri(location.removeprefix("file://")) if location.startswith("file:") else location


def _append(table: Loaded, batch: BatchId, folder: str, files: list[DataFile]) -> None:
    paths = [f"{table.location()}/{folder}/{file.name}" for file in files]
    # Set in this copy only: the table keeps its own setting.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    summary = {"dohle.query-id": batch.query_id, "dohle.batch-id": str(batch.number)}
    with table.transaction() as transaction:
        transaction.set_properties({f"{_PROPERTY}{batch.query_id}": str(batch.number)})
        transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)


def _divided_by(table: Loaded) -> tuple[str, ...]:
    names = (table.schema().find_column_name(part.source_id) for part in table.spec().fields)
    return tuple(str(name) for name in names)


def _partition_keys(table: Loaded) -> list[Column]:
    """Return columns that are equal exactly for rows of the same partition."""
    keys = []
    for part, name in zip(table.spec().fields, _divided_by(table), strict=True):
        column = f.col(f"`{name}`")
        key = _partition_key(
            str(part.transform), str(table.schema().find_type(part.source_id)), column
        )
        if key is None:
            raise TableError(
                f"a table partitioned by {part.transform}({name}) cannot be written here"
            )
        keys.append(key)
    return keys


def _partition_key(transform: str, kind: str, column: Column) -> Column | None:
    if transform == "identity":
        return column
    if transform == "hour" and kind == "timestamptz":
        return f.unix_micros(column) - f.pmod(f.unix_micros(column), f.lit(_HOUR_US))
    days = _days(kind, column)
    if days is None or transform not in ("day", "month", "year"):
        return None
    return days if transform == "day" else f.trunc(days, transform)


def _days(kind: str, column: Column) -> Column | None:
    match kind:
        case "date" | "timestamp":
            return column.cast("date")
        case "timestamptz":
            # Iceberg's days are UTC days, whatever the session's time zone.
            micros = f.unix_micros(column)
            whole = micros - f.pmod(micros, f.lit(_DAY_US))
            return f.date_from_unix_date((whole / f.lit(_DAY_US)).cast("int"))
    return None
