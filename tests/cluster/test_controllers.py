"""Voters that come and go while the quorum works (KIP-853)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, controllers=2, dynamic_voters=True) as running:
        yield running


def run_command(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> Any:
    found = main(["-b", cluster.bootstrap, "--json", "cluster", *arguments])
    out, err = capsys.readouterr()
    assert found == code, err
    return err if code else json.loads(out)


def voters(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> list[int]:
    replicas = run_command(cluster, capsys, "quorum")["replicas"]
    return [one["nodeId"] for one in replicas if one["status"] != "Observer"]


def test_a_controller_is_added_and_the_leader_is_removed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """R105, R107, R31: through a broker, which sends it on to the leader."""
    first, second = cluster.controllers
    third = cluster.add_controller()
    assert voters(cluster, capsys) == [first, second]
    file = str(cluster.config_file(third))
    added = run_command(cluster, capsys, "add-controller", "--config", file)
    assert (added["nodeId"], added["result"]) == (third, "added")
    assert voters(cluster, capsys) == [first, second, third]
    again = run_command(cluster, capsys, "add-controller", "-c", file, code=1)
    assert "DUPLICATE_VOTER" in again
    leader = cluster.leader()
    removed = run_command(cluster, capsys, "remove-controller", str(leader))
    assert (removed["nodeId"], removed["result"]) == (leader, "removed")
    assert cluster.leader() != leader
    assert leader not in voters(cluster, capsys)
    nobody = run_command(cluster, capsys, "remove-controller", "77", code=1)
    assert "there is no voter 77" in nobody
