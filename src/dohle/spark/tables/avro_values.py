"""Avro values into typed columns and back, by fastavro.

A value is one datum and nothing after it. With ``writer_schemas`` it is framed as by Confluent's
serializers: a zero byte, then four bytes with the schema's id, then the datum. The id says with
which of these schemas it was written; Avro's rules convert it to the schema asked for.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as f

from dohle.spark.tables.avro_types import AvroSchema, load_avro_schema, spark_schema
from dohle.spark.tables.columns import TableError, arrow_type
from dohle.spark.tables.decoding import (
    ERROR,
    NO_VALUE,
    Decoded,
    Kept,
    Tombstones,
    check_records,
    kept_columns,
    without_tombstones,
)

_DECODED = "_dohle_decoded"
_FRAME = struct.Struct(">bI")
_MAGIC = 0


def decode_avro(
    records: DataFrame,
    schema: AvroSchema,
    *,
    writer_schemas: Mapping[int, AvroSchema] | None = None,
    keep: Kept = (),
    tombstones: Tombstones = Tombstones.REFUSE,
) -> Decoded:
    """Decode the Avro datums in ``value``.

    ``schema`` is the record's: JSON text, a dict or the name of an ``.avsc`` file.
    ``writer_schemas`` means that values are framed, and maps the ids in the frames to schemas.
    ``keep`` names columns of the record to keep, as in ``decode_json``.
    """
    check_records(records, types.BinaryType)
    loaded = load_avro_schema(schema)
    fields = spark_schema(loaded)
    kept = kept_columns(keep, records, fields)
    framed = {id_: json.dumps(load_avro_schema(one)) for id_, one in (writer_schemas or {}).items()}
    task = _Decode(json.dumps(loaded), framed, arrow_type(fields))
    columns = types.StructType(
        [
            *records.schema,
            types.StructField(_DECODED, fields),
            types.StructField(ERROR, types.StringType()),
        ]
    )
    decoded = without_tombstones(records, tombstones).mapInArrow(task, columns)
    fields_of = (f.col(_DECODED)[name].alias(name) for name in fields.names)
    rows = decoded.where(f.col(ERROR).isNull()).select(*fields_of, *kept)
    return Decoded(rows, decoded.where(f.col(ERROR).isNotNull()).drop(_DECODED))


def encode_avro(
    rows: DataFrame, schema: AvroSchema, key: Column | None = None, *, schema_id: int | None = None
) -> DataFrame:
    """Return records whose value is each row as an Avro datum, framed if there is a schema id."""
    loaded = load_avro_schema(schema)
    missing = [name for name in spark_schema(loaded).names if name not in rows.columns]
    if missing:
        raise TableError(f"the rows have no column for the fields {', '.join(missing)}")
    names = [f.col(f"`{name}`") for name in spark_schema(loaded).names]
    keyed = rows.select(
        (f.lit(None) if key is None else key).cast("binary").alias("key"),
        f.struct(*names).alias("value"),
    )
    return keyed.mapInArrow(_Encode(json.dumps(loaded), schema_id), "key binary, value binary")


@dataclass(frozen=True, slots=True)
class _Decode:
    """Appends what each value holds, or why it could not be decoded."""

    schema: str
    writer_schemas: Mapping[int, str]
    kind: pa.DataType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode = _decoder(self.schema, self.writer_schemas)
        for batch in batches:
            decoded: list[Any] = []
            errors: list[str | None] = []
            for value in batch.column("value").to_pylist():
                datum, error = _attempt(decode, value)
                decoded.append(datum)
                errors.append(error)
            column = _as_column(decoded, errors, self.kind)
            yield batch.append_column(_DECODED, column).append_column(
                ERROR, pa.array(errors, pa.string())
            )


Decoder = Callable[[bytes], Any]


def _decoder(schema: str, writer_schemas: Mapping[int, str]) -> Decoder:
    from fastavro import parse_schema, schemaless_reader

    wanted = parse_schema(json.loads(schema))
    written = {id_: parse_schema(json.loads(text)) for id_, text in writer_schemas.items()}

    def decode(value: bytes) -> Any:
        source = BytesIO(value)
        if written:
            datum = schemaless_reader(source, written[_framed_id(value, source, written)], wanted)
        else:
            datum = schemaless_reader(source, wanted, None)
        left_bytes = len(value) - source.tell()
        if left_bytes:
            raise ValueError(f"{left_bytes} bytes are left after the datum")
        return datum

    return decode


def _framed_id(value: bytes, source: BytesIO, known: Mapping[int, object]) -> int:
    head = source.read(_FRAME.size)
    if len(head) < _FRAME.size or head[0] != _MAGIC:
        raise ValueError("the value is not framed: it does not begin with a zero byte and an id")
    _, schema_id = _FRAME.unpack(head)
    if schema_id not in known:
        raise ValueError(f"schema {schema_id} is not among the given writer_schemas")
    return int(schema_id)


def _attempt(decode: Decoder, value: bytes | None) -> tuple[Any, str | None]:
    if value is None:
        return None, NO_VALUE
    try:
        return decode(value), None
    except (EOFError, IndexError):
        return None, "not Avro of this schema: it ends too early, or was written with another one"
    except Exception as error:
        # Whatever the decoder raises, the value is to blame.
        return None, f"not Avro of this schema: {error}"


def _as_column(decoded: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(decoded, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        for i, datum in enumerate(decoded):
            try:
                pa.array([datum], kind)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                decoded[i] = None
                errors[i] = f"the value does not fit the column: {error}"
        return pa.array(decoded, kind)


@dataclass(frozen=True, slots=True)
class _Encode:
    schema: str
    schema_id: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from fastavro import parse_schema, schemaless_writer

        schema = parse_schema(json.loads(self.schema))
        frame = b"" if self.schema_id is None else _FRAME.pack(_MAGIC, self.schema_id)
        for batch in batches:
            values = []
            for row in batch.column("value").to_pylist(maps_as_pydicts="strict"):
                target = BytesIO()
                target.write(frame)
                schemaless_writer(target, schema, row)
                values.append(target.getvalue())
            columns = [batch.column("key"), pa.array(values, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["key", "value"])
