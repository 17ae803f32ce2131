from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.testing.broker import Broker
from tests.cli.running import Command


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """The address of a broker that all tests of commands share; each uses topics of its own."""
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "transaction.two.phase.commit.enable": "true",
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


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where nobody listens, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
