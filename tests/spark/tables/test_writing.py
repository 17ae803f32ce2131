"""A batch is in a table once: tried again, tried twice at the same time, and divided by columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, get_args

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction
from deltalake import DeltaTable as DeltaLog
from deltalake.exceptions import CommitFailedError
from pyarrow import dataset
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import DayTransform
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from dohle.spark.tables import (
    BatchId,
    Kind,
    Outcome,
    Table,
    TableError,
    read_table,
    table,
    write_batch,
    write_once,
)
from dohle.spark.tables.batches import Attempt
from dohle.spark.tables.data_files import DataFile, FileTask, runs, write_files

_KINDS = get_args(Kind)
_QUERY = "0f9c2af0-0710-4f6e-9b5e-5d2f3c1b7a55"

_NAMES = ("id", "small", "country", "day", "at", "local", "price", "raw", "list", "counts", "inner")
_VALUES = """
    id, cast(id % 100 as byte), if(id % 5 = 0, null, concat('a ü/=%', id % 2)),
    date_from_unix_date(cast(id % 2 as int)), timestamp_micros(id * 3600000001),
    timestamp_ntz'2026-01-02 03:04:05', cast(id as decimal(10, 2)), cast(string(id) as binary),
    array(id, null), map('k', id), named_struct('x', id, 'y', array(named_struct('z', 'deep')))
"""


class Place:
    """Where the tables of a test are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }

    def where(self, kind: Kind) -> dict[str, Any]:
        if kind == "iceberg":
            return {"kind": kind, "where": "lake.orders", "catalog": self.catalog}
        return {"kind": kind, "where": self.folder / kind}

    def table(self, kind: Kind, **settings: Any) -> Table:
        return table(**self.where(kind), **settings)

    def read(self, spark: SparkSession, kind: Kind) -> DataFrame:
        return read_table(spark, **self.where(kind))

    def data_files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.parquet"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "a lake ü"
    folder.mkdir()
    return Place(folder)


@pytest.fixture(scope="session")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 40, 1, 2).selectExpr(f"inline(array(struct({_VALUES})))").toDF(*_NAMES)


def _text(rows: DataFrame) -> list[str]:
    return sorted(str(row) for row in rows.select(*_NAMES).collect())


@pytest.mark.parametrize("kind", _KINDS)
def test_a_batch_that_is_tried_again_is_in_the_table_once(
    spark: SparkSession, rows: DataFrame, place: Place, kind: Kind
) -> None:
    orders = place.table(kind)
    orders.prepare(rows.schema)
    orders.prepare(rows.schema)

    first = write_batch(orders, rows, BatchId(_QUERY, 0))
    again = write_batch(orders, rows, BatchId(_QUERY, 0))
    empty = write_batch(orders, rows.where("id < 0"), BatchId(_QUERY, 1))
    of_another_query = write_batch(orders, rows.where("id = 7"), BatchId("other", 0))

    assert (first, again) == (Outcome.WRITTEN, Outcome.ALREADY_THERE)
    assert (empty, of_another_query) == (Outcome.EMPTY, Outcome.WRITTEN)
    expected = sorted([*_text(rows), *_text(rows.where("id = 7"))])
    assert _text(place.read(spark, kind)) == expected


@pytest.mark.parametrize("kind", _KINDS)
def test_a_table_that_is_divided_by_columns_has_the_same_rows(
    spark: SparkSession, rows: DataFrame, place: Place, kind: Kind
) -> None:
    orders = place.table(kind, partition_by=["country", "day"])
    orders.prepare(rows.schema)

    outcomes = [write_batch(orders, rows, BatchId(_QUERY, 0)) for _ in range(2)]

    assert outcomes == [Outcome.WRITTEN, Outcome.ALREADY_THERE]
    assert _text(place.read(spark, kind)) == _text(rows)
    partitions, tasks = 4, 2
    assert len(place.data_files()) == partitions * tasks


