"""A table of plain Parquet files on a disk: one folder per batch, made visible by one rename.

    orders/_table.json                          columns and partitioning
    orders/dohle_batch=<query>-<number>/        a batch, always complete
    orders/dohle_batch=.../_batch.json          what is in it
    orders/dohle_batch=.../country=DE/part-…    its files
    orders/_staging/…                           batches being written, which readers ignore

Any reader of Hive's layout can read it, and never sees part of a batch; ``dohle_batch`` is one more
column. The rename fails if the batch's folder already exists, so of two attempts one wins. It is
atomic on the file systems of a machine, but not on object stores: those are refused.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types

from dohle.spark.tables.batches import Attempt, BatchId
from dohle.spark.tables.columns import (
    TableError,
    arrow_schema,
    check_partitioning,
    check_same_columns,
)
from dohle.spark.tables.data_files import DataFile, FileTask
from dohle.spark.tables.folders import local_path, sync

BATCH_COLUMN = "dohle_batch"

_DESCRIPTION = "_table.json"
_MANIFEST = "_batch.json"
_STAGING = "_staging"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: What Spark and Hive escape in the names of folders; the rest is kept.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^" + "".join(map(chr, range(1, 32))))


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A folder of batches."""

    location: str
    partition_by: tuple[str, ...] = ()

    def prepare(self, schema: types.StructType) -> None:
        """Create the folder with its description, or compare the description."""
        check_partitioning(schema, self.partition_by)
        if BATCH_COLUMN in schema.names:
            raise TableError(f"the column {BATCH_COLUMN!r} belongs to the table; rename yours")
        arrow_schema(schema)
        root = self._root()
        root.mkdir(parents=True, exist_ok=True)
        if not (root / _DESCRIPTION).exists():
            described = {"schema": schema.jsonValue(), "partition_by": list(self.partition_by)}
            _write_once(root / _DESCRIPTION, described)
        stands, partition_by = self._description()
        check_same_columns(arrow_schema(stands), arrow_schema(schema), self.location)
        if partition_by != self.partition_by:
            raise TableError(
                f"the table {self.location} is partitioned by {list(partition_by)}, not by "
                f"{list(self.partition_by)}"
            )

    def has(self, batch: BatchId) -> bool:
        """Tell whether the batch's folder exists."""
        return self._folder(batch).exists()

    def begin(self, batch: BatchId, rows: DataFrame) -> Attempt:
        """Write into a staging folder of this attempt."""
        schema = arrow_schema(rows.schema)
        kept = pa.schema([field for field in schema if field.name not in self.partition_by])
        name = f"{_STAGING}/{_name(batch)}/{uuid4().hex}"
        folder = self._root() / name / "files"
        return Attempt(name, rows, FileTask(folder.as_uri(), kept, self.partition_by))

    def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
        """Collect the named files in one folder, and rename that into the table."""
        staging = self._root() / attempt.name
        whole = staging / "batch"
        self._assemble(batch, files, staging / "files", whole)
        try:
            os.rename(whole, self._folder(batch))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(staging, ignore_errors=True)
            return False
        sync(self._root())
        shutil.rmtree(self._root() / _STAGING / _name(batch), ignore_errors=True)
        return True

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows of all batches, with the columns as they were written."""
        schema, _ = self._description()
        reader = spark.read.schema(types.StructType([*schema, _BATCH_FIELD]))
        return reader.parquet(str(self._root())).drop(BATCH_COLUMN)

    def _assemble(self, batch: BatchId, files: list[DataFile], written: Path, whole: Path) -> None:
        whole.mkdir()
        for number, file in enumerate(files):
            folder = whole.joinpath(*map(_hive, self.partition_by, file.partition))
            folder.mkdir(parents=True, exist_ok=True)
            os.rename(written / file.name, folder / f"part-{number:05d}.parquet")
        manifest = {**asdict(batch), "rows": sum(file.rows for file in files), "files": len(files)}
        _write_synced(whole / _MANIFEST, manifest)
        for name, _, _ in os.walk(whole, topdown=False):
            sync(Path(name))

    def _root(self) -> Path:
        path = local_path(self.location)
        if path is None:
            raise TableError(
                f"a Parquet table must be on a disk, not at {self.location}: object stores have no "
                "atomic rename; use delta or iceberg there"
            )
        return path

    def _folder(self, batch: BatchId) -> Path:
        return self._root() / f"{BATCH_COLUMN}={_name(batch)}"

    def _description(self) -> tuple[types.StructType, tuple[str, ...]]:
        try:
            read = json.loads((self._root() / _DESCRIPTION).read_text())
        except FileNotFoundError:
            raise TableError(f"there is no table at {self.location}") from None
        return types.StructType.fromJson(read["schema"]), tuple(read["partition_by"])


_BATCH_FIELD = types.StructField(BATCH_COLUMN, types.StringType())


def _name(batch: BatchId) -> str:
    return f"{batch.query_id}-{batch.number}"


def _hive(column: str, value: str | None) -> str:
    return f"{_escaped(column)}={_NO_VALUE if value is None else _escaped(value)}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def _write_once(path: Path, content: object) -> None:
    """Write a file atomically; an existing one stays unchanged."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}")
    _write_synced(temporary, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    finally:
        temporary.unlink()
    sync(path.parent)


def _write_synced(path: Path, content: object) -> None:
    with path.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
