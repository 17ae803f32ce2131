"""Attacks by what a log keeps beside its records: many segments, many producers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import crc32c
import pytest

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire, batch_of, frame_of, produce_request
from tests.isolation.harness import assert_harmless

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(900)]

TOPIC = "attacked"
SEGMENTS = 5_000
PRODUCERS = 160_000
ROLLS = 10
IN_FLIGHT = 100
VERSION = 9
SET, OF_TOPIC = 0, 2


def send_all(wire: Wire, frames: Iterable[bytes]) -> None:
    """Send produce requests, some at a time."""
    wire.socket.settimeout(300)
    waiting = 0
    for frame in frames:
        wire.socket.sendall(frame)
        waiting += 1
        if waiting == IN_FLIGHT:
            for _ in range(waiting):
                wire.receive_frame()
            waiting = 0
    for _ in range(waiting):
        wire.receive_frame()


def test_retention_deletes_thousands_of_segments() -> None:
    record = batch_of(b"v")

    def prepare(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            # One record each.
            size = str(len(record))
            wire.create_topic(TOPIC, internal_segment_bytes=size, retention_ms="-1")
            frame = frame_of(produce_request(TOPIC, record), VERSION)
            send_all(wire, [frame] * SEGMENTS)
            assert wire.fetch(TOPIC, SEGMENTS - 1).high_watermark == SEGMENTS

    def attack(bootstrap: str) -> int:
        retention = AlterableConfig(name="retention.ms", config_operation=SET, value="1")
        resource = AlterConfigsResource(
            resource_type=OF_TOPIC, resource_name=TOPIC, configs=(retention,)
        )
        with Wire(bootstrap) as wire:
            wire.socket.settimeout(300)
            request = IncrementalAlterConfigsRequest(resources=(resource,))
            (result,) = wire.ask(request, IncrementalAlterConfigsResponse, 1).responses
            assert result.error_code == 0
            gone = ErrorCode.OFFSET_OUT_OF_RANGE
            wait_until(lambda: wire.fetch(TOPIC, SEGMENTS - 2).error_code == gone, 60)
            # The files are removed while others ask for this.
            for _ in range(1_000):
                wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
        return 0

    config = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "0",
    }
    assert_harmless(attack, prepare=prepare, config=config)


def frames_of_producers(count: int) -> Iterator[bytes]:
    """Return requests with a record each, of another producer each."""
    record = batch_of(b"v", producer_id=1, producer_epoch=0, base_sequence=0)
    frame = bytearray(frame_of(produce_request(TOPIC, record), VERSION))
    at = frame.index(record)
    for producer_id in range(1_000, 1_000 + count):
        struct.pack_into(">q", frame, at + 43, producer_id)
        checked = memoryview(frame)[at + 21 : at + len(record)]
        struct.pack_into(">I", frame, at + 17, crc32c.crc32c(checked))
        checked.release()
        yield bytes(frame)


def test_snapshots_of_very_many_producers() -> None:
    """Each new segment has one, and so has a clean stop."""

    def prepare(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            wire.create_topic(TOPIC, segment_bytes=str(1 << 20))
            send_all(wire, frames_of_producers(PRODUCERS))
            assert wire.fetch(TOPIC, PRODUCERS - 1).high_watermark == PRODUCERS

    def attack(bootstrap: str) -> int:
        record = batch_of(bytes(900_000))
        with Wire(bootstrap) as wire:
            wire.socket.settimeout(300)
            for _ in range(ROLLS):
                assert wire.produce(TOPIC, record).error_code == 0
        return ROLLS * len(record)

    assert_harmless(attack, prepare=prepare)