@pytest.mark.parametrize("kind", _KINDS)
def test_an_attempt_that_comes_too_late_changes_nothing(
    spark: SparkSession, rows: DataFrame, place: Place, kind: Kind
) -> None:
    orders = place.table(kind)
    orders.prepare(rows.schema)
    batch = BatchId(_QUERY, 4)
    outcomes: list[Outcome] = []

    class Overtaken:
        """The table, with another attempt between the writing of files and their commit."""

        prepare, has, begin = orders.prepare, orders.has, orders.begin

        def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
            outcomes.append(write_batch(orders, rows, batch))
            return orders.commit(batch, attempt, files)

    outcomes.append(write_batch(Overtaken(), rows, batch))

    assert outcomes == [Outcome.WRITTEN, Outcome.ALREADY_THERE]
    assert _text(place.read(spark, kind)) == _text(rows)
    assert len(place.data_files()) == 2


class CatalogWithOthers(SqlCatalog):
    """A catalog in which others commit just before we do."""

    others: ClassVar[list[Callable[[], object]]] = []

    def commit_table(self, *args: Any, **settings: Any) -> Any:
        if self.others:
            self.others.pop()()
        return super().commit_table(*args, **settings)


def test_an_iceberg_commit_looks_again_when_another_was_faster(
    spark: SparkSession, place: Place
) -> None:
    rows = spark.range(3).coalesce(1)
    orders = place.table("iceberg")
    orders.prepare(rows.schema)
    place.catalog["py-catalog-impl"] = f"{__name__}.{CatalogWithOthers.__name__}"
    del place.catalog["type"]
    overtaken = place.table("iceberg")

    def attempt(batch: BatchId) -> tuple[BatchId, Attempt, list[DataFile]]:
        begun = orders.begin(batch, rows)
        return batch, begun, write_files(begun.rows, begun.task)

    mine, of_another_query = attempt(BatchId(_QUERY, 0)), attempt(BatchId("other", 0))
    CatalogWithOthers.others.append(lambda: orders.commit(*of_another_query))
    assert overtaken.commit(*mine)

    mine, of_the_same_batch = attempt(BatchId(_QUERY, 1)), attempt(BatchId(_QUERY, 1))
    CatalogWithOthers.others.append(lambda: orders.commit(*of_the_same_batch))
    assert not overtaken.commit(*mine)

    assert place.read(spark, "iceberg").count() == 3 * 3


def test_a_delta_log_refuses_a_transaction_that_another_was_faster_to_commit(
    tmp_path: Path,
) -> None:
    def commit(log: DeltaLog) -> None:
        noted = CommitProperties(app_transactions=[Transaction(_QUERY, 0)])
        log.create_write_transaction([], "append", log.schema(), commit_properties=noted)

    DeltaLog.create(str(tmp_path), pa.schema([("id", pa.int64())]))
    first, second = DeltaLog(str(tmp_path)), DeltaLog(str(tmp_path))
    commit(first)

    with pytest.raises(CommitFailedError):
        commit(second)
    assert DeltaLog(str(tmp_path)).transaction_version(_QUERY) == 0


@pytest.mark.parametrize("kind", _KINDS)
def test_an_attempt_that_failed_leaves_nothing_that_counts(
    spark: SparkSession, rows: DataFrame, place: Place, kind: Kind
) -> None:
    orders = place.table(kind)
    orders.prepare(rows.schema)
    failing = rows.withColumn("id", f.expr("if(id = 39, raise_error('no such id'), id)"))

    with pytest.raises(Exception, match="no such id"):
        write_batch(orders, failing, BatchId(_QUERY, 0))
    assert place.read(spark, kind).count() == 0
    outcome = write_batch(orders, rows, BatchId(_QUERY, 0))

    assert outcome is Outcome.WRITTEN
    assert _text(place.read(spark, kind)) == _text(rows)
    assert len(place.data_files()) == 2


def test_formats_own_readers_see_the_rows(spark: SparkSession, place: Place) -> None:
    rows = spark.createDataFrame([Row(id=1, day=date(2026, 1, 2)), Row(id=2, day=None)])
    for kind in _KINDS:
        outcome = write_once(rows, **place.where(kind), partition_by=["day"], load_id="first")
        again = write_once(rows, **place.where(kind), partition_by=["day"], load_id="first")
        assert (outcome, again) == (Outcome.WRITTEN, Outcome.ALREADY_THERE)

    def found(arrow: pa.Table) -> list[tuple[int, Any]]:
        return [(row["id"], row["day"]) for row in arrow.sort_by("id").to_pylist()]

    expected = [(1, date(2026, 1, 2)), (2, None)]
    assert found(DeltaLog(str(place.folder / "delta")).to_pyarrow_table()) == expected
    catalog = load_catalog("dohle", **place.catalog)
    loaded = catalog.load_table("lake.orders")
    snapshot = loaded.current_snapshot()
    catalog.close()
    assert found(loaded.scan().to_arrow()) == expected
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["dohle.query-id"] == "first"
    assert snapshot.summary["dohle.batch-id"] == "0"
    plain = spark.read.parquet(str(place.folder / "parquet"))
    assert [(row.id, row.day) for row in plain.orderBy("id").collect()] == expected
    assert {row.dohle_batch for row in plain.collect()} == {"first-0"}
    hive = dataset.dataset(place.folder / "parquet", partitioning="hive")
    assert hive.count_rows() == 2


