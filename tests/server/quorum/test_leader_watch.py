"""What an operator is told of a quorum without a leader."""

from __future__ import annotations

import logging

import pytest

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.fetch import FetchRequest
from dohle.server.quorum.leader_watch import TOLD_EACH_MS, LeaderWatch
from tests.raft.scripted import Scripted, fetch_answer


def test_a_controller_says_once_in_a_while_whom_it_tried(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="dohle.server")
    node = Scripted()
    watch = LeaderWatch(node.raft)
    for now_ms in range(0, TOLD_EACH_MS, 100):
        watch.look(now_ms)
    assert caplog.messages == [], "an election may take its time"
    for now_ms in range(TOLD_EACH_MS, 3 * TOLD_EACH_MS, 100):
        watch.look(now_ms)
    first, second = caplog.messages
    assert first.endswith("tried 2@node-2:9002, 3@node-3:9003 for 5 s")
    assert second.endswith("for 10 s")
    node.elect()
    watch.look(3 * TOLD_EACH_MS)
    watch.look(9 * TOLD_EACH_MS)
    assert caplog.messages[2:] == ["the quorum has a leader again: 1"]


def test_a_broker_that_hears_of_no_leader_knows_for_how_long_and_is_quiet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Scripted(9, is_controller=False)
    watch = LeaderWatch(node.raft, tells=False)
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
    assert caplog.messages == []
