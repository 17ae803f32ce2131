"""A program that adds a folder of JSON files to a Parquet table, and stops half way.

It says on stdout that it has stopped, and waits to be killed: in the second batch, when its files
are written and not yet in the table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

import dohle.spark
from dohle.spark.tables import BatchId, batch_function
from dohle.spark.tables.batches import Attempt
from dohle.spark.tables.data_files import DataFile
from dohle.spark.tables.parquet import ParquetTable

STOPPED = "stopped"


def orders(spark: SparkSession, folder: str) -> DataFrame:
    """Return the stream of orders, one file a batch."""
    stream = spark.readStream.schema("id LONG, name STRING").option("maxFilesPerTrigger", 1)
    return stream.json(f"{folder}/in")


@dataclass(frozen=True, slots=True)
class StoppingTable(ParquetTable):
    """A table that stops the program in its second batch."""

    def commit(self, batch: BatchId, attempt: Attempt, files: list[DataFile]) -> bool:
        """Commit the first batch; stop before the second."""
        if batch.number:
            sys.stdout.write(f"{STOPPED}\n")
            sys.stdout.flush()
            sys.stdin.read()
        return ParquetTable.commit(self, batch, attempt, files)


def main(folder: str) -> None:
    """Run the query until it is killed."""
    spark = dohle.spark.session("table-writer", "local[1]", {"spark.log.level": "ERROR"})
    table = StoppingTable(f"file://{folder}/table")
    rows = orders(spark, folder)
    table.prepare(rows.schema)
    checkpoint = f"{folder}/checkpoint"
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    query = writer.foreachBatch(batch_function(table, checkpoint)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
