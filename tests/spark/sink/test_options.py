"""What a write may be told, and what is said where it cannot work."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from dohle.records.compression.codecs import Codec
from dohle.spark.options import OptionError
from dohle.spark.sink.options import Delivery, SinkOptions, parse_sink_options
from dohle.spark.sink.schema import Columns, WrongSchema, find_columns

_BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def _parse(**options: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_sink_options({**_BOOTSTRAP, **named})


def test_a_write_is_exactly_once_unless_told_otherwise() -> None:
    assert _parse().delivery is Delivery.EXACTLY_ONCE
    assert _parse(delivery="at-least-once").delivery is Delivery.AT_LEAST_ONCE
    with pytest.raises(OptionError, match="delivery is 'once': it must be exactly-once or"):
        _parse(delivery="once")


def test_settings_of_the_producer_are_taken() -> None:
    options = _parse(
        kafka__compression__type="zstd",
        kafka__compression__zstd__level="5",
        kafka__batch__size="1000",
        kafka__transaction__timeout__ms="7000",
        kafka__client__id="me",
    )
    assert options.producer.codec is Codec.ZSTD
    assert options.producer.compression_level == 5
    assert options.producer.batch_size == 1000
    assert options.transaction_timeout_ms == 7000
    assert options.client.client_id == "me"


def test_what_spark_adds_is_no_mistake() -> None:
    assert _parse(checkpointlocation="/tmp/c", queryname="q", topic="t").topic == "t"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("topics", "t", "did you mean topic?"),
        ("kafka__compresion__type", "zstd", "did you mean kafka.compression.type?"),
        ("kafka__compression__type", "brotli", "it must be none or gzip or snappy or lz4 or zstd"),
        ("kafka__acks", "1", "kafka.acks must be all"),
        ("kafka__transactional__id", "x", "transactionalIdPrefix"),
        ("kafka__value__serializer", "x", "values are written as they are"),
        ("topic", " ", "option topic is empty"),
        ("kafka__max__in__flight__requests__per__connection", "9", "at most 5 requests"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as error:
        _parse(**{name: value})
    assert said in str(error.value)


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _headers(key: str, value: str) -> ArrayType:
    return ArrayType(_schema(**{key: StringType(), value: BinaryType()}))


def test_columns_are_found_by_their_names() -> None:
    schema = _schema(
        offset=LongType(), headers=_headers("key", "value"), value=BinaryType(), key=StringType()
    )
    assert find_columns(schema, "t") == Columns(2, 3, None, None, 1, None)


_TEXT = StringType()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (_schema(key=_TEXT, v=_TEXT), "rows need a column value, and have key, v"),
        (_schema(value=LongType()), "column value is bigint, and must be string or binary"),
        (_schema(value=_TEXT, key=LongType()), "column key is bigint"),
        (_schema(value=_TEXT, partition=LongType()), "partition is bigint, and must be integer"),
        (_schema(value=_TEXT, headers=_TEXT), "array<struct<key:string,value:binary>>"),
        (_schema(value=_TEXT, headers=_headers("k", "v")), "column headers is array"),
        (_schema(value=_TEXT, timestamp=_TEXT), "column timestamp is string"),
    ],
)
def test_a_wrong_schema_is_refused(schema: StructType, said: str) -> None:
    with pytest.raises(WrongSchema) as error:
        find_columns(schema, "t")
    assert said in str(error.value)


def test_rows_need_a_topic() -> None:
    with pytest.raises(
        OptionError, match="rows have no column topic: add one, or set the option topic"
    ):
        find_columns(_schema(value=_TEXT), None)
