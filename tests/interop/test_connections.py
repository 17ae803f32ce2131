"""How connections behave: order, waiting, limits, and clients that do not do their part."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.fetch import FetchResponse
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from dohle.protocol.messages.produce import ProduceResponse
from dohle.records.batch import batches
from dohle.testing import Broker
from tests.interop.conftest import QUIET_TOPIC
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import (
    Closed,
    Wire,
    batch_of,
    fetch_request,
    frame_of,
    produce_request,
)

ASK_VERSIONS = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
MEGABYTE = 1 << 20


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as connected:
        yield connected


def ask_versions(wire: Wire) -> None:
    assert wire.ask(ASK_VERSIONS, ApiVersionsResponse, 3).error_code == 0


def test_pipelined_requests_are_answered_in_order(wire: Wire, topic: str) -> None:
    """More of them than are handled in one turn, of several kinds, in one stream of bytes."""
    metadata = MetadataRequest(topics=(MetadataRequestTopic(name=TopicName(topic)),))
    count = 400
    stream = b""
    for number in range(count):
        stream += frame_of(produce_request(topic, batch_of(b"%d" % number)), 9, 3 * number)
        stream += frame_of(fetch_request(topic, number), 12, 3 * number + 1)
        stream += frame_of(metadata, 12, 3 * number + 2)
    sending = threading.Thread(target=wire.socket.sendall, args=(stream,))
    sending.start()

    for number in range(count):
        produced = wire.receive(ProduceResponse, 9, 3 * number)
        assert produced.responses[0].partition_responses[0].base_offset == number
        # What was acknowledged before is read after.
        fetched = wire.receive(FetchResponse, 12, 3 * number + 1)
        records = fetched.responses[0].partitions[0].records
        assert records
        assert next(iter(next(iter(batches(records))))).value == b"%d" % number
        assert wire.receive(MetadataResponse, 12, 3 * number + 2).topics[0].error_code == 0
    sending.join()


def test_many_produce_requests_in_one_packet_each_get_their_offset(wire: Wire, topic: str) -> None:
    count = 1000
    stream = b"".join(
        frame_of(produce_request(topic, batch_of(b"a", b"b")), 9, number) for number in range(count)
    )
    sending = threading.Thread(target=wire.socket.sendall, args=(stream,))
    sending.start()

    offsets = [
        wire.receive(ProduceResponse, 9, number).responses[0].partition_responses[0].base_offset
        for number in range(count)
    ]

    sending.join()
    assert offsets == list(range(0, 2 * count, 2))


def test_an_error_among_pipelined_requests_leaves_the_others_alone(wire: Wire, topic: str) -> None:
    spoilt = bytearray(batch_of(b"spoilt"))
    spoilt[-1] ^= 1
    for number, records in enumerate([batch_of(b"a"), bytes(spoilt), batch_of(b"b")]):
        assert wire.send(produce_request(topic, records), 9) == number

    replies = [
        wire.receive(ProduceResponse, 9, number).responses[0].partition_responses[0]
        for number in range(3)
    ]

    assert [(reply.error_code, reply.base_offset) for reply in replies] == [
        (0, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (0, 1),
    ]


def test_requests_behind_a_long_poll_wait_for_it(quiet_broker: Broker) -> None:
    waiting = quiet_broker.node.broker.purgatory
    with Wire(quiet_broker.bootstrap) as wire:
        polled = wire.send(fetch_request(QUIET_TOPIC, wait_ms_max=15_000), 12)
        behind = wire.send(ASK_VERSIONS, 3)
        wait_until(lambda: waiting.count == 1)
        wire.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            wire.socket.recv(1)
        wire.socket.settimeout(10)

        with Wire(quiet_broker.bootstrap) as other:
            other.produce(QUIET_TOPIC, batch_of(b"at last"))

        answer = wire.receive(FetchResponse, 12, polled)
        assert answer.responses[0].partitions[0].records
        assert wire.receive(ApiVersionsResponse, 3, behind).error_code == 0


def test_a_long_poll_ends_when_its_time_is_up(wire: Wire, topic: str) -> None:
    reply = wire.ask(fetch_request(topic, wait_ms_max=300), FetchResponse, 12)

    assert reply.responses[0].partitions[0].error_code == 0
    assert not reply.responses[0].partitions[0].records


def test_a_client_that_leaves_during_a_long_poll_is_forgotten(quiet_broker: Broker) -> None:
    waiting = quiet_broker.node.broker.purgatory
    with Wire(quiet_broker.bootstrap) as wire:
        wire.send(fetch_request(QUIET_TOPIC, wait_ms_max=600_000), 12)
        wait_until(lambda: waiting.count == 1)

    wait_until(lambda: waiting.count == 0)
    with Wire(quiet_broker.bootstrap) as wire:
        assert wire.produce(QUIET_TOPIC, batch_of(b"nobody waits")).error_code == 0


def test_a_frame_may_come_byte_by_byte(wire: Wire, topic: str) -> None:
    stream = frame_of(produce_request(topic, batch_of(b"slow")), 9, 0)
    stream += frame_of(fetch_request(topic), 12, 1)
    for byte in stream:
        wire.socket.sendall(bytes([byte]))

    assert wire.receive(ProduceResponse, 9, 0).responses[0].partition_responses[0].base_offset == 0
    assert wire.receive(FetchResponse, 12, 1).responses[0].partitions[0].records


def test_acks_0_is_not_answered_and_an_error_closes(wire: Wire, broker: Broker, topic: str) -> None:
    wire.send(produce_request(topic, batch_of(b"quiet"), acks=0), 9)
    ask_versions_after = wire.send(ASK_VERSIONS, 3)
    assert wire.receive(ApiVersionsResponse, 3, ask_versions_after).error_code == 0
    assert wire.fetch(topic).records

    wire.send(produce_request("no-such-topic", batch_of(b"quiet"), acks=0), 9)
    assert wire.is_closed_by_peer()


def test_what_was_answered_before_a_malformed_request_still_arrives(wire: Wire, topic: str) -> None:
    wire.socket.sendall(
        frame_of(produce_request(topic, batch_of(b"kept")), 9, 0)
        + struct.pack(">ihhi", 8, 999, 0, 1)
    )

    assert wire.receive(ProduceResponse, 9, 0).responses[0].partition_responses[0].error_code == 0
    assert wire.is_closed_by_peer()


def test_a_version_of_api_versions_that_nobody_knows_is_answered(wire: Wire) -> None:
    body = frame_of(ASK_VERSIONS, 3, 7)[4:]
    body = struct.pack(">hh", 18, 99) + body[4:]
    wire.socket.sendall(struct.pack(">i", len(body)) + body)

    reply = wire.receive(ApiVersionsResponse, 0, 7)

    assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in reply.api_keys] == [
        (18, 0, 4)
    ]
    ask_versions(wire)


def test_a_request_larger_than_allowed_closes_the_connection() -> None:
    with Broker({"socket.request.max.bytes": "100000"}) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("t")
            assert wire.produce("t", batch_of(bytes(90_000))).error_code == 0
            wire.socket.sendall(struct.pack(">i", 100_001))
            assert wire.is_closed_by_peer()
        with Wire(broker.bootstrap) as wire:
            wire.socket.sendall(struct.pack(">i", 100_000))
            wire.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                wire.socket.recv(1)


def test_there_are_at_most_so_many_connections_from_one_address() -> None:
    with Broker({"max.connections.per.ip": "5"}) as broker:
        wires = [Wire(broker.bootstrap) for _ in range(5)]
        for wire in wires:
            ask_versions(wire)
        with Wire(broker.bootstrap) as refused:
            assert refused.is_closed_by_peer()
        wires.pop().socket.close()

        def is_admitted() -> bool:
            wire = Wire(broker.bootstrap)
            try:
                ask_versions(wire)
            except (Closed, OSError):
                wire.socket.close()
                return False
            wires.append(wire)
            return True

        wait_until(is_admitted)
        for wire in wires:
            ask_versions(wire)
            wire.socket.close()


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    with (
        Broker({"connections.max.idle.ms": "600"}) as broker,
        Wire(broker.bootstrap) as idle,
        Wire(broker.bootstrap) as busy,
    ):
        ask_versions(idle)
        idle.socket.setblocking(False)

        def is_closed() -> bool:
            ask_versions(busy)
            try:
                return idle.socket.recv(1) == b""
            except BlockingIOError:
                return False

        wait_until(is_closed)
        ask_versions(busy)


def test_a_command_is_carried_out_though_its_client_leaves(tmp_path: Path) -> None:
    """What was received is done, and done to the end: in memory as well as on the disk."""
    names = {f"left-{number}" for number in range(30)}
    with BrokerProcess(tmp_path) as broker:
        for name in names:
            topic = CreatableTopic(name=TopicName(name), num_partitions=1, replication_factor=1)
            with Wire(broker.bootstrap) as wire:
                wire.send(CreateTopicsRequest(topics=(topic,)), 7)

        wait_until(lambda: topic_names(broker.bootstrap) >= names)
        assert broker.stop() == 0
        broker.start()
        assert topic_names(broker.bootstrap) == names
        assert broker.failures == []


def topic_names(bootstrap: str) -> set[str | None]:
    with Wire(bootstrap) as wire:
        reply = wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
    return {topic.name for topic in reply.topics}


def test_a_client_that_does_not_read_holds_up_nobody_and_loses_nothing(tmp_path: Path) -> None:
    """Its answers wait in the files they come from, not in memory."""
    records = batch_of(bytes(MEGABYTE - 1000))
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as writer:
            writer.create_topic("large")
            for _ in range(16):
                writer.produce("large", records)
        memory_before = broker.memory_bytes
        lazy = [Wire(broker.bootstrap, receive_buffer_bytes=4096) for _ in range(8)]
        for wire in lazy:
            for _ in range(20):
                wire.send(fetch_request("large"), 12)

        with Wire(broker.bootstrap) as diligent:
            for _ in range(20):
                assert diligent.produce("large", batch_of(b"small")).error_code == 0
                assert diligent.fetch("large", 16).records
        assert broker.memory_bytes_max - memory_before < 40 * MEGABYTE
        for wire in lazy[1:]:
            wire.socket.close()
        for number in range(20):
            reply = lazy[0].receive(FetchResponse, 12, number)
            found = reply.responses[0].partitions[0].records
            assert found
            assert len(found) >= 16 * len(records)
        lazy[0].socket.close()
        assert broker.failures == []


def test_a_client_that_does_not_read_cannot_fill_memory_with_converted_records(
    tmp_path: Path,
) -> None:
    """Old fetches are answered from memory: one answer at a time is all a connection may hold."""
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("large")
            for _ in range(8):
                wire.produce("large", batch_of(bytes(MEGABYTE - 1000)))
            wire.fetch("large", version=3)
        memory_before = broker.memory_bytes
        with Wire(broker.bootstrap, receive_buffer_bytes=4096) as lazy:
            for _ in range(25):
                lazy.send(fetch_request("large"), 3)
            with Wire(broker.bootstrap) as diligent:
                for _ in range(5):
                    assert diligent.produce("large", batch_of(b"small")).error_code == 0
            assert broker.memory_bytes_max - memory_before < 80 * MEGABYTE
            for number in range(25):
                assert lazy.receive(FetchResponse, 3, number).responses[0].partitions[0].records
        assert broker.failures == []


def test_a_client_that_sends_and_never_reads_is_stopped(broker: Broker, topic: str) -> None:
    """It may not go on sending requests whose answers it leaves lying."""
    with Wire(broker.bootstrap) as writer:
        writer.produce(topic, batch_of(bytes(500_000)))
    with Wire(broker.bootstrap, receive_buffer_bytes=4096) as lazy:
        frame = frame_of(fetch_request(topic), 12)
        lazy.socket.setblocking(False)
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        sent = 0
        stalled_since: float | None = None
        while stalled_since is None or monotonic() - stalled_since < 0.3:
            assert sent < 64 * MEGABYTE
            try:
                sent += lazy.socket.send(frame * 100)
                stalled_since = None
            except BlockingIOError:
                stalled_since = stalled_since or monotonic()
