"""Topics into tables and back: typed columns, tables that take each batch once, backfills.

``decode_json`` and ``decode_avro`` turn a topic's values into columns and separate bad records;
``write_stream`` adds a stream to a Parquet, Delta or Iceberg table; ``read_table`` reads one, and
``backfill`` sends rows to a topic. Delta, Iceberg and Avro come with ``pip install dohle[tables]``.
"""

from __future__ import annotations

from dohle.spark.tables.avro_values import decode_avro, encode_avro
from dohle.spark.tables.backfill import backfill, records_of
from dohle.spark.tables.batches import BatchId, Outcome, Table, write_batch
from dohle.spark.tables.columns import TableError
from dohle.spark.tables.decoding import Decoded, Tombstones
from dohle.spark.tables.json_values import decode_json, infer_json_schema
from dohle.spark.tables.kinds import Kind, read_table, table
from dohle.spark.tables.streams import batch_function, query_id, write_once, write_stream

__all__ = [
    "BatchId",
    "Decoded",
    "Kind",
    "Outcome",
    "Table",
    "TableError",
    "Tombstones",
    "backfill",
    "batch_function",
    "decode_avro",
    "decode_json",
    "encode_avro",
    "infer_json_schema",
    "query_id",
    "read_table",
    "records_of",
    "table",
    "write_batch",
    "write_once",
    "write_stream",
]
