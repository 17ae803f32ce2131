"""Attacks by requests of 100,000 entries, of every kind that there is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from dohle.protocol.messages.list_offsets import ListOffsetsRequest
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.protocol.messages.produce import ProduceRequest
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


def ask(bootstrap: str, frame: bytes) -> int:
    """Send a request; wait until it is answered or the connection is closed."""
    with Wire(bootstrap) as wire, suppress(Closed, OSError):
        wire.socket.settimeout(120)
        wire.socket.sendall(frame)
        wire.receive_frame()
    return len(frame)


def test_a_frame_of_the_largest_size_with_the_smallest_entries() -> None:
    # Topics without a name, in the version in which these are two bytes each.
    head = frame_of(MetadataRequest(topics=()), 1)[4:-4]
    count = 50_000_000 - len(head)
    body = head + count.to_bytes(4, "big") + bytes(2 * count)
    frame = len(body).to_bytes(4, "big") + body
    assert_harmless(lambda bootstrap: ask(bootstrap, frame))


def test_many_clients_with_a_request_of_many_entries_each() -> None:
    request = request_of_many(ListOffsetsRequest, 7, ("topics",), COUNT, lambda number: str(number))
    frame = frame_of(request, 7)

    def attack(bootstrap: str) -> int:
        with ThreadPoolExecutor(8) as threads:
            return sum(threads.map(lambda _: ask(bootstrap, frame), range(8)))

    assert_harmless(attack)


def test_a_produce_request_of_many_partitions() -> None:
    path = ("topic_data", "partition_data")
    request = request_of_many(ProduceRequest, 9, path, COUNT, lambda _: KNOWN)
    frame = frame_of(request.replace(acks=1, transactional_id=None), 9)
    assert_harmless(lambda bootstrap: ask(bootstrap, frame), prepare=prepare)


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
