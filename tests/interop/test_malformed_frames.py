"""Ten thousand malformed frames: the broker answers or closes, and nobody else notices."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from dohle.records.batch import batches
from tests.interop.malformed import Fuzzer, Malformed, ServedApi, Then
from tests.interop.process import BrokerProcess
from tests.interop.wire import Closed, Wire, batch_of, frame_of

FRAMES = 12_000
WARM_UP_FRAMES = 1_000
AT_ONCE = 25
SEED = 20_240_601
MEGABYTE = 1 << 20
MEMORY_GROWTH_BYTES_MAX = 50 * MEGABYTE
ASK_VERSIONS = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
LAST_CORRELATION_ID = 2**31 - 1


class WellBehaved:
    """A client that does its work beside all that, on one connection, and checks every answer."""

    def __init__(self, bootstrap: str) -> None:
        self._wire = Wire(bootstrap)
        self._wire.create_topic("good")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> WellBehaved:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._wire.socket.close()

    def _run(self) -> None:
        try:
            for number in count():
                if self._stopping.is_set():
                    return
                self._work(number)
                self.rounds += 1
        except BaseException as error:
            self.failure = error

    def _work(self, number: int) -> None:
        topics = (MetadataRequestTopic(name=TopicName("good")),)
        described = self._wire.ask(MetadataRequest(topics=topics), MetadataResponse, 12)
        assert described.topics[0].error_code == 0
        produced = self._wire.produce("good", batch_of(b"%d" % number))
        assert (produced.error_code, produced.base_offset) == (0, number)
        fetched = self._wire.fetch("good", number)
        assert fetched.records
        assert [r.value for b in batches(fetched.records) for r in b] == [b"%d" % number]


def served_apis(bootstrap: str) -> list[ServedApi]:
    with Wire(bootstrap) as wire:
        reply = wire.ask(ASK_VERSIONS, ApiVersionsResponse, 3)
    return [
        ServedApi(key.api_key, version)
        for key in reply.api_keys
        for version in range(key.min_version, key.max_version + 1)
    ]


def feed(bootstrap: str, frames: Iterator[Malformed]) -> int:
    """Send each on its own connection, several at a time; all must end. Return how many."""
    fed = 0
    while group := list(islice(frames, AT_ONCE)):
        wires = [Wire(bootstrap) for _ in group]
        for malformed, wire in zip(group, wires, strict=True):
            try:
                wire.socket.sendall(malformed.data)
                if malformed.then is Then.SHUTDOWN:
                    wire.socket.shutdown(socket.SHUT_WR)
                elif malformed.then is Then.VALID_REQUEST:
                    wire.socket.sendall(frame_of(ASK_VERSIONS, 3, LAST_CORRELATION_ID))
            except OSError:
                pass  # it was quick to close
        for malformed, wire in zip(group, wires, strict=True):
            with wire:
                await_end(malformed, wire)
        fed += len(group)
    return fed


def await_end(malformed: Malformed, wire: Wire) -> None:
    """Take answers until the broker closes or answers the valid request."""
    try:
        while int.from_bytes(wire.receive_frame()[:4]) != LAST_CORRELATION_ID:
            pass
    except Closed:
        return
    except TimeoutError:
        pytest.fail(f"neither answered nor closed: {malformed.kind}: {malformed.data.hex()}")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    # Otherwise every Metadata request would make topics of all the names in it.
    with BrokerProcess(tmp_path, {"auto.create.topics.enable": "false"}) as running:
        yield running


def test_malformed_frames_disturb_nobody(process: BrokerProcess) -> None:
    fuzzer = Fuzzer(SEED, served_apis(process.bootstrap))
    with Wire(process.bootstrap) as wire:
        wire.create_topic("fuzz")
    with WellBehaved(process.bootstrap) as client:
        feed(process.bootstrap, fuzzer.frames(WARM_UP_FRAMES))
        memory_before = process.memory_bytes
        rounds_before = client.rounds
        fed = feed(process.bootstrap, fuzzer.frames(FRAMES - WARM_UP_FRAMES))
        memory_growth = process.memory_bytes - memory_before
        rounds = client.rounds - rounds_before

    assert fed >= 10_000
    assert client.failure is None
    assert rounds > 100
    assert process.failures == []
    assert memory_growth < MEMORY_GROWTH_BYTES_MAX
    assert process.stop() == 0


def test_claims_of_large_frames_take_no_memory(process: BrokerProcess) -> None:
    """Each says that a hundred megabytes will come, and sends a few bytes of them."""
    with Wire(process.bootstrap) as wire:
        wire.create_topic("good")
        memory_before = process.memory_bytes
        claiming = [Wire(process.bootstrap) for _ in range(100)]
        for each in claiming:
            each.socket.sendall(struct.pack(">ihhih", 104_857_600, 0, 9, 1, -1) + bytes(1000))
        for _ in range(100):
            assert wire.produce("good", batch_of(b"value")).error_code == 0
        growth = process.memory_bytes - memory_before
        for each in claiming:
            each.socket.close()

    assert growth < MEMORY_GROWTH_BYTES_MAX
    assert process.failures == []
