"""What a scrape tells of clients with quotas (facts: observability.md, section 1.1)."""

from __future__ import annotations

from pathlib import Path

from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from dohle.server.node import Node
from tests.server.metrics.scraping import scrape, value
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request

HTTP = {"metrics.listener": "127.0.0.1:0", "quota.window.num": "2"}
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
