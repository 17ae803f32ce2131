"""What an operator is told of a quorum without a leader."""

from __future__ import annotations

import logging

import pytest

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.fetch import FetchRequest
from dohle.server.quorum.leader_watch import TOLD_AFTER_MS, LeaderWatch
from tests.raft.scripted import Scripted, fetch_answer

_WHAT_TO_DO = (
    "Start the controllers that are down: until most of them run, metadata cannot be changed"
)


def test_a_node_says_whom_it_tried_less_and_less_often_and_when_that_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="dohle.server")
    node = Scripted()
    watch = LeaderWatch(node.raft, lambda: "node-2:9002 refused the connection")
    for now_ms in range(0, TOLD_AFTER_MS, 100):
        watch.look(now_ms)
    assert caplog.messages == [], "an election may take its time"
    for now_ms in range(TOLD_AFTER_MS, 300_000, 100):
        watch.look(now_ms)
    first, *more = caplog.messages
    assert first == (
        "the quorum has no leader that this node can reach: tried 2@node-2:9002, 3@node-3:9003 "
        f"for 5 s (node-2:9002 refused the connection). {_WHAT_TO_DO}"
    )
    after_s = [int(each.partition(" s (")[0].rpartition(" ")[2]) for each in more]
    assert after_s == [10, 20, 40, 80, 140, 200, 260]
    node.elect()
    watch.look(300_000)
    watch.look(400_000)
    assert caplog.messages[8:] == ["the quorum has a leader again, node 1, after 300 s"]


def test_a_broker_that_hears_of_no_leader_says_so_and_knows_for_how_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Scripted(9, is_controller=False)
    watch = LeaderWatch(node.raft)
    watch.look(node.now_ms)
    node.wait(10_000)
    assert watch.leaderless_ms(node.now_ms) == 10_000
    elsewhere = fetch_answer(1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    node.answer(node.take(FetchRequest), elsewhere)
    watch.look(node.now_ms)
    assert watch.leaderless_ms(node.now_ms) == 10_000, "the leader has not answered yet"
    node.answer(node.take(FetchRequest, 2), fetch_answer(1))
    watch.look(node.now_ms)
    assert watch.leaderless_ms(node.now_ms) == 0
    silent_from_ms = node.now_ms + node.config.fetch_timeout_ms
    node.wait(60_000)
    assert watch.leaderless_ms(node.now_ms) == node.now_ms - silent_from_ms
    watch.look(silent_from_ms)
    watch.look(node.now_ms)
    assert watch.leaderless_ms(node.now_ms) == node.now_ms - silent_from_ms
    assert [each.partition(" for ")[2].partition(" s.")[0] for each in caplog.messages] == [
        "10",
        "58",
    ]
