"""What nodes that are brokers and controllers log when others go and come back."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from dohle.client import Admin
from tests.server.replicas.stage import WITHIN_S, on_stage


def of_level(records: Iterable[logging.LogRecord], level: int) -> list[str]:
    return [each.getMessage() for each in records if each.levelno >= level]


def test_a_node_that_is_left_alone_says_what_it_misses_once_and_when_that_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its broker, its controller and its part in the quorum notice the same: one of them tells."""
    caplog.set_level(logging.INFO, logger="dohle.server")
    with on_stage() as stage:
        stage.produce(b"a")
        stage.await_in_sync()
        cluster, world, leader = stage.cluster, stage.cluster.world, stage.leader
        alone = next(id for id in cluster.machines if id != leader)
        others = [id for id in cluster.machines if id != alone]
        caplog.clear()
        for each in others:
            cluster.kill(each)
        world.run_for(60)
        warned = of_level(caplog.records, logging.WARNING)
        copying = [
            each for each in warned if each.startswith(f"cannot copy from broker {leader}: ")
        ]
        missing = [each for each in warned if each.startswith("the quorum has no leader that this")]
        assert len(copying) == 1
        assert len(missing) == 4, "after 5, 10, 20 and 40 s"
        assert sorted(warned) == sorted(copying + missing)
        caplog.clear()
        for each in others:
            cluster.start(each)
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        told = of_level(caplog.records, logging.INFO)
        assert sum("the quorum has a leader again, node " in each for each in told) == 1
        over = {
            f"broker {leader} is reached again, and copied from",
            f"broker {leader} leads nothing any more that is copied here",
        }
        assert sum(each in over for each in told) == 1


def test_topics_that_are_new_are_no_news_of_their_followers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Leaders that have not heard yet that they lead refuse for a moment, which needs no line."""
    caplog.set_level(logging.INFO, logger="dohle.server")
    with on_stage(offsets_topic_num_partitions="10") as stage:
        caplog.clear()
        stage.run(lambda client: Admin(client).describe_groups(["g"]))
        cluster = stage.cluster
        cluster.world.run_until(lambda: cluster.is_in_sync("__consumer_offsets"), WITHIN_S)
        told = of_level(caplog.records, logging.INFO)
        assert [each for each in told if "NOT_LEADER" in each or "answers" in each] == []
