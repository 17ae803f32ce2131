"""What a scrape tells of what was refused, and of what waits or is late."""

from __future__ import annotations

import struct
from pathlib import Path

import crc32c

from dohle.core.ids import ProducerId
from dohle.records.builder import BatchBuilder
from dohle.records.legacy import encode_message
from dohle.server.metrics.broker import collect_broker
from dohle.server.node import Node
from tests.server.handlers.offsets import commit, find_coordinator
from tests.server.metrics.scraping import parse, scrape, value
from tests.server.transactions.txn_producer import PROPERTIES, TxnProducer, on_transactional_node
from tests.server.transactions.txn_producer import produce_request as produce_in_transaction
from tests.server.wire import Wire, batch, create_topic, on_node, produce, produce_request

HTTP = {"metrics.listener": "127.0.0.1:0"}
TOPIC = "orders"
HOUR_MS = 3_600_000


def miscounted(batch: bytes) -> bytes:
    """Return a batch that says it has one record more, with the checksum of that."""
    changed = bytearray(batch)
    struct.pack_into(">i", changed, 57, 2)
    struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_refused_batches_are_counted_by_what_is_wrong_with_them(tmp_path: Path) -> None:
    """``Invalid...RecordsPerSec`` and NoKeyCompactedTopicRecordsPerSec, of all topics."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        await create_topic(wire, "compacted", configs={"cleanup.policy": "compact"})
        good = batch(b"v")
        damaged = good[:-1] + bytes([good[-1] ^ 1])
        for records in (good, damaged, miscounted(good), miscounted(good)):
            await produce(wire, TOPIC, records)
        await produce(wire, "compacted", batch(b"a", b"b", b"c"))
        mixed = encode_message(0, 1, 0, 1_000, None, b"v") + encode_message(1, 0, 0, -1, None, b"v")
        await wire.send(produce_request(TOPIC, mixed), 2)
        series = await scrape(node)
        for name, expected in {
            "invalidmessagecrcrecords": 1,
            "invalidoffsetorsequencerecords": 2,
            "invalidmagicnumberrecords": 1,
            "nokeycompactedtopicrecords": 3,
        }.items():
            full = f"kafka_server_brokertopicmetrics_{name}_total"
            assert value(series, full) == expected, name
            assert len(series[full]) == 1, "Kafka tells no topic"

    on_node(tmp_path, scenario, HTTP)


def test_a_transaction_that_is_open_for_longer_than_any_may_be_is_late(tmp_path: Path) -> None:
    """PartitionsWithLateTransactionsCount: by the producer's last record, with 5 minutes more."""

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        name = "kafka_server_replicamanager_partitionswithlatetransactionscount"
        assert (await producer.send("a", b"in time")).error_code == 0
        assert value(await scrape(node), name) == 0
        builder = BatchBuilder(
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        builder.append(node.broker.clock.now_ms() - HOUR_MS, None, b"late")
        data = [("b", 0, bytes(builder.build()))]
        await wire.send(produce_in_transaction(producer.transactional_id, data), 12)
        assert value(await scrape(node), name) == 1
        await producer.ended(commit=False)
        assert value(await scrape(node), name) == 0

    on_transactional_node(tmp_path, scenario, **HTTP)


def test_committed_offsets_are_counted_on_both_paths(tmp_path: Path) -> None:
    """``offset_commit_total`` of group-coordinator-metrics: one for each partition."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=2)
        await find_coordinator(node, wire)
        for number in range(10):
            told = await commit(node, wire, {(TOPIC, 0): number, (TOPIC, 1): number})
            assert set(told.values()) == {0}
        (connection,) = [c for c in node.listeners[0].connections if c.shortcuts]
        assert sum(shortcut.served for shortcut in connection.shortcuts.values()) > 0
        name = "kafka_server_group_coordinator_metrics_offset_commit_total"
        assert value(await scrape(node), name) == 20

    on_node(tmp_path, scenario, {**HTTP, **PROPERTIES})


def test_requests_that_wait_for_their_turn_are_in_the_queue(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        name = "kafka_network_requestchannel_requestqueuesize"
        assert value(parse("".join(collect_broker(node.sources))), name) == 0
        for _ in range(3):
            node.broker.turns.wait(0.0, lambda: None)
        assert value(parse("".join(collect_broker(node.sources))), name) == 3

    on_node(tmp_path, scenario, HTTP)
