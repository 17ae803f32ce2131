"""SIGTERM is obeyed within 5 s, whatever the broker is at."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import clock_gettime, monotonic

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.records.batch import Codec
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Wire, frame_of
from tests.isolation.harness import STOP_S_MAX
from tests.isolation.many_partitions import (
    MANY_PARTITIONS,
    PARTITIONS,
    WIDE,
    WRITTEN_TOPICS,
    create,
    deletion,
    write_to_all,
)
from tests.isolation.many_records import (
    TOPIC,
    honest,
    old_fetch_frame,
    old_messages,
    produce_frame,
    same_offsets,
)
from tests.ports import free_port

pytestmark = [pytest.mark.isolation, pytest.mark.timeout(600)]

#: So much processor time the broker has used when it is told to stop: it is in the middle of it.
BEGUN_CPU_S = 0.1
CLIENTS = 4
ENTRIES = 100_000


def prepare(bootstrap: str) -> None:
    """Make ready what is deleted, and what is read."""
    create(bootstrap, MANY_PARTITIONS)
    with Wire(bootstrap) as wire:
        wire.socket.settimeout(600)
        wire.create_topic(TOPIC)
        wire.socket.sendall(produce_frame(honest(400_000, (0, 1, 2), Codec.GZIP)))
        wire.receive_frame()


def metadata_frame() -> bytes:
    topics = tuple(MetadataRequestTopic(name=TopicName(f"t{n}")) for n in range(ENTRIES))
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return frame_of(request, 12)


#: Requests that take long, each of another kind.
LONG_REQUESTS: dict[str, Callable[[], bytes]] = {
    "records with wrong offsets": lambda: produce_frame(same_offsets()),
    "old messages": lambda: produce_frame(old_messages(1), version=2),
    "an old fetch": old_fetch_frame,
    "metadata of many topics": metadata_frame,
    "a deletion": lambda: frame_of(deletion(), 6),
}
ALL = "all of them"


@dataclass(frozen=True, slots=True)
class Stop:
    """How a stop went."""

    seconds: float
    #: How many requests had no answer when it began.
    outstanding: int


def stop_amid(broker: BrokerProcess, frames: list[bytes]) -> Stop:
    """Send requests, and tell the broker to stop when it has begun with them."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.bootstrap)) for _ in frames]
        clock = (~broker.pid << 3) | 2
        begun = clock_gettime(clock)
        for wire, frame in zip(wires, frames, strict=True):
            wire.socket.sendall(frame)
        wait_until(lambda: clock_gettime(clock) - begun > BEGUN_CPU_S)
        answered, _, _ = select.select([wire.socket for wire in wires], [], [], 0)
        at = monotonic()
        code = broker.stop()
        stop = Stop(monotonic() - at, len(wires) - len(answered))
        sys.stdout.write(f"{stop}\n")
        assert code == 0
        assert broker.failures == []
        return stop


@pytest.mark.parametrize("name", [*LONG_REQUESTS, ALL])
def test_a_broker_stops_in_the_middle_of_long_requests(name: str, tmp_path: Path) -> None:
    if name == ALL:
        frames = [make() for make in LONG_REQUESTS.values()]
    else:
        frames = [LONG_REQUESTS[name]()] * CLIENTS
    with BrokerProcess(tmp_path) as broker:
        prepare(broker.bootstrap)
        stop = stop_amid(broker, frames)
        assert stop.outstanding, "it had nothing more to do"
        assert stop.seconds < STOP_S_MAX


def test_a_broker_stops_in_the_middle_of_a_recovery(tmp_path: Path) -> None:
    """And begins it anew the next time: nothing is lost by that."""
    with BrokerProcess(tmp_path, port=free_port()) as broker:
        write_to_all(broker.bootstrap)
        broker.kill()
        broker.spawn()
        wait_until(lambda: "was not closed cleanly" in broker.log)
        at = monotonic()
        broker.stop()
        seconds = monotonic() - at
        is_over = "logs were checked in" in broker.log
        began = monotonic()
        broker.start()
        sys.stdout.write(f"stopped in {seconds:.1f} s, recovered in {monotonic() - began:.1f} s\n")
        assert not is_over, "it had recovered already"
        assert seconds < STOP_S_MAX
        with Wire(broker.bootstrap) as wire:
            for topic in range(WRITTEN_TOPICS):
                for partition in range(0, PARTITIONS, 97):
                    stored = wire.stored_batches(f"{WIDE}{topic}", partition)
                    assert [batch.record_count for batch in stored] == [1]
        assert broker.stop() == 0
        assert broker.failures == []
