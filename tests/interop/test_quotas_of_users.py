"""Quotas of users who have logged in, over TLS (facts: security.md, section 9)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import confluent_kafka

from dohle.client import Admin
from dohle.client.admin.quotas import QuotaEntity
from dohle.testing.broker import Broker
from tests.security.authority import Authority, key_store, trust_store
from tests.server.security.secured import cluster_of, sasl_client, sasl_listener

_DEADLINE_S = 30.0


def _throttled(broker: Broker, authority: Authority, user: str) -> list[Any]:
    """Produce in a user's name; return what librdkafka tells of being throttled."""
    events: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.path),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
            "throttle_cb": events.append,
            "batch.size": 20_000,
            "linger.ms": 1,
        }
    )
    for _ in range(30):
        producer.produce("t", b"x" * 10_000)
    assert producer.flush(_DEADLINE_S) == 0
    return events


def test_a_user_has_a_quota_by_name_and_a_login_costs_nothing(tmp_path: Path) -> None:
    """9, Precedence: the name of the principal; nobody is ANONYMOUS who has yet to log in."""
    authority = Authority(tmp_path)
    stores = {**key_store(authority.issue()), **trust_store(authority)}
    properties = {**sasl_listener("SASL_SSL"), **stores, "quota.window.num": "2"}
    with Broker(properties) as broker:
        who = {**sasl_client("PLAIN", "admin", protocol="SASL_SSL"), **trust_store(authority)}

        async def limit() -> None:
            async with cluster_of(broker.bootstrap, who) as cluster:
                quotas: dict[QuotaEntity, dict[str, float | None]] = {
                    (("user", "alice"),): {"producer_byte_rate": 100_000.0},
                    (("user", "ANONYMOUS"),): {"request_percentage": 0.000_001},
                }
                (await Admin(cluster).alter_client_quotas(quotas)).ok()

        asyncio.run(limit())
        assert _throttled(broker, authority, "admin") == []
        assert any(event.throttle_time > 0 for event in _throttled(broker, authority, "alice"))
