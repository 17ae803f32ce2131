"""The ledger's topic is compacted: made so, mended where that harms nobody, or else refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dohle.client import Admin, Cluster, NewTopic, Producer
from dohle.client.admin.config_values import ConfigResource, ResourceType
from dohle.core.errors import ErrorCode, KafkaError
from dohle.spark.sink.ledger import LedgerReader
from dohle.testing import Broker
from tests.client.scripted_broker import within


async def create(cluster: Cluster, name: str, configs: Mapping[str, str]) -> None:
    (await Admin(cluster).create_topics([NewTopic(name, 1, 1, configs=dict(configs))])).ok()


async def policy(cluster: Cluster, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, name)
    (entry,) = (await Admin(cluster).describe_configs([resource], names=["cleanup.policy"])).one()
    return entry.value


def test_a_new_ledger_is_compacted(broker: Broker) -> None:
    async def body() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await LedgerReader(cluster, "new-ledger").ensure_topic()
            assert await policy(cluster, "new-ledger") == "compact"
            # It is as it should be for the next.
            await LedgerReader(cluster, "new-ledger").ensure_topic()

    within(30, body())


def test_one_that_a_broker_has_created_by_itself_becomes_compacted(broker: Broker) -> None:
    async def body() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await create(cluster, "default-ledger", {})
            await LedgerReader(cluster, "default-ledger").ensure_topic()
            assert await policy(cluster, "default-ledger") == "compact"

    within(30, body())


@pytest.mark.parametrize("kept", ["compact", ""])
def test_one_whose_records_are_kept_is_left_alone(broker: Broker, kept: str) -> None:
    async def body() -> None:
        name = f"kept-{kept}"
        async with Cluster(broker.bootstrap) as cluster:
            await create(cluster, name, {"cleanup.policy": kept})
            await LedgerReader(cluster, name).ensure_topic()
            assert await policy(cluster, name) == kept

    within(30, body())


@pytest.mark.parametrize("chosen", ["delete", "compact,delete"])
def test_one_whose_records_are_meant_to_expire_is_refused(broker: Broker, chosen: str) -> None:
    async def body() -> None:
        name = f"expiring-{chosen}".replace(",", "-")
        async with Cluster(broker.bootstrap) as cluster:
            await create(cluster, name, {"cleanup.policy": chosen})
            with pytest.raises(KafkaError, match=f"{name} --config cleanup.policy=compact") as told:
                await LedgerReader(cluster, name).ensure_topic()
            assert told.value.code is ErrorCode.INVALID_CONFIG
            assert await policy(cluster, name) == chosen

    within(30, body())


def test_one_with_records_is_refused_as_it_may_be_of_something_else(broker: Broker) -> None:
    async def body() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await create(cluster, "orders", {})
            async with Producer(cluster) as producer:
                await (await producer.send_soon("orders", b"without a key"))
            with pytest.raises(KafkaError, match="choose another topic"):
                await LedgerReader(cluster, "orders").ensure_topic()
            assert await policy(cluster, "orders") == "delete"

    within(30, body())
