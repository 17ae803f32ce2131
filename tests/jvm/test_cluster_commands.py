"""``dohle cluster`` against dohle and against Apache Kafka: it shows and does the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dohle.cli.main import main
from tests.jvm.conftest import NewTopic

Show = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def show(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Show:
    def run(*arguments: str) -> list[dict[str, Any]]:
        assert main(["-b", bootstrap, "cluster", *arguments, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_the_quorum_and_the_brokers_are_shown(show: Show, bootstrap: str) -> None:
    (quorum,) = show("quorum")
    assert quorum["leaderId"] == 1
    (only,) = quorum["replicas"]
    assert (only["nodeId"], only["status"], only["lag"]) == (1, "Leader", 0)
    (broker,) = show("brokers")
    assert (broker["id"], f"{broker['host']}:{broker['port']}") == (1, bootstrap)


def test_features_are_shown_and_checked(show: Show) -> None:
    levels = {row["feature"]: row["finalized"] for row in show("features")}
    assert levels["metadata.version"] == 29
    same = show("features", "--upgrade", "metadata.version=29", "--dry-run")
    assert same == [{"feature": "metadata.version", "level": 29, "result": "possible"}]


def test_leaders_are_elected(show: Show, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    assert {row["result"] for row in show("elect", topic)} == {"not needed"}
    assert show("elect", "--all") == []


def test_an_unknown_broker_is_not_unregistered(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-b", bootstrap, "cluster", "unregister", "77"]) == 1
    assert "(BROKER_ID_NOT_REGISTERED)" in capsys.readouterr().err
