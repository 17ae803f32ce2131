"""``dohle topic describe`` of topics that are dirty, cleaned, and cannot be cleaned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dohle.testing.broker import Broker
from tests.cli.running import Command, lines

DEADLINE_S = 30.0


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """Commands against a broker that cleans soon."""
    data = tmp_path / "data"
    with Broker({"log.cleaner.backoff.ms": "5"}, data=str(data)) as broker:
        yield Command(broker.bootstrap, capsys, monkeypatch, tmp_path)


def fill(command: Command, topic: str) -> None:
    """Write one key often, to a topic that is compacted, and never dirty enough to be cleaned."""
    configs = (
        "cleanup.policy=compact",
        "internal.segment.bytes=200",
        "min.cleanable.dirty.ratio=1",
    )
    command.out("topic", "create", topic, *(part for one in configs for part in ("--config", one)))
    for number in range(10):
        command.out("produce", topic, "-K", ":", stdin=lines([f"key:{number} and more"]))


def let_be_cleaned(command: Command, topic: str) -> None:
    command.out("topic", "alter", topic, "--config", "min.cleanable.dirty.ratio=0")


def shown(command: Command, topic: str) -> dict[str, Any]:
    (described,) = command.json("topic", "describe", topic)
    (partition,) = described["partitions"]
    found: dict[str, Any] = partition
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_topic_is_shown_as_dirty_and_then_as_cleaned(command: Command) -> None:
    fill(command, "changes")
    partition = shown(command, "changes")
    assert (partition["dirtyRatio"], partition["lastCleaned"]) == (1.0, None)
    let_be_cleaned(command, "changes")
    until(lambda: shown(command, "changes")["lastCleaned"] is not None)
    partition = shown(command, "changes")
    assert (partition["dirtyRatio"], partition["uncleanable"]) == (0.0, None)
    cleaned = datetime.fromisoformat(partition["lastCleaned"])
    assert timedelta(0) <= datetime.now(UTC) - cleaned < timedelta(minutes=10)
    *_, head, row = command.out("topic", "describe", "changes").splitlines()
    assert head.split()[-3:] == ["dirtyRatio", "lastCleaned", "uncleanable"]
    assert row.split()[-3:] == ["0.0", partition["lastCleaned"], "-"]


def test_of_a_topic_that_cannot_be_cleaned_the_reason_is_shown(
    command: Command, tmp_path: Path
) -> None:
    """Compaction 4."""
    fill(command, "broken")
    first = min((tmp_path / "data" / "broken-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 0xFF
    first.write_bytes(content)
    let_be_cleaned(command, "broken")
    until(lambda: shown(command, "broken")["uncleanable"] is not None)
    reason = shown(command, "broken")["uncleanable"]
    assert first.name in reason
    assert "checksum" in reason
    row = command.out("topic", "describe", "broken").splitlines()[-1]
    assert row.endswith(reason)
