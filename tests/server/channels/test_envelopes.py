"""What clients ask of the controller through a broker: envelopes, as A10, A11 and A13 tell."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.principal import Principal
from dohle.protocol.apis import FORWARDABLE, ApiKey, find_api
from dohle.protocol.framing import (
    SIZE_BYTES,
    encode_request,
    parse_request_header,
    parse_response_header,
)
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.create_acls import CreateAclsRequest
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from dohle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.protocol.messages.principal import DefaultPrincipalData
from dohle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from dohle.protocol.schema import Request, Response
from dohle.server.channel import Client
from dohle.server.channels.envelope import unwrap, wrap
from dohle.server.channels.setup import RemoteChannels
from dohle.server.net.outcome import CloseConnection
from dohle.testing.simulation.world import World
from tests.server.channels.controllers import ScriptedController, on_broker, serve
from tests.server.wire import Wire, running_node

WITH_CONTROLLER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}
TOPIC = TopicName("t")
CREATE = CreateTopicsRequest(topics=(CreatableTopic(name=TOPIC, num_partitions=1),))
ALICE = Client(7, "the client", "192.0.2.7", Principal("User", "alice"))


def created(code: int = 0) -> CreateTopicsResponse:
    topic = CreatableTopicResult(name=TOPIC, error_code=code, num_partitions=1)
    return CreateTopicsResponse(topics=(topic,))


def quorum(code: int) -> DescribeQuorumResponse:
    partition = DescribeQuorumResponsePartitionData(partition_index=0, error_code=code)
    topic = DescribeQuorumResponseTopicData(topic_name=TopicName("m"), partitions=(partition,))
    return DescribeQuorumResponse(topics=(topic,))


def principal(name: str = "alice") -> bytes:
    return b"\0\0" + DefaultPrincipalData(type="User", name=name).encode(0)


def inner(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, 77, "c"))[SIZE_BYTES:]


# The broker's side


@given(st.sampled_from(["192.0.2.7", "::1", "2001:db8::7"]), st.text(max_size=20), st.text())
def test_an_envelope_has_the_request_as_it_was_sent_and_who_sent_it(
    host: str, client_id: str, name: str
) -> None:
    """A10."""
    client = Client(5, client_id, host, Principal("User", name[:50]))
    envelope = wrap(client, CREATE)
    assert envelope.request_data == b"".join(encode_request(CREATE, 5, 0, client_id))[SIZE_BYTES:]
    assert envelope.client_host_address == ip_address(host).packed
    assert envelope.request_principal is not None
    assert envelope.request_principal[:2] == bytes(2)
    found = DefaultPrincipalData.from_bytes(0, envelope.request_principal[2:])
    assert (found.type, found.name, found.token_authenticated) == ("User", name[:50], False)


def test_an_envelope_keeps_what_only_newer_releases_know() -> None:
    """A10: tagged fields of the request and of its parts."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, unknown_tags=((9, b"of a topic"),))
    sent = inner(CREATE.replace(topics=(topic,), unknown_tags=((77, b"new"),)), 7)
    head = parse_request_header(sent)
    decoded, _ = CreateTopicsRequest.decode(7, sent, head.body_offset)
    wrapped = wrap(ALICE._replace(client_id="c"), decoded).request_data
    assert wrapped[head.body_offset :] == sent[head.body_offset :]
    assert b"of a topic" in wrapped
    assert b"new" in wrapped


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST),
        (EnvelopeResponse(error_code=12_345), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0\0\0\1\0"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0\0\0\0\0\7"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error(
    reply: EnvelopeResponse, code: ErrorCode
) -> None:
    """A11."""
    assert unwrap(ALICE, reply, CreateTopicsResponse) is code


def forward(
    controller: ScriptedController, request: Request, answer: type[Response], client: Client = ALICE
) -> Response:
    """Forward a request over a simulated network."""
    world = World(1)
    leader = serve(world, 1, controller)
    found: list[Response] = []

    async def program(remote: RemoteChannels) -> None:
        found.append(await remote.channels.forwarding.forward(client, request, answer))

    on_broker(world, program, lambda: leader)
    return found[0]


def test_a_clients_request_is_decided_and_its_answer_comes_back() -> None:
    """A10, A11: in the version of the client, whatever the newest is."""
    controller = ScriptedController(lambda _: created())
    client = ALICE._replace(version=5)
    assert forward(controller, CREATE, CreateTopicsResponse, client).encode(5) == created().encode(
        5
    )
    assert controller.asked == [(CREATE, 5)]


@pytest.mark.parametrize(
    ("request_", "refusal", "answer"),
    [
        (CREATE, created(ErrorCode.NOT_CONTROLLER), created()),
        (
            UpdateFeaturesRequest(),
            UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER),
            UpdateFeaturesResponse(error_message="done"),
        ),
        (DescribeQuorumRequest(), quorum(ErrorCode.NOT_LEADER_OR_FOLLOWER), quorum(0)),
    ],
)
def test_an_answer_of_a_deposed_controller_does_not_reach_the_client(
    request_: Request, refusal: Response, answer: Response
) -> None:
    """A11: 41 anywhere in it, DescribeQuorum: 6."""
    answers = [refusal, refusal, answer]
    controller = ScriptedController(lambda _: answers.pop(0))
    client = ALICE._replace(version=find_api(request_.API_KEY).release_versions.highest)
    reply = forward(controller, request_, type(answer), client)
    assert list(reply.FIELDS) == list(answer.FIELDS)
    assert reply.encode(client.version) == answer.encode(client.version)
    assert len(controller.asked) == 3


