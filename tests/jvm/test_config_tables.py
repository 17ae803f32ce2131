"""What ``tests/core/config`` compares our tables of configs with."""

from __future__ import annotations

from pathlib import Path

from tests.jvm.jvm import Jvm

_KEPT = Path(__file__).parents[1] / "core" / "config" / "kafka_configs.txt"


def test_the_tables_of_kafka_are_those_that_ours_are_compared_with(jvm: Jvm) -> None:
    said = [line.rstrip() for line in jvm.run("ConfigTables").lines]
    assert said == _KEPT.read_text().splitlines()
