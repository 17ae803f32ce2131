"""What a scrape tells of the metadata log: its controller, its quorum, and who reads it."""

from __future__ import annotations

from pathlib import Path

from dohle.server.node import Node
from tests.server.metrics.scraping import scrape, value
from tests.server.wire import Wire, create_topic, on_node

HTTP = {"metrics.listener": "127.0.0.1:0"}
CONTROLLER = "kafka_controller_kafkacontroller"
RAFT = "kafka_server_raftmetrics"
APPLIED = "kafka_server_brokermetadatametrics_last_applied_record"


def test_the_metadata_log_is_told_as_kafka_tells_it(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        before = await scrape(node)
        await create_topic(wire, "t")
        series = await scrape(node)
        raft = node.sources.quorum.raft if node.sources.quorum is not None else None
        assert raft is not None
        offset = node.broker.image.offset
        for name, expected in {
            "kafka_controller_controllerstats_uncleanleaderelections_total": 0,
            f"{CONTROLLER}_newactivecontrollerscount": 1,
            f"{CONTROLLER}_timedoutbrokerheartbeatcount": 0,
            f"{CONTROLLER}_lastappliedrecordoffset": offset,
            f"{CONTROLLER}_lastcommittedrecordoffset": offset,
            f"{CONTROLLER}_lastappliedrecordlagms": 0,
            f"{RAFT}_current_leader": node.config.node_id,
            f"{RAFT}_current_vote": node.config.node_id,
            f"{RAFT}_current_epoch": raft.leader.epoch,
            f"{RAFT}_high_watermark": offset + 1,
            f"{RAFT}_log_end_offset": offset + 1,
            f"{RAFT}_log_end_epoch": raft.leader.epoch,
            f"{RAFT}_number_of_voters": 1,
            f"{APPLIED}_offset": offset,
            f"{APPLIED}_lag_ms": 0,
        }.items():
            assert value(series, name) == expected, name
        assert value(series, f"{RAFT}_current_state", current_state="leader") == 1
        timestamp = value(series, f"{APPLIED}_timestamp")
        assert timestamp == value(series, f"{CONTROLLER}_lastappliedrecordtimestamp")
        assert 0 <= node.broker.clock.now_ms() - timestamp < 60_000
        assert value(before, f"{APPLIED}_offset") < offset
        for name in ("eventqueuetimems", "eventqueueprocessingtimems"):
            full = f"kafka_controller_controllereventmanager_{name}"
            assert value(series, full, quantile="0.99") >= 0
            assert value(series, f"{full}_count") > value(before, f"{full}_count")

    on_node(tmp_path, scenario, HTTP)
