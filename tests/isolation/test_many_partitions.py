"""Attacks by topics of thousands of partitions: creating them, deleting them, and their files."""

from __future__ import annotations

import pytest

from dohle.protocol.messages.delete_topics import DeleteTopicsResponse
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.wire import Wire
from tests.isolation.harness import assert_harmless
from tests.isolation.many_partitions import (
    MANY_PARTITIONS,
    PARTITIONS,
    PATIENCE_S,
    create,
    deletion,
    write_to_all,
)

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(900)]

#: Files go as soon as their topic does.
CONFIG = {"log.segment.delete.delay.ms": "0"}


def test_a_topic_of_many_partitions_is_created() -> None:
    def attack(bootstrap: str) -> int:
        create(bootstrap, PARTITIONS)
        return 0

    assert_harmless(attack, config=CONFIG)


def test_a_topic_of_many_partitions_is_deleted() -> None:
    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            wire.socket.settimeout(PATIENCE_S)
            (result,) = wire.ask(deletion(), DeleteTopicsResponse, 6).responses
            assert result.error_code == 0
            # The files are removed while others ask for this.
            for _ in range(1_000):
                wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
        return 0

    def prepare(bootstrap: str) -> None:
        create(bootstrap, MANY_PARTITIONS)

    assert_harmless(attack, prepare=prepare, config=CONFIG)


def test_a_broker_with_very_many_written_partitions_stops_in_time() -> None:
    assert_harmless(lambda _: 0, prepare=write_to_all)