@pytest.mark.parametrize("kind", _KINDS)
def test_rows_that_do_not_fit_a_table_are_refused_before_anything_is_written(
    rows: DataFrame, place: Place, kind: Kind
) -> None:
    place.table(kind).prepare(rows.schema)

    with pytest.raises(TableError, match="the table has no column 'more'"):
        place.table(kind).prepare(rows.withColumnRenamed("raw", "more").schema)
    with pytest.raises(
        TableError, match="column 'id' is int64 in the table, but string in the rows"
    ):
        place.table(kind).prepare(rows.selectExpr(*_NAMES[1:], "string(id) as id").schema)
    with pytest.raises(TableError, match=r"is partitioned by \[\], not by \['day'\]"):
        place.table(kind, partition_by=["day"]).prepare(rows.schema)
    with pytest.raises(TableError, match="cannot be partitioned by 'price' of type decimal"):
        place.table(kind, partition_by=["price"]).prepare(rows.schema)
    assert place.data_files() == []


def test_places_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema = spark.range(1).schema

    with pytest.raises(TableError, match="object stores have no atomic rename"):
        table("parquet", "s3://lake/orders").prepare(schema)
    with pytest.raises(TableError, match="needs a catalog"):
        table("iceberg", "lake.orders")
    with pytest.raises(TableError, match="has no catalog"):
        table("delta", tmp_path, catalog={})
    with pytest.raises(TableError, match="unknown kind of table 'csv'"):
        table("csv", tmp_path)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TableError, match="no Delta table at"):
        read_table(spark, "delta", tmp_path)
    with pytest.raises(TableError, match="no table at"):
        read_table(spark, "parquet", tmp_path)


def test_a_hidden_partitioning_of_an_iceberg_table_is_kept(
    spark: SparkSession, rows: DataFrame, place: Place
) -> None:
    orders = place.table("iceberg")
    orders.prepare(rows.schema)
    catalog = load_catalog("dohle", **place.catalog)
    with catalog.load_table("lake.orders").update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")

    assert write_batch(orders, rows, BatchId(_QUERY, 0)) is Outcome.WRITTEN

    files = list(catalog.load_table("lake.orders").scan().plan_files())
    catalog.close()
    assert {piece.file.partition[0] for piece in files} == {0, 1}
    assert _text(place.read(spark, "iceberg")) == _text(rows)


def test_large_batches_are_written_in_groups_and_files_of_limited_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(0, 60_000, 1, 1)
    task = FileTask(
        tmp_path.as_uri(), pa.schema([("id", pa.int64())]), row_group_bytes=1, file_bytes=50_000
    )

    files = write_files(rows, task)

    assert len(files) > 1
    assert sum(file.rows for file in files) == 60_000
    assert {file.name for file in files} == {path.name for path in tmp_path.iterdir()}
    assert all((tmp_path / file.name).stat().st_size == file.size_bytes for file in files)
    assert pa.parquet.ParquetFile(tmp_path / files[0].name).num_row_groups > 1


def test_sorted_rows_are_cut_where_a_key_changes() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": [None, None, 1, 1, 1], "b": ["x", "x", "x", "", None]},
        pa.schema([("a", pa.int32()), ("b", pa.string())]),
    )

    assert list(runs(batch, ("a", "b"))) == [
        (0, 2, (None, "x")),
        (2, 3, ("1", "x")),
        (3, 4, ("1", None)),
        (4, 5, ("1", None)),
    ]
    assert list(runs(batch, ())) == [(0, 5, ())]
    assert list(runs(batch.slice(0, 0), ("a",))) == []