def test_a_request_that_the_controller_does_not_know_closes_the_connection() -> None:
    """A11: the client asks anew what is served."""
    acls = CreateAclsRequest()
    assert ApiKey.CREATE_ACLS in FORWARDABLE
    with pytest.raises(CloseConnection):
        forward(
            ScriptedController(lambda _: created()),
            acls,
            CreateTopicsResponse,
            ALICE._replace(version=0),
        )


def test_other_errors_of_the_envelope_are_not_told_to_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A11: it gets UNKNOWN_SERVER_ERROR, and the operator of the broker reads why."""
    request = BrokerHeartbeatRequest(broker_id=BrokerId(1))
    assert request.API_KEY not in FORWARDABLE
    client = ALICE._replace(version=1)
    controller = ScriptedController(lambda _: created())
    reply = forward(controller, request, BrokerHeartbeatResponse, client)
    assert isinstance(reply, BrokerHeartbeatResponse)
    assert reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert caplog.messages == [
        "a BrokerHeartbeatRequest that was forwarded to the controller failed: INVALID_REQUEST"
    ]
    assert controller.asked == []


def test_a_client_whose_controller_does_not_answer_is_told_so() -> None:
    """A12: after a minute."""
    world = World(1)

    async def program(remote: RemoteChannels) -> None:
        reply = await remote.channels.forwarding.forward(ALICE, CREATE, CreateTopicsResponse)
        assert reply.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert round(world.now_s) == 60
        client = ALICE._replace(version=2)
        described = await remote.channels.forwarding.forward(
            client, DescribeQuorumRequest(), DescribeQuorumResponse
        )
        assert described.error_code == ErrorCode.REQUEST_TIMED_OUT

    on_broker(world, program, lambda: None)


def test_a_broker_learns_what_its_controller_serves() -> None:
    """A13: nothing is known before it has spoken to one."""
    world = World(1)
    leader = serve(world, 1, ScriptedController(lambda _: created()))

    async def program(remote: RemoteChannels) -> None:
        channel = remote.channels.forwarding
        assert channel.controller_range(ApiKey.CREATE_TOPICS) is None
        await channel.forward(ALICE, CREATE, CreateTopicsResponse)
        expected = find_api(ApiKey.CREATE_TOPICS).release_versions
        assert channel.controller_range(ApiKey.CREATE_TOPICS) == expected
        found = channel.controller_range(ApiKey.PRODUCE)
        assert found is not None
        assert found.lowest > found.highest, "not served"

    on_broker(world, program, lambda: leader)


# The controller's side


async def open_envelope(
    wire: Wire, data: bytes, who: bytes | None = None, address: bytes = b"\x7f\0\0\1"
) -> EnvelopeResponse:
    request = EnvelopeRequest(
        request_data=data,
        request_principal=principal() if who is None else who,
        client_host_address=address,
    )
    found = await wire.send(request)
    assert isinstance(found, EnvelopeResponse)
    return found


def on_controller(tmp_path: Path, look: Any) -> None:
    async def run() -> None:
        async with running_node(tmp_path, WITH_CONTROLLER) as node:
            (socket,) = (one for one in node.listeners if one.listener.name == "CONTROLLER")
            async with await Wire.connect(f"127.0.0.1:{socket.port}") as wire:
                await look(wire)

    asyncio.run(run())


def test_a_controller_opens_envelopes_and_seals_its_answers(tmp_path: Path) -> None:
    """A10, A11: the response has the header of the request within, and its correlation id."""

    async def look(wire: Wire) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        for version in (4, 7):
            request = CreateTopicsRequest(topics=(topic,))
            found = await open_envelope(wire, inner(request, version))
            assert (found.error_code, found.response_data is not None) == (0, True)
            assert found.response_data is not None
            key = ApiKey.CREATE_TOPICS
            correlation_id, body = parse_response_header(key, version, found.response_data)
            assert correlation_id == 77
            reply = CreateTopicsResponse.from_bytes(version, found.response_data[body:])
            exists = 0 if version == 4 else ErrorCode.TOPIC_ALREADY_EXISTS
            assert reply.topics[0].error_code == exists
        quorum = await open_envelope(wire, inner(DescribeQuorumRequest(), 2))
        assert quorum.error_code == 0
        assert quorum.response_data is not None

    on_controller(tmp_path, look)


def test_the_errors_of_an_envelope_are_told_apart(tmp_path: Path) -> None:
    """A11."""

    async def look(wire: Wire) -> None:
        create = inner(CREATE, 7)
        for data, who, address, code in [
            (create, b"", b"\x7f\0\0\1", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            (create, b"\0\7", b"\x7f\0\0\1", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            (create, None, b"", ErrorCode.INVALID_REQUEST),
            (create, None, b"\0" * 5, ErrorCode.INVALID_REQUEST),
            (create, None, b"\0" * 16, ErrorCode.NONE),
            (inner(MetadataRequest(), 12), None, b"\0" * 4, ErrorCode.INVALID_REQUEST),
            (b"", None, b"\0" * 4, ErrorCode.UNSUPPORTED_VERSION),
            (b"\x7f\xff" + create[2:], None, b"\0" * 4, ErrorCode.UNSUPPORTED_VERSION),
            (create[:2] + b"\0\x63" + create[4:], None, b"\0" * 4, ErrorCode.UNSUPPORTED_VERSION),
            (create[:-4], None, b"\0" * 4, ErrorCode.UNSUPPORTED_VERSION),
        ]:
            found = await open_envelope(wire, data, who, address)
            assert found.error_code == code, (data, who, address)
            assert (found.response_data is None) == bool(code)

    on_controller(tmp_path, look)


def test_brokers_do_not_open_envelopes(tmp_path: Path) -> None:
    """protocol.md 1: only controllers do, and only they serve what brokers ask."""

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
            answer: ApiVersionsResponse = await wire.send(asked)
            keys = {one.api_key for one in answer.api_keys}
            assert keys.isdisjoint(
                {ApiKey.ENVELOPE, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT}
            )

    asyncio.run(run())
