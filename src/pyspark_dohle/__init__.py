"""Lets Spark find ``format("dohle")`` by itself.

Spark imports every module whose name begins with ``pyspark_`` when it first looks for a data
source: so this one loads nothing but pyspark's own base class. The work is in :mod:`dohle.spark`.
"""

# ruff: noqa: N802 - the names of methods are Spark's.
from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics as tables: options and columns are those of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "dohle"

    def schema(self) -> StructType:
        """Return the columns of a read."""
        from dohle.spark.data_source import read_schema

        return read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a range of topics, once."""
        from dohle.spark.data_source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read topics on and on."""
        from dohle.spark.data_source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Write rows to topics, once. What is there stays; another mode is refused."""
        from dohle.spark.options import OptionError
        from dohle.spark.sink.sink import batch_writer

        if overwrite:
            raise OptionError('topics are not overwritten: use mode("append")')
        return batch_writer(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Write the rows of a stream to topics."""
        from dohle.spark.sink.sink import stream_writer

        return stream_writer(self.options, schema)
