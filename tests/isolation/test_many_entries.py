"""Attacks by requests of 100,000 entries, of every kind that there is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.server.registry import all_handlers
from tests.interop.wire import Closed, Wire, frame_of
from tests.isolation.harness import assert_harmless
from tests.isolation.many_entries import arrays, request_of_many

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(600)]

COUNT = 100_000
KNOWN = "known"
#: Records have attacks of their own.
OTHERS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})

HANDLERS = all_handlers()


def versions_of(key: ApiKey) -> set[int]:
    return {HANDLERS[key].lowest, HANDLERS[key].highest}


ATTACKED = [
    key
    for key in HANDLERS
    if key not in OTHERS
    and any(any(arrays(find_api(key).request(), version)) for version in versions_of(key))
]


def prepare(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        wire.create_topic(KNOWN, 50)
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=("g",))
            wire.ask(request, FindCoordinatorResponse, 4)


@pytest.mark.parametrize("naming", [lambda number: f"t{number}", lambda _: KNOWN], ids=["n", "1"])
@pytest.mark.parametrize("key", ATTACKED, ids=lambda key: key.name)
def test_a_request_of_many_entries(key: ApiKey, naming: Callable[[int], str]) -> None:
    cls = find_api(key).request()
    frames = [
        frame_of(request_of_many(cls, version, path, COUNT, naming), version)
        for version in versions_of(key)
        for path in arrays(cls, version)
    ]

    def attack(bootstrap: str) -> int:
        for frame in frames:
            with Wire(bootstrap) as wire, suppress(Closed):
                wire.socket.settimeout(120)
                wire.socket.sendall(frame)
                wire.receive_frame()
        return sum(map(len, frames))

    config = {"auto.create.topics.enable": "false"}
    assert_harmless(attack, prepare=prepare, config=config)


def test_many_requests_for_the_metadata_of_many_partitions() -> None:
    frame = frame_of(MetadataRequest(topics=None), 12)

    def prepare_wide_topic(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            wire.create_topic("wide", 2_000)

    def attack(bootstrap: str) -> int:
        with Wire(bootstrap) as wire:
            for _ in range(10):
                wire.socket.sendall(frame * 256)
                for _ in range(256):
                    wire.receive_frame()
        return len(frame) * 2_560

    assert_harmless(attack, prepare=prepare_wide_topic)
