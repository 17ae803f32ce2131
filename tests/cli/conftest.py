from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.testing.broker import Broker
from tests.cli.commands import Command


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """The address of a broker that all tests of commands share; each uses topics of its own."""
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
    with Broker(config) as broker:
        yield broker.bootstrap


@pytest.fixture
def command(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Command:
    """Commands against the broker that all share."""
    return Command(bootstrap, capsys, monkeypatch, tmp_path)
