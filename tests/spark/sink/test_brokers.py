"""The steps of the sink on a broker, with both protocols of transactions and two-phase commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dohle.client import Cluster, ProducerConfig
from dohle.core.ids import TransactionalId
from dohle.testing import Broker
from tests.client.scripted_broker import within
from tests.client.transactions.features import set_transaction_version
from tests.spark.sink.sink_scenarios import SCENARIOS, Scenario, World, play


@pytest.fixture(scope="module", params=["v2", "v1", "two-phase"])
def brokers(request: pytest.FixtureRequest) -> Iterator[Broker]:
    config = {"transaction.state.log.num.partitions": "4"}
    if request.param == "two-phase":
        config["transaction.two.phase.commit.enable"] = "true"
    with Broker(config) as broker:
        if request.param == "v1":
            within(30, set_transaction_version(broker.bootstrap, 1))
        yield broker


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_exactly_once(brokers: Broker, scenario: Scenario) -> None:
    asyncio.run(play(scenario, brokers.bootstrap))


def test_transactions_wait_for_ever_where_brokers_offer_that() -> None:
    config = {"transaction.two.phase.commit.enable": "true", "transaction.max.timeout.ms": "70000"}
    with Broker(config) as broker:
        assert asyncio.run(_timeouts(broker.bootstrap)) == (True, False, False)


def test_transactions_last_as_long_as_brokers_allow_where_they_do_not() -> None:
    with Broker({"transaction.max.timeout.ms": "70000"}) as broker:
        assert asyncio.run(_timeouts(broker.bootstrap)) == (False, False, False)


async def _timeouts(bootstrap: str) -> tuple[bool, ...]:
    """Open three producers; return which of their transactions can wait for ever."""
    found = []
    async with Cluster(bootstrap) as cluster:
        brokers = World(cluster, "timeouts").brokers()
        for timeout_ms, may_wait, expected_ms in (
            (None, True, 70_000),
            (None, False, 70_000),
            (5000, True, 5000),
        ):
            producer, is_two_phase = await brokers.open_producer(
                TransactionalId("t"), ProducerConfig(), timeout_ms, may_wait_for_ever=may_wait
            )
            found.append(is_two_phase)
            if not is_two_phase:
                assert producer.config.transaction_timeout_ms == expected_ms
            await producer.close()
    return tuple(found)
