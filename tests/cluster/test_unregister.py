"""A broker that is gone for good is taken out of the cluster (A43)."""

from __future__ import annotations

import json

import pytest

from dohle.cli.main import main
from dohle.testing import Cluster


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_broker_that_has_stopped_is_unregistered_and_may_come_back(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    with Cluster(brokers=2, controllers=1) as cluster:
        kept, gone = cluster.brokers
        cluster.stop(gone)
        flags = ["--json"] if as_json else []
        address = cluster.address(kept)
        assert main(["-b", address, *flags, "cluster", "unregister", str(gone)]) == 0
        out, err = capsys.readouterr()
        if as_json:
            assert json.loads(out) == {"id": gone, "result": "unregistered"}
        else:
            assert out == f"broker {gone} is not a part of the cluster any more\n"
        assert err == ""
        assert brokers(address, capsys) == [kept]
        cluster.restart(gone)
        cluster.wait_until_ready()
        assert brokers(address, capsys) == [kept, gone]


def brokers(address: str, capsys: pytest.CaptureFixture[str]) -> list[int]:
    assert main(["-b", address, "--json", "cluster", "brokers"]) == 0
    return [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
