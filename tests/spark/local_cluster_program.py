"""A program for a cluster: reads a topic, writes one, and streams two more.

``spark-submit`` runs it (test_local_cluster.py), so it may use nothing of the tests' own. It leaves
a file that says where its tasks ran.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import dohle.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEADLINE_S = 100
_SERVERS = "kafka.bootstrap.servers"


def main(
    bootstrap: str, folder: str, source: str, copied: str, loud: str, halves: str, dead: str
) -> None:
    """Do everything once."""
    spark = dohle.spark.session()
    spark.sparkContext.setLogLevel("ERROR")
    places = copy(spark, bootstrap, source, copied)
    for query in (
        dohle.spark.stream(
            source,
            loud,
            sql="SELECT key, upper(CAST(value AS STRING)) AS value FROM {records}",
            checkpoint=f"{folder}/loud",
            bootstrap=bootstrap,
            stop_at_end=True,
            source_options={"maxOffsetsPerTrigger": "25"},
        ),
        dohle.spark.stream(
            source,
            halves,
            function=half,
            dead_letters=dead,
            checkpoint=f"{folder}/halves",
            bootstrap=bootstrap,
            stop_at_end=True,
        ),
    ):
        assert query.awaitTermination(_DEADLINE_S)
    Path(folder, "places.json").write_text(
        json.dumps({"driver": dohle.spark.__file__, "tasks": places})
    )
    spark.stop()


def copy(spark: SparkSession, bootstrap: str, source: str, target: str) -> list[tuple[str, str]]:
    """Write a topic's records to another; return the folders of tasks and of our package."""
    from pyspark.sql import functions as f

    records = (
        spark.read.format("dohle").option(_SERVERS, bootstrap).option("subscribe", source).load()
    )
    records.select("key", "value").write.format("dohle").mode("append").option(
        _SERVERS, bootstrap
    ).option("topic", target).save()
    place = f.udf(place_of, "array<string>")
    rows = records.select(place("partition").alias("place")).distinct().collect()
    return sorted((row.place[0], row.place[1]) for row in rows)


def place_of(partition: int) -> list[str]:
    """Return the folder a task runs in, and where it has our package from."""
    import os

    import dohle.spark

    return [os.getcwd(), dohle.spark.__file__]


def half(value: bytes | None) -> bytes:
    """Return half of a number that is even, and fail on others."""
    number = int((value or b"").removeprefix(b"row "))
    if number % 2:
        raise ValueError(f"{number} is odd")
    return b"%d" % (number // 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
