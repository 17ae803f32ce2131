"""What a task does when its rows fail while others are on their way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from dohle.client import Producer
from dohle.spark import worker_loop
from dohle.spark.sink.options import parse_sink_options
from dohle.spark.sink.schema import find_columns
from dohle.spark.sink.tasks import RowWriter
from dohle.testing import Broker

_DEADLINE_S = 30


def test_a_producer_that_is_being_opened_when_rows_fail_is_given_up(broker: Broker) -> None:
    is_opening, is_given_up = threading.Event(), threading.Event()

    async def open_producer() -> Producer:
        is_opening.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_given_up.set()
        raise AssertionError("nobody opens it")

    def rows() -> Iterator[pa.RecordBatch]:
        # So many bytes are sent before the next ones come.
        yield pa.record_batch({"value": [bytes(1024 * 1024)] * 4})
        assert is_opening.wait(_DEADLINE_S)
        raise ValueError("the source failed")

    options = parse_sink_options(
        {"kafka.bootstrap.servers": broker.bootstrap, "topic": "rows-that-fail"}
    )
    columns = find_columns(StructType([StructField("value", BinaryType())]), options.topic)
    cluster = worker_loop.cluster(options.bootstrap, options.client)
    writer = RowWriter(cluster, options, columns, open_producer)

    with pytest.raises(ValueError, match="the source failed"):
        writer.write(rows())
    writer.abort()
    assert is_given_up.is_set()
    writer.close()
