"""A connection by hand: requests in any version, or any bytes at all, and what comes back.

It does nothing that it is not told: no negotiation, no retries, one answer per call. Its waits have
a deadline, which is the socket's timeout.
"""

from __future__ import annotations

import socket
import struct
from time import time_ns
from types import TracebackType
from typing import Self, TypeVar

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.protocol.schema import Request, Response
from dohle.records.batch import Batch, batches
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec

DEADLINE_S = 20.0
FETCH_BYTES_MAX = 64 * 1024 * 1024
#: The time of records. Older ones would be deleted under their readers, by the first look for what
#: has outlived its retention time.
NOW_MS = time_ns() // 1_000_000

R = TypeVar("R", bound=Response)


class Closed(Exception):
    """The broker has closed the connection."""


class Wire:
    """One TCP connection to the broker."""

    def __init__(
        self,
        bootstrap: str,
        *,
        receive_buffer_bytes: int | None = None,
        client_id: str | None = "wire",
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_correlation_id = 0
        self._client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, request: Request, version: int) -> int:
        """Send a request and return its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.socket.sendall(frame_of(request, version, correlation_id, self._client_id))
        return correlation_id

    def receive_frame(self) -> bytes:
        """Wait for one whole frame and return it without its size."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = self.socket.recv(min(count, 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self, answer: type[R], version: int, correlation_id: int | None = None) -> R:
        """Wait for an answer, which must be all that its frame holds."""
        frame = self.receive_frame()
        found, body = parse_response_header(answer.API_KEY, version, frame)
        if correlation_id is not None:
            assert found == correlation_id
        message, end = answer.decode(version, frame, body)
        assert end == len(frame)
        return message

    def ask(self, request: Request, answer: type[R], version: int) -> R:
        """Send a request and wait for its answer."""
        return self.receive(answer, version, self.send(request, version))

    def is_closed_by_peer(self) -> bool:
        """Wait for the broker to say something; tell whether that is a good-bye."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; in names of settings an underscore stands for a dot."""
        topic = CreatableTopic(
            name=TopicName(name),
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        reply = self.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 7)
        result = reply.topics[0]
        assert result.error_code == 0, (result.error_code, result.error_message)

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        """Write a batch to one partition."""
        request = produce_request(topic, records, partition=partition, acks=acks)
        reply = self.ask(request, ProduceResponse, version)
        return reply.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, version: int = 12
    ) -> PartitionData:
        """Read what one partition has from an offset on, without waiting."""
        reply = self.ask(fetch_request(topic, offset, partition=partition), FetchResponse, version)
        assert reply.error_code == 0
        return reply.responses[0].partitions[0]

    def stored_batches(self, topic: str, partition: int = 0) -> list[Batch]:
        """Return all batches of a partition as they lie in its log."""
        found: list[Batch] = []
        while True:
            data = self.fetch(topic, found[-1].next_offset if found else 0, partition=partition)
            assert data.error_code == 0
            if not data.records:
                return found
            found += batches(data.records)


def frame_of(
    request: Request, version: int, correlation_id: int = 0, client_id: str | None = "wire"
) -> bytes:
    """Return the whole frame of a request."""
    return b"".join(encode_request(request, version, correlation_id, client_id))


def produce_request(
    topic: str, records: bytes, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """Ask for one batch to be written."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=(
            TopicProduceData(
                name=TopicName(topic),
                partition_data=(PartitionProduceData(index=partition, records=records),),
            ),
        ),
    )


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    bytes_max: int = FETCH_BYTES_MAX,
    wait_ms_max: int = 0,
) -> FetchRequest:
    """Ask for what a partition has from an offset on, outside of any fetch session."""
    return FetchRequest(
        replica_id=BrokerId(-1),
        max_wait_ms=wait_ms_max,
        min_bytes=1,
        max_bytes=bytes_max,
        session_id=0,
        session_epoch=-1,
        topics=(
            FetchTopic(
                topic=TopicName(topic),
                partitions=(
                    FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
                    ),
                ),
            ),
        ),
    )


def batch_of(*values: bytes, codec: Codec = Codec.NONE, **producer: int) -> bytes:
    """Return a batch of records that have nothing but a value and a timestamp."""
    builder = BatchBuilder(codec=codec)
    for name, number in producer.items():
        setattr(builder, name, number)
    for number, value in enumerate(values):
        builder.append(NOW_MS + number, None, value)
    return bytes(builder.build())
