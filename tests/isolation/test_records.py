"""Attacks by what a batch holds: few bytes that are millions of records."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from dohle.records.batch import Codec
from tests.interop.wire import NOW_MS, Wire
from tests.isolation.harness import Prepare, assert_harmless
from tests.isolation.many_records import (
    TOPIC,
    honest,
    old_fetch_frame,
    old_messages,
    produce_frame,
    same_offsets,
)

MANY = 40

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(900)]


def prepare(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        wire.create_topic(TOPIC, 1)


def attack_with(
    frame: bytes, *, clients: int = 1, times: int = 3, prepare: Prepare = prepare
) -> None:
    def attack(bootstrap: str) -> int:
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(bootstrap)) for _ in range(clients)]
            for wire in wires:
                wire.socket.settimeout(600)
            for _ in range(times):
                for wire in wires:
                    wire.socket.sendall(frame)
                for wire in wires:
                    wire.receive_frame()
        return clients * times * len(frame)

    assert_harmless(attack, prepare=prepare)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_tiny_records_with_wrong_offsets(codec: Codec) -> None:
    attack_with(produce_frame(same_offsets(codec)), times=1)


def test_tiny_records_with_wrong_timestamps() -> None:
    attack_with(produce_frame(same_offsets(timestamp=NOW_MS + 86_400_000)), times=2)


def test_a_million_honest_records_in_a_megabyte() -> None:
    attack_with(produce_frame(honest(1_050_000, (0,))))


def test_honest_records_of_mixed_sizes() -> None:
    attack_with(produce_frame(honest(300_000, (5, 6, 7, 8))))


def test_many_clients_with_tiny_records() -> None:
    attack_with(produce_frame(same_offsets(count=200_000)), clients=MANY, times=1)


@pytest.mark.parametrize("magic", [0, 1])
def test_tiny_messages_of_an_old_producer(magic: int) -> None:
    attack_with(produce_frame(old_messages(magic), version=2), times=2)


def test_an_old_consumer_of_many_small_records() -> None:
    def prepare_records(bootstrap: str) -> None:
        prepare(bootstrap)
        with Wire(bootstrap) as wire:
            wire.socket.settimeout(600)
            wire.socket.sendall(produce_frame(honest(400_000, (0, 1, 2), Codec.GZIP)))
            wire.receive_frame()

    attack_with(old_fetch_frame(), prepare=prepare_records)
