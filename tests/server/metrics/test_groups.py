"""Groups with their lag, and transactions, as a scrape tells of them."""

from __future__ import annotations

from pathlib import Path

from dohle.server.node import Node
from tests.server.handlers.classic_members import stable
from tests.server.handlers.offsets import commit, find_coordinator
from tests.server.metrics.scraping import scrape, value
from tests.server.metrics.working import delete_topic
from tests.server.transactions.transaction_wire import add, end, find, producer_of
from tests.server.transactions.txn_producer import PROPERTIES
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request

HTTP = {"metrics.listener": "127.0.0.1:0", **PROPERTIES}
TOPIC = "orders"
PRODUCE = 12


def test_lag_is_told_by_partition_and_by_topic(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=2)
        for partition, count in ((0, 3), (1, 5)):
            for _ in range(count):
                await wire.send(produce_request(TOPIC, batch(b"a", b"b"), partition), PRODUCE)
        await find_coordinator(node, wire)
        group = 'g"\\\n1'
        for name, offsets in ((group, (1, 10)), ("other", (6, 0))):
            told = await commit(
                node, wire, {(TOPIC, 0): offsets[0], (TOPIC, 1): offsets[1]}, group=name
            )
            assert set(told.values()) == {0}
        series = await scrape(node)
        of_0 = {"consumergroup": group, "topic": TOPIC, "partition": "0"}
        of_1 = {"consumergroup": group, "topic": TOPIC, "partition": "1"}
        assert value(series, "kafka_consumergroup_current_offset", **of_0) == 1
        assert value(series, "kafka_consumergroup_lag", **of_0) == 5
        assert value(series, "kafka_consumergroup_lag", **of_1) == 0
        for name, offset, lag in ((group, 11, 5), ("other", 6, 10)):
            labels = {"consumergroup": name, "topic": TOPIC}
            assert value(series, "kafka_consumergroup_current_offset_sum", **labels) == offset
            assert value(series, "kafka_consumergroup_lag_sum", **labels) == lag
            assert value(series, "kafka_consumergroup_members", consumergroup=name) == 0
        manager = "kafka_coordinator_group_groupmetadatamanager"
        assert value(series, f"{manager}_numgroups") == 2
        assert value(series, f"{manager}_numgroupsempty") == 2
        assert value(series, f"{manager}_numoffsets") == 4
        await delete_topic(wire, TOPIC)
        series = await scrape(node)
        assert "kafka_consumergroup_lag" not in series

    on_node(tmp_path, scenario, HTTP)


def test_members_and_states_of_groups_are_told(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        await stable(wire)
        series = await scrape(node)
        assert value(series, "kafka_consumergroup_members", consumergroup="g") == 1
        manager = "kafka_coordinator_group_groupmetadatamanager"
        assert value(series, f"{manager}_numgroupsstable") == 1
        counts = "kafka_server_group_coordinator_metrics_group_count"
        assert value(series, counts, protocol="classic") == 1
        assert value(series, counts, protocol="consumer") == 0

    on_node(tmp_path, scenario, HTTP)


def test_transactions_are_told_by_state(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        await find(wire)
        producer = await producer_of(wire)
        series = await scrape(node)
        assert value(series, "dohle_transactions", state="Empty") == 1
        assert await add(wire, producer, (TOPIC, 0)) == {(TOPIC, 0): 0}
        series = await scrape(node)
        assert value(series, "dohle_transactions", state="Ongoing") == 1
        assert value(series, "dohle_transaction_oldest_open_seconds") >= 0
        await end(wire, producer)
        series = await scrape(node)
        assert value(series, "dohle_transactions", state="Ongoing") == 0

    on_node(tmp_path, scenario, HTTP)
