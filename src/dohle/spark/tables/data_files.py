"""Writes rows to Parquet files on the executors; the driver gets only the files' descriptions.

A task writes a row group whenever it has ``row_group_bytes``, so that its memory does not grow with
the batch. In a partitioned table each file holds the rows of one partition: the rows come sorted,
so only one file is open at a time. A file's name contains the task's attempt: files of a failed or
duplicate attempt are never referred to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame

from dohle.spark.tables.folders import local_path, open_folder, sync

ROW_GROUP_BYTES = 64 << 20
FILE_BYTES = 512 << 20

_REPORT = pa.schema(
    [("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64()), ("partition", pa.string())]
)
_REPORT_DDL = "name string, rows long, size long, partition string"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that one task has finished: its name in the folder, and what is in it."""

    name: str
    rows: int
    size_bytes: int
    partition: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FileTask:
    """A task's instructions: the folder, the columns of the files, the partition keys."""

    folder: str
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    row_group_bytes: int = ROW_GROUP_BYTES
    file_bytes: int = FILE_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the task's rows and report the files."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("files are written by tasks")
        files = _Files(self, f"part-{context.partitionId():05d}-{context.taskAttemptId()}")
        for batch in batches:
            rows = batch.select(self.schema.names).cast(self.schema)
            for start, end, partition in runs(batch, self.keys):
                files.add(rows.slice(start, end - start), partition)
        files.close()
        yield pa.RecordBatch.from_pylist(files.reports, schema=_REPORT)


def write_files(rows: DataFrame, task: FileTask) -> list[DataFile]:
    """Run the job that writes the rows, and return the files of the tasks that succeeded."""
    if task.keys:
        rows = rows.sortWithinPartitions(*task.keys)
    reports = rows.mapInArrow(task, _REPORT_DDL).collect()
    return [
        DataFile(report.name, report.rows, report.size, tuple(json.loads(report.partition)))
        for report in sorted(reports, key=lambda report: str(report.name))
    ]


def runs(
    batch: pa.RecordBatch, keys: tuple[str, ...]
) -> Iterator[tuple[int, int, tuple[str | None, ...]]]:
    """Return the runs of rows with the same keys: first row, row after the last, and the keys."""
    if not batch.num_rows:
        return
    columns = [batch.column(key) for key in keys]
    changes = np.zeros(batch.num_rows - 1, dtype=bool)
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield start, end, tuple(partition_value(column[start].as_py()) for column in columns)


def partition_value(value: object) -> str | None:
    """Return the text of a partition's value; the empty string counts as null, as in Hive."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case date():
            return value.isoformat()
    return str(value)


class _Files:
    """The files of one task, one open at a time."""

    def __init__(self, task: FileTask, prefix: str) -> None:
        self.reports: list[dict[str, Any]] = []
        self._task = task
        self._prefix = prefix
        self._file_system, self._folder = open_folder(task.folder)
        self._local = local_path(task.folder)
        self._partition: tuple[str | None, ...] = ()
        self._held: list[pa.RecordBatch] = []
        self._unwritten_bytes = 0
        self._rows = 0
        self._name = ""
        self._sink: Any = None
        self._writer: Any = None

    def add(self, rows: pa.RecordBatch, partition: tuple[str | None, ...]) -> None:
        """Add rows of a partition; rows of other partitions come before or after."""
        if partition != self._partition:
            self.close()
            self._partition = partition
        self._held.append(rows)
        self._unwritten_bytes += rows.nbytes
        if self._unwritten_bytes >= self._task.row_group_bytes:
            self._write_row_group()
            if self._sink.tell() >= self._task.file_bytes:
                self.close()

    def close(self) -> None:
        """Finish the open file, if there is one, and report it."""
        if self._held:
            self._write_row_group()
        if self._writer is None:
            return
        self._writer.close()
        size_bytes = self._sink.tell()
        self._sink.close()
        if self._local is not None:
            sync(self._local / self._name)
        self.reports.append(
            {
                "name": self._name,
                "rows": self._rows,
                "size": size_bytes,
                "partition": json.dumps(self._partition),
            }
        )
        self._writer = self._sink = None
        self._rows = 0

    def _write_row_group(self) -> None:
        if self._writer is None:
            self._open()
        group = pa.Table.from_batches(self._held)
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._rows += group.num_rows
        self._held = []
        self._unwritten_bytes = 0

    def _open(self) -> None:
        self._name = f"{self._prefix}-{len(self.reports):04d}.parquet"
        if self._local is not None:
            Path(self._local).mkdir(parents=True, exist_ok=True)
        self._sink = self._file_system.open_output_stream(f"{self._folder}/{self._name}")
        self._writer = parquet.ParquetWriter(self._sink, self._task.schema, compression="zstd")
