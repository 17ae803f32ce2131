"""A broker that may open few files: many partitions, many connections, and no descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.records.batch import batches
from tests.interop.process import BrokerProcess
from tests.interop.wire import Wire, batch_of

TOPIC = TopicName("many")
CREATED_AT_ONCE = 2_500
#: Long enough to be sent from the file.
VALUE_BYTES = 20_000


def value_of(partition: int) -> bytes:
    return b"%d " % partition + bytes(VALUE_BYTES)


def create(wire: Wire, partitions: int) -> None:
    wire.socket.settimeout(300)
    wire.create_topic(TOPIC, partitions=min(partitions, CREATED_AT_ONCE))
    for count in range(2 * CREATED_AT_ONCE, partitions + 1, CREATED_AT_ONCE):
        more = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(more,), timeout_ms=300_000)
        assert wire.ask(request, CreatePartitionsResponse, 3).results[0].error_code == 0


def produce_to_all(wire: Wire, partitions: range) -> None:
    for start in partitions[::500]:
        some = range(start, min(start + 500, partitions.stop))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=60_000,
            topic_data=(
                TopicProduceData(
                    name=TOPIC,
                    partition_data=tuple(
                        PartitionProduceData(index=index, records=batch_of(value_of(index)))
                        for index in some
                    ),
                ),
            ),
        )
        reply = wire.ask(request, ProduceResponse, 9)
        assert [part.error_code for part in reply.responses[0].partition_responses] == [0] * len(
            some
        )


def check_all(wire: Wire, partitions: range, batches_each: int) -> None:
    """Read all partitions, as many in one answer as fit: few files may be open meanwhile."""
    for start in partitions[::500]:
        left = list(range(start, min(start + 500, partitions.stop)))
        while left:
            read = _check_some(wire, left, batches_each)
            assert read
            left = [index for index in left if index not in read]


def _check_some(wire: Wire, partitions: Sequence[int], batches_each: int) -> set[int]:
    """Read as much as comes in one answer, and return which partitions were in it."""
    asked = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in partitions
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 30,
        topics=(FetchTopic(topic=TOPIC, partitions=asked),),
    )
    found = wire.ask(request, FetchResponse, 12).responses[0].partitions
    assert [part.partition_index for part in found] == list(partitions)
    read = set()
    for part in found:
        assert part.error_code == 0
        assert part.records is not None
        values = [record.value for batch in batches(part.records) for record in batch]
        if values:
            assert values == [value_of(part.partition_index)] * batches_each
            read.add(part.partition_index)
    return read


def check_many_partitions(folder: Path, *, partitions: int, open_files_max: int) -> BrokerProcess:
    """Write and read, stop, read and write; return the broker, which was killed at last."""
    config = {"log.retention.ms": "-1", "fetch.max.bytes": str(1 << 30)}
    broker = BrokerProcess(folder, config, open_files_max=open_files_max)
    everything = range(partitions)
    with broker, Wire(broker.bootstrap) as wire:
        create(wire, partitions)
        for times in (1, 2):
            produce_to_all(wire, everything)
            check_all(wire, everything, times)
        assert broker.stop() == 0
    with broker, Wire(broker.bootstrap) as wire:
        wire.socket.settimeout(300)
        check_all(wire, everything, 2)
        produce_to_all(wire, everything)
        broker.kill()
    return broker


def test_five_hundred_partitions_need_no_more_than_128_descriptors(tmp_path: Path) -> None:
    broker = check_many_partitions(tmp_path, partitions=500, open_files_max=128)
    with broker, Wire(broker.bootstrap) as wire:
        check_all(wire, range(500), 3)
        assert broker.stop() == 0
    assert broker.failures == []


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_ten_thousand_partitions_need_no_more_than_1024_descriptors(tmp_path: Path) -> None:
    broker = check_many_partitions(tmp_path, partitions=10_000, open_files_max=1024)
    assert broker.failures == []


def ask_versions(wire: Wire) -> None:
    assert wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_connections_beyond_what_descriptors_allow_are_refused_and_the_others_served(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path, open_files_max=128)
    with broker, ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.bootstrap)) for _ in range(150)]
        served, refused = wires[:64], wires[64:]
        for wire in served:
            ask_versions(wire)
        for wire in refused:
            assert wire.is_closed_by_peer()
        create(served[0], 100)
        produce_to_all(served[0], range(100))
        check_all(served[1], range(100), 1)
        served[2].socket.close()
        # The broker has seen that end before it sees this request, which is answered.
        ask_versions(served[3])
        with Wire(broker.bootstrap) as instead:
            ask_versions(instead)
        assert broker.stop() == 0
    assert broker.failures == []


@contextmanager
def no_descriptor_left(broker: BrokerProcess) -> Iterator[None]:
    """Let the broker have exactly those descriptors that are in use."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{broker.pid}/fd")}
    lowest_free = next(number for number in range(len(used) + 1) if number not in used)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def test_a_listener_without_descriptors_refuses_and_goes_on_when_there_are_some(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path)
    with broker, Wire(broker.bootstrap) as wire:
        create(wire, 20)
        produce_to_all(wire, range(20))
        with no_descriptor_left(broker):
            for _ in range(40):
                with Wire(broker.bootstrap) as another:
                    assert another.is_closed_by_peer()
            # Those who are connected are served.
            produce_to_all(wire, range(20))
            produce_to_all(wire, range(20))
            check_all(wire, range(20), 3)
        with Wire(broker.bootstrap) as another:
            ask_versions(another)
        assert broker.stop() == 0
    assert broker.failures == []
