"""Attacks by fetches: of very many partitions, in sessions, and such that wait in vain."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.interop.wire import Wire, batch_of, frame_of
from tests.isolation.harness import assert_harmless

VERSION = 12
UNKNOWN = 100_000
SESSIONS = 12
PARTITIONS, PIECE_BYTES = 1_000, 15_000
DELAYED = 60
WAIT_MS = 5_000

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(300)]


def fetch_frame(topic: str, partitions: int, *, wait_ms: int, min_bytes: int, epoch: int) -> bytes:
    asked = tuple(
        FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(partitions)
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 << 20,
        session_epoch=epoch,
        topics=(FetchTopic(topic=TopicName(topic), partitions=asked),),
    )
    return frame_of(request, VERSION)


def test_sessions_of_very_many_unknown_partitions() -> None:
    frame = fetch_frame("unknown", UNKNOWN, wait_ms=0, min_bytes=1, epoch=0)

    def attack(bootstrap: str) -> int:
        for _ in range(SESSIONS):
            with Wire(bootstrap) as wire:
                wire.socket.sendall(frame)
                wire.receive_frame()
        return SESSIONS * len(frame)

    assert_harmless(attack)


def test_delayed_fetches_that_have_found_much() -> None:
    frame = fetch_frame("wide", PARTITIONS, wait_ms=WAIT_MS, min_bytes=50 << 20, epoch=-1)

    def prepare(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            wire.create_topic("wide", PARTITIONS)
            for index in range(PARTITIONS):
                wire.produce("wide", batch_of(bytes(PIECE_BYTES)), partition=index)

    def attack(bootstrap: str) -> int:
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(bootstrap)) for _ in range(DELAYED)]
            for wire in wires:
                wire.socket.sendall(frame)
            with Wire(bootstrap) as writer:
                for _ in range(200):
                    writer.produce("wide", batch_of(b"v"))
            for wire in wires:
                wire.receive_frame()
        return DELAYED * len(frame)

    assert_harmless(attack, prepare=prepare)
