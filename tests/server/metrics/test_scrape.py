"""What a scrape tells of a node that clients have worked with, by the names dashboards know."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.server.node import Node
from tests.server.metrics.scraping import Series, scrape, value
from tests.server.metrics.working import TOPIC, delete_topic, fetch_request
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request

HTTP = {"metrics.listener": "127.0.0.1:0"}
TIMES = 20
PRODUCE, FETCH = 12, 12


def test_all_requests_are_counted_also_those_that_a_shortcut_serves(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        for _ in range(TIMES):
            await wire.send(produce_request(TOPIC, batch(b"v")), PRODUCE)
            await wire.send(fetch_request(0), FETCH)
        (connection,) = [c for c in node.listeners[0].connections if c.shortcuts]
        assert sum(shortcut.served for shortcut in connection.shortcuts.values()) > TIMES
        name = "kafka_network_requestmetrics_requests_total"
        for _ in range(2):
            series = await scrape(node)
            assert value(series, name, request="Produce", version=str(PRODUCE)) == TIMES
            for kind in ("Fetch", "FetchConsumer"):
                assert value(series, name, request=kind, version=str(FETCH)) == TIMES

    on_node(tmp_path, scenario, HTTP)


def test_requests_of_a_connection_that_has_gone_stay_counted(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        async with await Wire.connect(node) as other:
            for _ in range(TIMES):
                await other.send(produce_request(TOPIC, batch(b"v")), PRODUCE)
        while len(node.listeners[0].connections) > 1:
            await asyncio.sleep(0)
        name = "kafka_network_requestmetrics_requests_total"
        series = await scrape(node)
        assert value(series, name, request="Produce", version=str(PRODUCE)) == TIMES
        labels = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        network = "kafka_server_socket_server_metrics"
        assert value(series, f"{network}_connection_count", **labels) == 1
        assert value(series, f"{network}_connection_close_total", **labels) == 1
        assert value(series, f"{network}_connection_creation_total", **labels) == 2
        assert value(series, f"{network}_incoming_byte_total", **labels) > TIMES * 70
        assert value(series, f"{network}_outgoing_byte_total", **labels) > TIMES * 40

    on_node(tmp_path, scenario, HTTP)


def test_times_have_quantiles_and_sum_up_to_the_total(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        for _ in range(TIMES):
            await wire.send(produce_request(TOPIC, batch(b"v")), PRODUCE)
        # It waits for records until its time is up: that is remote time.
        await wire.send(fetch_request(TIMES, max_wait_ms=60), FETCH)
        series = await scrape(node)

        def of(name: str, kind: str, quantile: str) -> float:
            full = f"kafka_network_requestmetrics_{name}"
            return value(series, full, request=kind, quantile=quantile)

        for kind in ("Produce", "CreateTopics", "FetchConsumer", "Fetch"):
            for quantile in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999"):
                assert of("totaltimems", kind, quantile) > 0
        parts = ("requestqueuetimems", "localtimems", "remotetimems", "responsesendtimems")
        total = of("totaltimems", "FetchConsumer", "0.50")
        assert sum(of(part, "FetchConsumer", "0.50") for part in parts) == pytest.approx(
            total, rel=0.001
        )
        assert of("remotetimems", "FetchConsumer", "0.50") >= 50
        assert of("remotetimems", "Produce", "0.99") == 0
        assert of("requestbytes", "Produce", "0.50") > 70
        count = "kafka_network_requestmetrics_totaltimems_count"
        assert value(series, count, request="Produce") == TIMES

    on_node(tmp_path, scenario, HTTP)


def test_errors_are_counted_by_kind_of_request_on_both_paths(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, configs={"max.message.bytes": "200"})
        good, large = batch(b"v"), batch(bytes(300))
        for records in (good, good, good, large, large, good):
            await wire.send(produce_request(TOPIC, records), PRODUCE)
        await wire.send(fetch_request(999), FETCH)
        series = await scrape(node)
        errors = "kafka_network_requestmetrics_errors_total"
        assert value(series, errors, request="Produce", error="NONE") == 4
        assert value(series, errors, request="Produce", error="MESSAGE_TOO_LARGE") == 2
        # One code is the request's own, another the partition's.
        assert value(series, errors, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
        assert value(series, errors, request="Fetch", error="NONE") == 1
        topics = "kafka_server_brokertopicmetrics"
        for labels in ({}, {"topic": TOPIC}):
            assert value(series, f"{topics}_failedproducerequests_total", **labels) == 2
            assert value(series, f"{topics}_totalproducerequests_total", **labels) == 6
            assert value(series, f"{topics}_bytesrejected_total", **labels) == 2 * len(large)
            assert value(series, f"{topics}_failedfetchrequests_total", **labels) == 1

    on_node(tmp_path, scenario, HTTP)


def test_topics_have_series_of_their_own_and_totals_outlive_them(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        records = batch(b"a", b"b", b"c")
        for topic in (TOPIC, "short-lived"):
            await create_topic(wire, topic)
            for _ in range(TIMES):
                await wire.send(produce_request(topic, records), PRODUCE)
            for _ in range(3):
                await wire.send(fetch_request(0, topic=topic), FETCH)
        size = TIMES * len(records)
        expected = {
            "messagesin": 3 * TIMES,
            "bytesin": size,
            "bytesout": 3 * size,
            "totalproducerequests": TIMES,
            "totalfetchrequests": 3,
        }

        def check(series: Series, topic: str, factor: int) -> None:
            for name, count in expected.items():
                full = f"kafka_server_brokertopicmetrics_{name}_total"
                assert value(series, full, topic=topic) == count, name
                assert value(series, full) == factor * count, name

        series = await scrape(node)
        check(series, TOPIC, 2)
        check(series, "short-lived", 2)
        assert value(series, "kafka_topic_partitions", topic="short-lived") == 1
        await delete_topic(wire, "short-lived")
        series = await scrape(node)
        check(series, TOPIC, 2)
        gone = [
            (name, labels)
            for name, by_labels in series.items()
            for labels in by_labels
            if ("topic", "short-lived") in labels
        ]
        assert gone == []

    on_node(tmp_path, scenario, HTTP)


def test_logs_are_told_partition_by_partition(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=3)
        records = batch(b"a", b"b")
        for _ in range(4):
            await wire.send(produce_request(TOPIC, records, partition=1), PRODUCE)
        series = await scrape(node)
        of_1 = {"topic": TOPIC, "partition": "1"}
        for name, expected in {
            "kafka_log_log_size": 4 * len(records),
            "kafka_log_log_logstartoffset": 0,
            "kafka_log_log_logendoffset": 8,
            "kafka_log_log_numlogsegments": 1,
            "dohle_log_unflushed_records": 8,
            "kafka_topic_partition_current_offset": 8,
            "kafka_topic_partition_oldest_offset": 0,
            "kafka_topic_partition_leader": 1,
            "kafka_topic_partition_leader_is_preferred": 1,
            "kafka_cluster_partition_replicascount": 1,
            "kafka_cluster_partition_insyncreplicascount": 1,
            "kafka_cluster_partition_underreplicated": 0,
            "kafka_cluster_partition_laststableoffsetlag": 0,
        }.items():
            assert value(series, name, **of_1) == expected, name
            assert len(series[name]) == 3
        assert value(series, "kafka_topic_partitions", topic=TOPIC) == 3
        assert value(series, "kafka_server_replicamanager_partitioncount") == 3
        assert value(series, "kafka_server_replicamanager_leadercount") == 3

    on_node(tmp_path, scenario, HTTP)


def test_series_of_partitions_can_be_left_out(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=3)
        series = await scrape(node)
        assert not [
            name
            for name, by_labels in series.items()
            for labels in by_labels
            if any(label == "partition" for label, _ in labels)
        ]
        assert value(series, "kafka_topic_partitions", topic=TOPIC) == 3

    on_node(tmp_path, scenario, {**HTTP, "metrics.per.partition": "false"})


def test_alerts_that_people_have_find_their_series_on_a_healthy_node(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        series = await scrape(node)
        for name, healthy in {
            "kafka_controller_kafkacontroller_activecontrollercount": 1,
            "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 0,
            "kafka_controller_kafkacontroller_globaltopiccount": 1,
            "kafka_controller_kafkacontroller_activebrokercount": 1,
            "kafka_controller_kafkacontroller_fencedbrokercount": 0,
            "kafka_server_replicamanager_underreplicatedpartitions": 0,
            "kafka_server_replicamanager_underminisrpartitioncount": 0,
            "kafka_server_replicamanager_offlinereplicacount": 0,
            "kafka_log_logmanager_offlinelogdirectorycount": 0,
            "kafka_server_kafkaserver_brokerstate": 3,
            "kafka_brokers": 1,
        }.items():
            assert value(series, name) == healthy, name
        data = {"logDirectory": str(tmp_path / "data")}
        assert value(series, "kafka_log_logmanager_logdirectoryoffline", **data) == 0
        total = value(series, "dohle_log_directory_total_bytes", **data)
        assert 0 < value(series, "dohle_log_directory_free_bytes", **data) <= total
        assert value(series, "process_resident_memory_bytes") > 1 << 20
        assert value(series, "process_max_fds") >= value(series, "process_open_fds") > 3
        assert value(series, "process_cpu_seconds_total") > 0
        fetch = {"delayedOperation": "Fetch"}
        assert value(series, "kafka_server_delayedoperationpurgatory_purgatorysize", **fetch) == 0

    on_node(tmp_path, scenario, HTTP)


def test_a_delayed_fetch_is_in_the_purgatory(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        async with await Wire.connect(node) as other:
            waiting = asyncio.ensure_future(other.send(fetch_request(0, max_wait_ms=20_000), FETCH))
            while not node.broker.purgatory.count:
                await asyncio.sleep(0)
            series = await scrape(node)
            name = "kafka_server_delayedoperationpurgatory_purgatorysize"
            assert value(series, name, delayedOperation="Fetch") == 1
            await wire.send(produce_request(TOPIC, batch(b"v")), PRODUCE)
            await waiting

    on_node(tmp_path, scenario, HTTP)


def test_flushes_are_counted_and_timed(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, configs={"flush.messages": "1"})
        for _ in range(3):
            await wire.send(produce_request(TOPIC, batch(b"v")), PRODUCE)
        series = await scrape(node)
        name = "kafka_log_logflushstats_logflushrateandtimems"
        assert value(series, f"{name}_count") == 3
        assert value(series, name, quantile="0.99") >= 0

    on_node(tmp_path, scenario, HTTP)
