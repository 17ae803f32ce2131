"""Our codec beside kafka-python's (Python) and kio's (decoding natively): the three that matter.

All work on the same bytes in the same process, in turn, and the medians are compared. Encoding
gives one joined ``bytes`` everywhere, although we need not join record batches. A broker decodes
from a view of what it received, for which there are decoders of their own: those rows hold our
decoding from a view, as the broker calls it, against the peers' from bytes, which is quicker for
them than from a view.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from bench.report import Row, interleave, show, timed
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dohle.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dohle.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dohle.protocol.schema import Request, Response

#: kafka-python is to be beaten by this factor, in both directions.
FACTOR = 2.5

TOPIC_ID = Uuid(bytes(range(16)))


class Action(StrEnum):
    """What is measured."""

    DECODE = "decode"
    DECODE_VIEW = "decode a view"
    ENCODE = "encode"


Codec = dict[Action, Callable[[], object]]


def run(quick: bool = False) -> list[Row]:
    """Measure decoding and encoding of Produce, Fetch and Metadata."""
    rows: list[Row] = []
    cases: tuple[tuple[str, Request | Response, int, int], ...] = (
        ("Produce request v13, 1 x 1 KiB", produce_request(1, 1024), 13, 500),
        ("Produce request v13, 10 x 16 KiB", produce_request(10, 16384), 13, 200),
        ("Fetch response v18, 1 x 1 KiB", fetch_response(1, 1024), 18, 500),
        ("Fetch response v18, 10 x 16 KiB", fetch_response(10, 16384), 18, 200),
        ("Metadata response v12, 100 partitions", metadata_response(100), 12, 50),
        ("Metadata response v13, 100 partitions", metadata_response(100), 13, 50),
    )
    for case, message, version, calls in cases:
        rows += _compare(case, message, version, calls, rounds=7 if quick else 31)
    return rows


def produce_request(partitions: int, size: int) -> ProduceRequest:
    """Build a request to append one batch to each of some partitions."""
    data = tuple(PartitionProduceData(index=i, records=bytes(size)) for i in range(partitions))
    topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=(topic,))


def fetch_response(partitions: int, size: int) -> FetchResponse:
    """Build an answer with one batch from each of some partitions."""
    data = tuple(
        PartitionData(
            partition_index=i,
            high_watermark=1000,
            last_stable_offset=1000,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(size),
        )
        for i in range(partitions)
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)
    return FetchResponse(session_id=7, responses=(topic,))


def metadata_response(partitions: int) -> MetadataResponse:
    """Build the answer about one topic in a cluster of three brokers."""
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(
                node_id=node, host=f"broker-{node}.example.org", port=9092, rack=f"rack-{node}"
            )
            for node in replicas
        ),
        cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
        controller_id=BrokerId(1),
        topics=(
            MetadataResponseTopic(
                name=TopicName("measurements"),
                topic_id=TOPIC_ID,
                partitions=tuple(
                    MetadataResponsePartition(
                        partition_index=i,
                        leader_id=replicas[i % 3],
                        leader_epoch=5,
                        replica_nodes=replicas,
                        isr_nodes=replicas,
                    )
                    for i in range(partitions)
                ),
            ),
        ),
    )


def _compare(
    case: str, message: Request | Response, version: int, calls: int, rounds: int
) -> list[Row]:
    data = message.encode(version)
    peers = {
        "dohle": _ours(message, version, data),
        "kafka-python": _kafka_python(message, version, data),
        "kio": _kio(message, version, data),
    }
    rows = []
    for action in Action:
        medians = interleave(
            {name: _repeated(peer[action], calls) for name, peer in peers.items()}, rounds
        )
        is_promised = action is not Action.DECODE_VIEW or isinstance(message, ProduceRequest)
        rows += [
            Row(
                section="codec",
                case=f"{case}: {action}",
                unit="µs",
                ours=medians["dohle"],
                peer=peer,
                theirs=medians[peer],
                reach=1 / FACTOR if is_promised and peer == "kafka-python" else None,
            )
            for peer in ("kafka-python", "kio")
        ]
    return rows


def _repeated(action: Callable[[], object], calls: int) -> Callable[[], float]:
    def case() -> float:
        def loop() -> None:
            for _ in range(calls):
                action()

        return timed(loop) / calls * 1e6

    return case


def _codec(
    decode: Callable[[], object], decode_view: Callable[[], object], encode: Callable[[], object]
) -> Codec:
    return {Action.DECODE: decode, Action.DECODE_VIEW: decode_view, Action.ENCODE: encode}


def _ours(message: Request | Response, version: int, data: bytes) -> Codec:
    cls = type(message)
    view = memoryview(data)
    assert cls.from_bytes(version, data) == cls.from_bytes(version, view) == message
    return _codec(
        lambda: cls.from_bytes(version, data),
        lambda: cls.decode(version, view),
        lambda: message.encode(version),
    )


def _kafka_python(message: Request | Response, version: int, data: bytes) -> Codec:
    with warnings.catch_warnings():
        # It reads its schemas by a function that the standard library deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol import consumer, metadata, producer
    name = type(message).__name__
    module = next(module for module in (consumer, metadata, producer) if hasattr(module, name))
    peer: Any = getattr(module, name)
    value = peer.decode(data, version=version)
    value._header = None
    assert value.encode(version=version) == data

    def decode() -> object:
        return peer.decode(data, version=version)

    return _codec(decode, decode, lambda: value.encode(version=version))


def _kio(message: Request | Response, version: int, data: bytes) -> Codec:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    load = load_request_schema if isinstance(message, Request) else load_response_schema
    entity: Any = load(message.API_KEY, version)
    reader, writer = entity_reader(entity), entity_writer(entity)
    value, _ = reader(data, 0)

    def decode() -> object:
        return reader(data, 0)

    def encode() -> bytes:
        out = io.BytesIO()
        writer(out, value)
        return out.getvalue()

    assert encode() == data
    return _codec(decode, decode, encode)


if __name__ == "__main__":
    show(run(), as_json=False)
