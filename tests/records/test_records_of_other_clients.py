"""kafka-python and aiokafka: what they write is read here, what is written here they read.

Both are installed with all codecs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.control import build_txn_marker
from dohle.records.record import Record
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000
SIZE_MAX = 16 << 20

Write = Callable[[int, Codec, list[Record]], bytes]
Read = Callable[[bytes], list[Record]]


def samples() -> list[Record]:
    rng = random.Random(3)
    shapes: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (0, b"key", b"value", ()),
        (5, None, b"no key", (("trace", b"\x00\x01"), ("trace", b"again"), ("empty", b""))),
        (-7, b"tombstone", None, (("nothing", None),)),
        (60_000, None, None, (("größe-鍵", b"wert"),)),
        (1, b"", b"", (("", b""),)),
        (2, b"large and random", rng.randbytes(1 << 20), ()),
        (3, b"large and regular", b"0123456789" * 100_000, (("h" * 300, b"v" * 5000),)),
        *((i, b"key %d" % i, b"value %d" % i, ()) for i in range(500)),
    ]
    return [
        Record(offset, NOW_MS + delta, key, value, headers)
        for offset, (delta, key, value, headers) in enumerate(shapes)
    ]


SAMPLES = samples()
PLAIN_SAMPLES = [record._replace(headers=()) for record in SAMPLES]
UNTIMED_SAMPLES = [record._replace(timestamp=-1) for record in PLAIN_SAMPLES]

payloads = st.none() | st.binary(max_size=200)
random_records = st.lists(
    st.tuples(
        st.integers(0, 2**48),
        payloads,
        payloads,
        st.lists(st.tuples(st.text(max_size=10), payloads), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
).map(lambda shapes: [Record(offset, *shape) for offset, shape in enumerate(shapes)])


def dohle_writes(magic: int, codec: Codec, records: list[Record]) -> bytes:
    if magic < 2:
        messages = [Message(record.timestamp, record.key, record.value) for record in records]
        return build_message_set(magic, messages, codec=codec)
    builder = BatchBuilder(codec=codec)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def dohle_reads(data: bytes) -> list[Record]:
    records: list[Record] = []
    for batch in batches(data):
        batch.ensure_valid()
        records.extend(batch)
    return records


def kafka_python_writes(magic: int, codec: Codec, records: list[Record]) -> bytes:
    builder = KafkaPythonBuilder(magic, codec, SIZE_MAX)
    for record in records:
        assert builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    return bytes(builder.buffer())


def aiokafka_writes(magic: int, codec: Codec, records: list[Record]) -> bytes:
    builder: Any
    if magic < 2:
        builder = AiokafkaLegacyBuilder(magic, codec, SIZE_MAX)
    else:
        builder = AiokafkaBuilder(magic, codec, 0, -1, -1, -1, SIZE_MAX)
    for record in records:
        added = builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert added
    return bytes(builder.build())


def others_read(records: Any) -> list[Record]:
    """Both libraries have the same way to go through batches."""
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [
            Record(
                record.offset,
                -1 if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                tuple(tuple(header) for header in record.headers or ()),
            )
            for record in batch
        ]
    return found


def kafka_python_reads(data: bytes) -> list[Record]:
    return others_read(KafkaPythonRecords(data))


def aiokafka_reads(data: bytes) -> list[Record]:
    return others_read(AiokafkaRecords(data))


LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
AIOKAFKA = [
    *((2, codec) for codec in Codec),
    *((1, codec) for codec in LEGACY_CODECS),
    # It refuses lz4 in format 0.
    *((0, codec) for codec in LEGACY_CODECS if codec is not Codec.LZ4),
]
KAFKA_PYTHON = [
    *((2, codec) for codec in Codec),
    *((magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS),
]
COMBINATIONS = [
    *(
        pytest.param(
            aiokafka_writes, aiokafka_reads, magic, codec, id=f"aiokafka-{magic}-{codec.name}"
        )
        for magic, codec in AIOKAFKA
    ),
    *(
        pytest.param(
            kafka_python_writes,
            kafka_python_reads,
            magic,
            codec,
            id=f"kafka-python-{magic}-{codec.name}",
        )
        for magic, codec in KAFKA_PYTHON
    ),
]


def of_format(magic: int) -> list[Record]:
    return (UNTIMED_SAMPLES, PLAIN_SAMPLES, SAMPLES)[magic]


@pytest.mark.parametrize(("write", "read", "magic", "codec"), COMBINATIONS)
def test_what_they_write_is_read(write: Write, read: Read, magic: int, codec: Codec) -> None:
    data = write(magic, codec, of_format(magic))
    assert {batch.compression for batch in batches(data)} == {codec}
    assert dohle_reads(data) == read(data) == of_format(magic)


@pytest.mark.parametrize(("write", "read", "magic", "codec"), COMBINATIONS)
def test_what_is_written_they_read(write: Write, read: Read, magic: int, codec: Codec) -> None:
    assert read(dohle_writes(magic, codec, of_format(magic))) == of_format(magic)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("write", [kafka_python_writes, aiokafka_writes])
def test_without_compression_the_bytes_are_the_same(write: Write, magic: int) -> None:
    theirs = write(magic, Codec.NONE, of_format(magic))
    ours = dohle_writes(magic, Codec.NONE, of_format(magic))
    if magic == 2 and write is kafka_python_writes:
        # It writes 0 for the leader epoch that no producer knows; Java writes -1.
        assert theirs[12:16] == bytes(4)
        theirs = theirs[:12] + ours[12:16] + theirs[16:]
    assert ours == theirs


@given(records=random_records)
def test_random_records_have_the_same_bytes(records: list[Record]) -> None:
    ours = dohle_writes(2, Codec.NONE, records)
    assert ours == aiokafka_writes(2, Codec.NONE, records)
    assert dohle_reads(ours) == aiokafka_reads(ours) == kafka_python_reads(ours) == records


@given(records=random_records, codec=st.sampled_from(Codec))
def test_random_compressed_records_are_read_both_ways(records: list[Record], codec: Codec) -> None:
    assert aiokafka_reads(dohle_writes(2, codec, records)) == records
    assert dohle_reads(aiokafka_writes(2, codec, records)) == records


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_understood(commit: bool) -> None:
    marker = bytes(build_txn_marker(commit, 4711, 5, 6, NOW_MS, 12))
    theirs: Any = AiokafkaRecords(marker).next_batch()
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert (theirs.producer_id, theirs.next_offset) == (4711, 13)
    (record,) = KafkaPythonRecords(marker).next_batch()
    assert (record.offset, record.commit, record.abort) == (12, commit, not commit)
