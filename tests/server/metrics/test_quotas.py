"""What a scrape tells of clients with quotas (facts: observability.md, section 1.1)."""

from __future__ import annotations

from pathlib import Path

from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.server.node import Node
from tests.server.metrics.scraping import scrape, value
from tests.server.metrics.working import fetch_request
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request

HTTP = {"metrics.listener": "127.0.0.1:0", "quota.window.num": "2"}
TIME = "kafka_server_quota_request_time"
RATE, WAIT = "kafka_server_quota_byte_rate", "kafka_server_quota_throttle_time"


def test_rates_and_waits_are_told_of_those_that_have_a_quota(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        assert not (await scrape(node)).get(RATE)
        quota = AlterClientQuotasRequestEntryData(
            entity=(EntityData(entity_type="user", entity_name="ANONYMOUS"),),
            ops=(OpData(key="producer_byte_rate", value=5_000.0),),
        )
        await wire.send(AlterClientQuotasRequest(entries=(quota,)))
        answer = await wire.send(produce_request("t", batch(b"v" * 5_500)), 12)
        assert answer.throttle_time_ms > 0
        series = await scrape(node)
        whom = {"resource": "Produce", "user": "ANONYMOUS", "clientId": ""}
        assert value(series, WAIT, **whom) == answer.throttle_time_ms
        assert 0 < value(series, RATE, **whom) < 6_000

    on_node(tmp_path, scenario, HTTP)


def test_who_uses_too_much_of_the_loop_waits_for_a_window_at_most(tmp_path: Path) -> None:
    """9, Violation: request_percentage, at most one window; it applies to every API."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        quota = AlterClientQuotasRequestEntryData(
            entity=(EntityData(entity_type="user", entity_name="ANONYMOUS"),),
            ops=(OpData(key="request_percentage", value=0.000_001),),
        )
        await wire.send(AlterClientQuotasRequest(entries=(quota,)))
        # What it has used is known from the next answer on.
        await wire.send(MetadataRequest(topics=()))
        answer = await wire.send(MetadataRequest(topics=()))
        assert answer.throttle_time_ms == 1000
        begun = node.broker.clock.monotonic_s()
        series = await scrape(node)
        whom = {"resource": "Request", "user": "ANONYMOUS", "clientId": ""}
        assert value(series, TIME, **whom) > 0
        assert value(series, WAIT, **whom) == 1000
        # Fetches are answered without records meanwhile.
        found = await wire.send(fetch_request(0, topic="t"), 12)
        assert node.broker.clock.monotonic_s() - begun > 0.9
        assert (found.throttle_time_ms, found.responses) == (1000, ())

    on_node(tmp_path, scenario, HTTP)
