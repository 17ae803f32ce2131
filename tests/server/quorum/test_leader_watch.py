"""What an operator is told of a quorum without a leader."""

from __future__ import annotations

import logging

import pytest

from dohle.server.quorum.leader_watch import TOLD_EACH_MS, LeaderWatch
from tests.raft.scripted import Scripted


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
