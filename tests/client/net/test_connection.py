"""One connection: versions, order, limits, and how it ends."""

from __future__ import annotations

import asyncio
import socket

import pytest

from dohle.client.config import ClientConfig
from dohle.client.errors import ConnectionClosed, TimedOut
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import SystemHost
from dohle.core.ids import TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.errors import UnsupportedVersion
from dohle.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from dohle.protocol.messages.produce import ProduceRequest
from tests.client.scripted_broker import HANG_UP, SILENCE, Reply, ScriptedBroker, until, within

CONFIG = ClientConfig(request_timeout_ms=10_000)
HOST = SystemHost()


def answer(request: MetadataRequest, version: int) -> MetadataResponse:
    """An answer that names what was asked for."""
    assert request.topics is not None
    return MetadataResponse(cluster_id=request.topics[0].name)


def ask(name: str) -> MetadataRequest:
    return MetadataRequest(topics=(MetadataRequestTopic(name=TopicName(name)),))


@pytest.mark.parametrize("highest", range(5))
def test_api_versions_is_asked_again_in_the_version_that_the_broker_names(highest: int) -> None:
    async def body() -> None:
        broker = ScriptedBroker(metadata=answer)
        broker.versions[ApiKey.API_VERSIONS] = (0, highest)
        async with broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            assert connection.version_of(MetadataRequest) == MetadataRequest.VERSIONS.highest
            assert (await connection.request(ask("a"), MetadataResponse)).cluster_id == "a"
            await connection.close()

    within(10, body())


def test_a_broker_that_does_not_name_its_version_is_asked_in_the_oldest() -> None:
    """Before KIP-511 the refusal had no list, and some peers write nonsense there."""
    versions = []

    async def body(nonsense: bool) -> None:
        broker = ScriptedBroker(metadata=answer)

        def refuse(request: object, version: int) -> Reply:
            versions.append(version)
            if version == 0:
                return ApiVersionsResponse(api_keys=broker.api_keys())
            body = b"\x00\x23" + (b"\x01\x00\x12\x00" if nonsense else b"\0\0\0\0")
            correlation_id = (len(versions) - 1).to_bytes(4, "big")
            return (len(body) + 4).to_bytes(4, "big") + correlation_id + body

        broker.serve(ApiKey.API_VERSIONS, refuse)
        async with broker:
            versions.clear()
            connection = await Connection.open(broker.address, CONFIG, HOST)
            assert connection.serves(MetadataRequest)
            assert versions == [4, 0]
            await connection.close()

    within(10, body(False))
    within(10, body(True))


def test_an_error_in_api_versions_is_raised() -> None:
    async def body() -> None:
        broker = ScriptedBroker()
        broker.serve(
            ApiKey.API_VERSIONS,
            lambda request, version: ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST),
        )
        async with broker:
            with pytest.raises(KafkaError, match=r"INVALID_REQUEST.*refused ApiVersions"):
                await Connection.open(broker.address, CONFIG, HOST)

    within(10, body())


def test_a_broker_that_refuses_its_own_version_is_given_up() -> None:
    async def body() -> None:
        broker = ScriptedBroker()
        entry = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=0)

        def refuse(request: object, version: int) -> Reply:
            code = ErrorCode.UNSUPPORTED_VERSION
            return ApiVersionsResponse(error_code=code, api_keys=(entry,))

        broker.serve(ApiKey.API_VERSIONS, refuse)
        async with broker:
            with pytest.raises(ConnectionClosed):
                await Connection.open(broker.address, CONFIG, HOST)

    within(10, body())


def test_the_highest_common_version_is_used() -> None:
    async def body() -> None:
        broker = ScriptedBroker(
            metadata=answer, produce=answer, init_producer_id=answer, describe_cluster=answer
        )
        broker.versions[ApiKey.METADATA] = (0, 7)
        broker.versions[ApiKey.PRODUCE] = (0, 2)
        broker.versions[ApiKey.DESCRIBE_CLUSTER] = (9, 12)
        async with broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            await connection.request(ask("a"), MetadataResponse)
            assert broker.requests[0].version == 7
            # The last version is unstable, whatever a broker says.
            assert connection.version_of(InitProducerIdRequest) == 5
            with pytest.raises(UnsupportedVersion, match="serves Produce in versions 0-2"):
                connection.version_of(ProduceRequest)
            assert not connection.serves(DescribeClusterRequest)
            await connection.close()

    within(10, body())


