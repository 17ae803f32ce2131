"""A stream's progress under a group: to look at, and never in the stream's way."""

from __future__ import annotations

import logging

import pytest

from dohle.client import Cluster
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.spark.group_progress import GroupProgress
from dohle.testing import Broker
from tests.client.scripted_broker import ScriptedCluster, within
from tests.spark.source.reading import ask

PARTITION = TopicPartition(TopicName("t"), 0)


def _nobody(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = (Coordinator(key=key, error_code=code) for key in request.coordinator_keys)
    return FindCoordinatorResponse(coordinators=tuple(found))


def test_a_coordinator_that_is_not_there_holds_up_one_batch_for_a_short_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def commit() -> int:
        async with ScriptedCluster(topics={"t": 1}) as brokers:
            brokers.serve(ApiKey.FIND_COORDINATOR, _nobody)
            async with Cluster(brokers.bootstrap) as cluster:
                progress = GroupProgress(cluster, "g", time_limit_s=0.3)
                for offset in (1, 2, 3):
                    asked = len(brokers.asked(ApiKey.FIND_COORDINATOR))
                    await progress.commit({PARTITION: offset})
                    assert (len(brokers.asked(ApiKey.FIND_COORDINATOR)) > asked) is (offset == 1)
                return len(caplog.records)

    with caplog.at_level(logging.WARNING, "dohle.spark"):
        assert within(20, commit()) == 1
    assert "within 0.3 s" in caplog.text


def test_what_could_not_be_committed_is_committed_later(broker: Broker, topic: str) -> None:
    partition = TopicPartition(TopicName(topic), 0)

    async def commit() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            progress = GroupProgress(cluster, "later", time_limit_s=0.0, pause_s=0.0)
            await progress.commit({partition: 7})
            progress.time_limit_s = 20.0
            await progress.commit({partition: 7})

    within(30, commit())
    found = ask(broker, lambda admin: admin.list_group_offsets("later")).ok()
    assert {place: each.offset for place, each in found.items()} == {partition: 7}
