"""Batches of records, good and bad."""

from __future__ import annotations

import struct
from typing import Any

import crc32c

from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from tests.oracle.scenario import Client, Topic

TIME_MS = 1_600_000_000_000


def batch(*values: bytes, timestamp: int = TIME_MS, key: bytes | None = None, **more: Any) -> bytes:
    """Return a batch whose records are a millisecond apart."""
    builder = BatchBuilder(**more)
    for number, value in enumerate(values):
        builder.append(timestamp + number, key, value)
    return bytes(builder.build())


def changed(records: bytes, form: str, at: int, value: int, *, sealed: bool = True) -> bytes:
    """Return a batch with other bytes at a place, and unless told a checksum that is right."""
    data = bytearray(records)
    struct.pack_into(form, data, at, value)
    if sealed:
        struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


#: One of each codec. Compressed data differs between libraries, but all can read it.
CODECS: list[Codec] = [each for each in Codec if each is not Codec.NONE]


async def produce(
    client: Client,
    version: int,
    topic: Topic,
    records: bytes | None,
    *,
    note: str = "",
    partition: int = 0,
    acks: int = -1,
    **more: Any,
) -> Any:
    """Write to one partition."""
    data = {**topic.both, "partition_data": [{"index": partition, "records": records}]}
    return await client.send(
        "Produce", version, note=note, acks=acks, timeout_ms=5000, topic_data=[data], **more
    )


def fetched(topic: Topic, offset: int = 0, partition: int = 0, **more: Any) -> dict[str, Any]:
    """Return what a Fetch asks of one partition."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {"topic": topic.name, "topic_id": topic.id, "partitions": [{**asked, **more}]}


async def fetch(
    client: Client, version: int, *topics: dict[str, Any], note: str = "", **more: Any
) -> Any:
    """Read partitions, without waiting and outside of sessions unless told."""
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return await client.send("Fetch", version, note=note, **{**body, "topics": topics, **more})
