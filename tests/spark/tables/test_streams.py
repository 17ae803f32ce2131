"""Streams into tables: restarts from a checkpoint, and processes that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

from dohle.spark.tables import Kind, TableError, read_table, write_stream
from tests.spark.tables import table_writer

_ONCE = {"availableNow": True}


def _add_file(folder: Path, number: int) -> list[int]:
    """Put a file with ten orders into the folder that is read, and return their ids."""
    ids = list(range(number * 10, number * 10 + 10))
    inbox = folder / "in"
    inbox.mkdir(exist_ok=True)
    hidden = inbox / f".{number}.json"
    hidden.write_text("".join(json.dumps({"id": id_, "name": f"n{id_}"}) + "\n" for id_ in ids))
    # Spark takes files in the order of these times.
    os.utime(hidden, (number + 1, number + 1))
    hidden.rename(inbox / f"{number}.json")
    return ids


def _forget_last_commit(checkpoint: Path) -> None:
    """Make the checkpoint that of a query that died before it could note its last batch."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_restarted_query_repeats_its_last_batch_and_the_table_has_it_once(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    where: dict[str, Any] = {"kind": kind, "where": tmp_path / "table"}
    if kind == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
        where = {"kind": kind, "where": "lake.orders", "catalog": catalog}
        catalog["warehouse"] = tmp_path.as_uri()
    checkpoint = tmp_path / "checkpoint"
    ids = [*_add_file(tmp_path, 0), *_add_file(tmp_path, 1)]
    stream = table_writer.orders(spark, str(tmp_path))

    first = write_stream(stream, **where, checkpoint=checkpoint, trigger=_ONCE)
    first.awaitTermination()
    _forget_last_commit(checkpoint)
    ids += _add_file(tmp_path, 2)
    second = write_stream(
        stream, **where, checkpoint=checkpoint, trigger=_ONCE, files_per_batch_max=1
    )
    second.awaitTermination()

    assert second.id == first.id
    assert [batch["batchId"] for batch in second.recentProgress][:2] == [1, 2]
    found = sorted(row.id for row in read_table(spark, **where).collect())
    assert found == ids


def _run_until_it_stops_and_kill(folder: Path) -> None:
    """Run the writer up to where it stops, and kill it with its Java and its workers."""
    program = subprocess.Popen(
        [sys.executable, table_writer.__file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        start_new_session=True,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stderr is not None
        said = program.stdout.readline()
        os.killpg(program.pid, signal.SIGKILL)
        assert said.strip() == table_writer.STOPPED, program.stderr.read()


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_killed_writer_of_parquet_leaves_no_half_batch_and_repeats_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = tmp_path / "table"
    first_batch, second_batch = _add_file(tmp_path, 0), _add_file(tmp_path, 1)

    def plainly_read() -> list[int]:
        return sorted(row.id for row in spark.read.parquet(str(location)).collect())

    _run_until_it_stops_and_kill(tmp_path)
    assert plainly_read() == first_batch
    assert list((location / "_staging").rglob("*.parquet"))

    ids = [*first_batch, *second_batch, *_add_file(tmp_path, 2)]
    stream = table_writer.orders(spark, str(tmp_path))
    checkpoint = tmp_path / "checkpoint"
    write_stream(
        stream, "parquet", location, checkpoint=checkpoint, trigger=_ONCE
    ).awaitTermination()
    assert plainly_read() == ids
    assert list((location / "_staging").rglob("*.parquet")) == []


def test_only_streams_are_streamed(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="not a stream"):
        write_stream(spark.range(1), "parquet", tmp_path / "table", checkpoint=tmp_path / "c")
