"""Records encoded column by column are those that are encoded one by one."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.client.producer.partitioner import murmur2, partition_of_key
from dohle.records.batch import RecordBatch
from dohle.records.builder import BatchBuilder
from dohle.records.columnar.encode import encode_header_column, encode_records, murmur2_of
from dohle.records.record import Record
from dohle.spark.options import OptionError
from dohle.spark.sink.rows import EncodedBatch, RowEncoder, gather
from dohle.spark.sink.schema import Columns, WrongSchema

_NOW_MS = 1_800_000_000_000
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_BYTES = st.none() | st.binary(max_size=300)
_ROWS = st.lists(
    st.tuples(
        _BYTES,
        _BYTES,
        st.integers(0, 2**52),
        st.none() | st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def _headers(column: list[Any]) -> pa.Array:
    return pa.array(
        [
            None if each is None else [{"key": key, "value": value} for key, value in each]
            for each in column
        ],
        _HEADERS,
    )


@given(rows=_ROWS, has_keys=st.booleans(), has_headers=st.booleans(), data=st.data())
@settings(deadline=None)
def test_records_are_byte_for_byte_those_of_the_builder(
    rows: list[Any], has_keys: bool, has_headers: bool, data: st.DataObject
) -> None:
    begins = {0, *data.draw(st.sets(st.integers(0, len(rows) - 1)))}
    starts = np.array(sorted(begins), dtype=np.int64)
    keys, values, timestamps, headers = zip(*rows, strict=True)
    view, places = encode_records(
        pa.array(keys, pa.binary()) if has_keys else None,
        pa.array(values, pa.binary()),
        np.array(timestamps, dtype=np.int64),
        encode_header_column(_headers(list(headers))) if has_headers else None,
        starts,
    )
    for begin, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        builder = BatchBuilder()
        for key, value, timestamp, some in rows[begin:end]:
            builder.append(
                timestamp, key if has_keys else None, value, (some or ()) if has_headers else ()
            )
        encoded = BatchBuilder()
        encoded.append_encoded(
            bytes(view[places[begin] : places[end]]),
            int(end - begin),
            timestamps[begin],
            max(timestamps[begin:end]),
        )
        assert encoded.build() == builder.build()
        assert encoded.size == builder.size


@given(st.lists(_BYTES, max_size=30), st.integers(0, 5))
def test_keys_are_hashed_as_one_by_one(keys: list[bytes | None], skipped: int) -> None:
    column = pa.array(keys, pa.binary())[skipped:]
    hashes = murmur2_of(column).tolist()
    for key, found in zip(keys[skipped:], hashes, strict=True):
        if key is not None:
            assert found == murmur2(key) & 0xFFFFFFFF


def _encoder(columns: Columns, topic: str | None = "t", batch_size: int = 2000) -> RowEncoder:
    return RowEncoder(columns, topic, batch_size, {"t": 7, "u": 2}.__getitem__, random.Random(1))


def _records(batch: EncodedBatch) -> list[Record]:
    builder = BatchBuilder()
    builder.append_encoded(
        batch.records, batch.record_count, batch.base_timestamp, batch.max_timestamp
    )
    return list(RecordBatch(memoryview(builder.build())))


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=20),
            st.sampled_from(["t", "u"]),
            st.none() | st.integers(0, 1),
        ),
        min_size=1,
        max_size=60,
    )
)
@settings(deadline=None)
def test_each_row_is_in_a_batch_of_its_partition_and_in_order(rows: list[Any]) -> None:
    keys, topics, partitions = zip(*rows, strict=True)
    table = pa.table(
        {
            "value": pa.array([b"%d" % number for number in range(len(rows))], pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "topic": pa.array(topics),
            "partition": pa.array(partitions, pa.int32()),
        }
    )
    encoder = _encoder(Columns(0, 1, 2, 3, None, None), topic=None, batch_size=200)
    seen: dict[Any, list[int]] = {}
    for batch in encoder.encode(table, _NOW_MS):
        for record in _records(batch):
            number = int(record.value or b"")
            key, topic, partition = rows[number]
            assert batch.partition.topic == topic
            if partition is not None:
                assert batch.partition.partition == partition
            elif key is not None:
                count = {"t": 7, "u": 2}[topic]
                assert batch.partition.partition == partition_of_key(key, count)
            assert record.key == key
            assert record.timestamp == _NOW_MS
            seen.setdefault(batch.partition, []).append(number)
    for numbers in seen.values():
        assert numbers == sorted(numbers)
    assert sorted(chain.from_iterable(seen.values())) == list(range(len(rows)))


def test_batches_are_as_large_as_they_may_be() -> None:
    table = pa.table({"value": pa.array([b"x" * 100] * 1000, pa.binary())})
    batches = list(_encoder(Columns(0, None, None, None, None, None)).encode(table, _NOW_MS))
    assert {len(batch.records) <= 2000 for batch in batches} == {True}
    assert len(batches) < 1.2 * 1000 / (2000 / 124)
    assert len({batch.partition for batch in batches}) == 7


def test_a_row_larger_than_a_batch_has_one_of_its_own() -> None:
    table = pa.table({"value": pa.array([b"x" * 5000, b"y" * 5000, b"z"], pa.binary())})
    batches = list(_encoder(Columns(0, None, None, None, None, None)).encode(table, _NOW_MS))
    assert [batch.record_count for batch in batches] == [1, 1, 1]


def test_text_is_written_as_utf_8() -> None:
    table = pa.table({"value": pa.array(["häh"], pa.string())})
    (batch,) = _encoder(Columns(0, None, None, None, None, None)).encode(table, _NOW_MS)
    assert _records(batch)[0].value == "häh".encode()


def test_rows_without_a_topic_are_refused() -> None:
    table = pa.table({"value": pa.array(["a"]), "topic": pa.array([None], pa.string())})
    encoder = _encoder(Columns(0, None, 1, None, None, None), topic=None)
    with pytest.raises(OptionError, match="1 rows have no topic"):
        list(encoder.encode(table, _NOW_MS))


def test_a_time_before_1970_is_refused() -> None:
    times = pa.array([-1_000_000], pa.timestamp("us", tz="UTC"))
    table = pa.table({"value": pa.array(["a"]), "timestamp": times})
    with pytest.raises(WrongSchema, match="before 1970"):
        list(_encoder(Columns(0, None, None, None, None, 1)).encode(table, _NOW_MS))


def test_small_arrow_batches_are_put_together() -> None:
    small = pa.record_batch({"value": pa.array([b"x" * 1000] * 100)})
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    tables = list(gather([empty, *[small] * 100]))
    assert [table.num_rows for table in tables] == [4200, 4200, 1600]


_WITHOUT_PANDAS = """
import random, sys
import numpy as np
import pyarrow as pa
from dohle.spark.sink.rows import RowEncoder
from dohle.spark.sink.schema import Columns

offsets, data = pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"abc")
texts = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\\x05"), offsets, data])
columns = Columns(key=0, value=0, topic=None, headers=None, partition=None, timestamp=None)
encoder = RowEncoder(columns, "topic", 1 << 20, lambda topic: 4, random.Random(7))
batches = list(encoder.encode(pa.Table.from_arrays([texts], ["text"]), 1))
print(sum(each.record_count for each in batches), "pandas" in sys.modules)
"""


def test_rows_are_encoded_without_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PANDAS], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("3 False\n", "")
