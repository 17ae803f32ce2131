"""A driver to be killed: streams one topic to another until all is through.

Run as ``python exactly_once_driver.py BOOTSTRAP SOURCE SINK CHECKPOINT FAULTS``. Faults that name
the driver by ``jvm`` or ``python`` are given the ids of these processes first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import dohle.spark
from tests.spark.sink.faulty_sink import register

JVM, PYTHON = "jvm", "python"


def main(bootstrap: str, source: str, sink: str, checkpoint: str, faults: str) -> None:
    """Run the query until it has caught up."""
    spark = dohle.spark.session("exactly once", "local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ids = {JVM: str(gateway.proc.pid), PYTHON: str(os.getpid())}
    for plan in Path(faults).iterdir():
        if (victim := plan.read_text()) in ids:
            plan.write_text(ids[victim])
    stream(spark, bootstrap, source, sink, checkpoint, faults).awaitTermination()


def stream(
    spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: str, faults: str
) -> StreamingQuery:
    """Start the query: small batches, until what is there is through."""
    rows = (
        spark.readStream.format("dohle")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("faulty")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .option("faults", faults)
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