def test_a_request_that_the_broker_does_not_serve_is_refused_by_name() -> None:
    async def body() -> None:
        async with ScriptedBroker() as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            with pytest.raises(UnsupportedVersion, match="does not serve DescribeCluster"):
                await connection.request(DescribeClusterRequest(), DescribeClusterResponse)
            await connection.close()

    within(10, body())


def test_pipelined_requests_get_their_own_answers() -> None:
    async def body() -> None:
        async with ScriptedBroker(metadata=answer) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            names = [f"topic-{number}" for number in range(300)]
            answers = await asyncio.gather(
                *(connection.request(ask(name), MetadataResponse) for name in names)
            )
            assert [each.cluster_id for each in answers] == names
            assert [each.topics[0].name for each in broker.asked(ApiKey.METADATA)] == names
            await connection.close()

    within(10, body())


def test_no_more_requests_than_allowed_are_in_flight() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def wait(request: MetadataRequest, version: int) -> Reply:
            await gate.wait()
            return answer(request, version)

        async with ScriptedBroker(metadata=wait) as broker:
            connection = await Connection.open(
                broker.address, ClientConfig(in_flight_requests_max=2), HOST
            )
            tasks = [
                asyncio.create_task(connection.request(ask(str(number)), MetadataResponse))
                for number in range(5)
            ]
            await until(lambda: bool(broker.requests))
            assert connection.in_flight_requests == 2
            gate.set()
            assert [(await task).cluster_id for task in tasks] == list("01234")
            await connection.close()

    within(10, body())


def test_a_cancelled_request_does_not_shift_the_answers() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def wait(request: MetadataRequest, version: int) -> Reply:
            await gate.wait()
            return answer(request, version)

        async with ScriptedBroker(metadata=wait) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            first = asyncio.create_task(connection.request(ask("first"), MetadataResponse))
            second = asyncio.create_task(connection.request(ask("second"), MetadataResponse))
            await until(lambda: bool(broker.requests))
            first.cancel()
            gate.set()
            assert (await second).cluster_id == "second"
            assert first.cancelled()
            assert connection.in_flight_requests == 0
            await connection.close()

    within(10, body())


def test_a_request_without_an_answer_ends_the_connection() -> None:
    async def body() -> None:
        async with ScriptedBroker(metadata=lambda request, version: SILENCE) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            patient = asyncio.create_task(connection.request(ask("patient"), MetadataResponse))
            with pytest.raises(TimedOut, match="did not answer Metadata within 20 ms"):
                await connection.request(ask("hasty"), MetadataResponse, timeout_ms=20)
            with pytest.raises(ConnectionClosed, match="silent"):
                await patient
            assert connection.is_closed
            with pytest.raises(ConnectionClosed):
                await connection.request(ask("late"), MetadataResponse)
            await connection.close()

    within(10, body())


def test_those_who_wait_learn_that_the_broker_closed_the_connection() -> None:
    async def body() -> None:
        async with ScriptedBroker(metadata=lambda request, version: HANG_UP) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            with pytest.raises(ConnectionClosed, match=f"{broker.address} closed the connection"):
                await connection.request(ask("a"), MetadataResponse)
            assert connection.is_closed
            await connection.close()

    within(10, body())


