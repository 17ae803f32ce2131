"""The table formats by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Literal, get_args

from pyspark.sql import DataFrame, SparkSession

from dohle.spark.tables.columns import TableError
from dohle.spark.tables.delta import DeltaTable
from dohle.spark.tables.folders import as_uri
from dohle.spark.tables.iceberg import IcebergTable
from dohle.spark.tables.parquet import ParquetTable

Kind = Literal["parquet", "delta", "iceberg"]

_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def table(
    kind: Kind,
    where: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] = (),
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ParquetTable | DeltaTable | IcebergTable:
    """Return the table of a kind at a location; nothing is created or read yet."""
    package = _PACKAGES.get(kind)
    if package is not None and find_spec(package) is None:
        raise TableError(f"{kind} needs the package {package}: pip install dohle[tables]")
    if catalog is not None and kind != "iceberg":
        raise TableError(f"a {kind} table has no catalog: leave out catalog")
    if storage_options is not None and kind != "delta":
        raise TableError(f"storage_options are for delta tables, not for {kind}")
    divided_by = tuple(partition_by)
    match kind:
        case "parquet":
            return ParquetTable(as_uri(where), divided_by)
        case "delta":
            return DeltaTable(as_uri(where).rstrip("/"), divided_by, dict(storage_options or {}))
        case "iceberg":
            if catalog is None:
                raise TableError(
                    'an Iceberg table needs a catalog, for example catalog={"type": "sql", "uri": '
                    '"sqlite:////lake/catalog.db", "warehouse": "file:///lake"}'
                )
            return IcebergTable(os.fspath(where), dict(catalog), divided_by)
    raise TableError(f"unknown kind of table {kind!r}: use one of {', '.join(get_args(Kind))}")


def read_table(
    spark: SparkSession,
    kind: Kind,
    where: str | os.PathLike[str],
    *,
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the current rows of a table."""
    return table(kind, where, catalog=catalog, storage_options=storage_options).read(spark)
