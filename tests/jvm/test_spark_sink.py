"""The steps of the Spark sink on Apache Kafka: both protocols of transactions, two-phase commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.transactions.features import set_transaction_version
from tests.interop.quick_broker import QUICK
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.spark.sink.sink_scenarios import SCENARIOS, Scenario, World, play


@pytest.fixture(params=[2, 1])
def versioned(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[str]:
    """A broker with one of the two protocols; the newer one is there again afterwards."""
    if request.param == 2:
        yield bootstrap
        return
    asyncio.run(set_transaction_version(bootstrap, 1))
    yield bootstrap
    asyncio.run(set_transaction_version(bootstrap, 2))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_exactly_once(versioned: str, scenario: Scenario) -> None:
    asyncio.run(play(scenario, versioned))


def test_exactly_once_with_transactions_that_wait_for_ever(
    classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    config = {
        **QUICK,
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
    }
    kafka = ApacheKafka(classpath, tmp_path, config)
    kafka.format(jvm)
    with kafka:
        for scenario in (it_waits_for_ever, *SCENARIOS):
            asyncio.run(play(scenario, kafka.bootstrap))


async def it_waits_for_ever(world: World) -> None:
    assert (await world.write(world.batch(0), 0, "a")).is_two_phase