def test_those_who_wait_for_room_learn_it_too() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def wait(request: MetadataRequest, version: int) -> Reply:
            await gate.wait()
            return HANG_UP

        async with ScriptedBroker(metadata=wait) as broker:
            config = ClientConfig(in_flight_requests_max=1)
            connection = await Connection.open(broker.address, config, HOST)
            tasks = [
                asyncio.create_task(connection.request(ask(str(number)), MetadataResponse))
                for number in range(4)
            ]
            await until(lambda: bool(broker.requests))
            gate.set()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [ConnectionClosed] * 4
            await connection.close()

    within(10, body())


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"\0\0\0\x05\0\0\0\x63\0", "answered request 99 when 1 was due"),
        (b"\0\0\0\x02\0\0", "sent nonsense"),
        (b"\0\0\0\x05\0\0\0\x01\0", "MetadataResponse that cannot be read"),
        (b"\x7f\0\0\0", "are allowed"),
    ],
)
def test_nonsense_ends_the_connection_with_a_reason(frame: bytes, text: str) -> None:
    async def body() -> None:
        async with ScriptedBroker(metadata=lambda request, version: frame) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            with pytest.raises(ConnectionClosed, match=text):
                await connection.request(ask("a"), MetadataResponse)
            assert connection.is_closed
            await connection.close()

    within(10, body())


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async def body() -> None:
        twice = MetadataResponse().encode(0)

        def answer_twice(request: MetadataRequest, version: int) -> Reply:
            frame = (len(twice) + 4).to_bytes(4, "big") + b"\0\0\0\x01" + twice
            return frame + frame

        broker = ScriptedBroker()
        broker.serve(ApiKey.METADATA, answer_twice, (1, 1))
        async with broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            with pytest.raises(ConnectionClosed):
                await connection.request(ask("a"), MetadataResponse)
            assert connection.is_closed
            await connection.close()

    within(10, body())


def test_closing_tells_those_who_wait() -> None:
    async def body() -> None:
        async with ScriptedBroker(metadata=lambda request, version: SILENCE) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            task = asyncio.create_task(connection.request(ask("a"), MetadataResponse))
            await until(lambda: bool(broker.requests))
            await connection.close()
            await connection.close()
            with pytest.raises(ConnectionClosed, match="the connection was closed"):
                await task

    within(10, body())


def test_a_refused_connection_says_where_and_why() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = Address(*unused.getsockname())

        async def body() -> None:
            with pytest.raises(ConnectionClosed, match=f"no connection to {address}: .*refused"):
                await Connection.open(address, CONFIG, HOST)

        within(10, body())


def test_a_peer_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())

        async def body() -> None:
            with pytest.raises(TimedOut, match="ApiVersions within 30 ms"):
                await Connection.open(address, ClientConfig(request_timeout_ms=30), HOST)

        within(10, body())


def test_a_peer_that_hangs_up_at_once_may_be_no_kafka_listener() -> None:
    async def body() -> None:
        broker = ScriptedBroker()
        broker.serve(ApiKey.API_VERSIONS, lambda request, version: HANG_UP)
        async with broker:
            with pytest.raises(ConnectionClosed, match="is it a Kafka listener without TLS"):
                await Connection.open(broker.address, CONFIG, HOST)

    within(10, body())


def test_a_peer_that_hangs_up_at_the_first_request_may_want_a_login() -> None:
    async def body() -> None:
        def hang_up_on_others(request: MetadataRequest, version: int) -> Reply:
            return MetadataResponse() if request.topics == ask("first").topics else HANG_UP

        async with ScriptedBroker(metadata=hang_up_on_others) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            with pytest.raises(ConnectionClosed, match=r"first request: .* with SASL"):
                await connection.request(ask("another"), MetadataResponse)
            connection = await Connection.open(broker.address, CONFIG, HOST)
            await connection.request(ask("first"), MetadataResponse)
            with pytest.raises(ConnectionClosed, match=r"closed the connection$"):
                await connection.request(ask("another"), MetadataResponse)

    within(10, body())


def test_a_large_answer_arrives_whole() -> None:
    async def body() -> None:
        large = "x" * 30_000

        def answer_much(request: MetadataRequest, version: int) -> MetadataResponse:
            topic = MetadataResponseTopic(name=TopicName(large))
            return MetadataResponse(topics=(topic,) * 100)

        async with ScriptedBroker(metadata=answer_much) as broker:
            connection = await Connection.open(broker.address, CONFIG, HOST)
            answers = await asyncio.gather(
                *(connection.request(ask("a"), MetadataResponse) for _ in range(3))
            )
            assert all([topic.name for topic in each.topics] == [large] * 100 for each in answers)
            await connection.close()

    within(20, body())
