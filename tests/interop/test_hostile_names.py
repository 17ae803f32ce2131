"""Whatever names and numbers a request holds: it is answered, and the answer can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.produce import ProduceRequest
from dohle.protocol.schema import Request
from dohle.server.registry import all_handlers
from dohle.testing import Broker
from tests.interop.wire import Closed, Wire, batch_of
from tests.protocol.random_messages import PRIMITIVES, messages

#: The longest that a request can hold, in one byte a character and in three.
LONGEST = "x" * 32767
LONGEST_OF_THREE = "日" * 10922
TOPIC = "known"

_NAMES = st.sampled_from(
    [LONGEST, LONGEST_OF_THREE, TOPIC, "__consumer_offsets", "", "..", "a\n\x1b[2J\0", "x" * 250]
)
_BYTES = st.sampled_from([b"", b"\0" * 3, b"x" * 40_000, batch_of(b"value"), b"\xff" * 61])
_SMALL = st.sampled_from([0, 1, 2, -1])


def hostile_values(name: str, kind: str) -> st.SearchStrategy[Any]:
    if kind == "string":
        return _NAMES
    if kind in ("binary", "record_data"):
        return _BYTES
    if kind == "int32" and ("timeout" in name or "wait" in name):
        # What is long is waited for.
        return st.sampled_from([0, 1, 20, -1])
    if kind.startswith("int"):
        most = (1 << int(kind[3:]) - 1) - 1
        return st.one_of(_SMALL, st.sampled_from([most, -most - 1, most - 1]))
    return PRIMITIVES[kind]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "2"}
    with Broker(config) as started:
        with Wire(started.bootstrap) as wire:
            wire.create_topic(TOPIC, partitions=2)
        yield started


def drawn_request(data: st.DataObject, api: ApiKey) -> tuple[Request, int]:
    handler = all_handlers()[api]
    version = data.draw(st.integers(handler.lowest, handler.highest))
    request = data.draw(messages(find_api(api).request(), version, values=hostile_values))
    assert isinstance(request, Request)
    return request, version


def check_answered(broker: Broker, request: Request, version: int, client_id: str | None) -> None:
    with Wire(broker.bootstrap, client_id=client_id) as wire:
        if isinstance(request, ProduceRequest) and request.acks == 0:
            # Nobody waits for an answer; a failure is told by closing the connection.
            wire.send(request, version)
            with suppress(Closed):
                wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            return
        wire.ask(request, find_api(request.API_KEY).response(), version)
        # What stands behind it is served too.
        assert wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


_CLIENT_IDS = st.sampled_from([None, "client", LONGEST])


@pytest.mark.parametrize("api", sorted(all_handlers()), ids=lambda api: api.name.lower())
@settings(max_examples=40)
@given(data=st.data(), client_id=_CLIENT_IDS)
def test_every_request_is_answered(
    api: ApiKey, data: st.DataObject, client_id: str | None, broker: Broker
) -> None:
    request, version = drawn_request(data, api)
    check_answered(broker, request, version, client_id)


@settings(max_examples=100)
@given(data=st.data(), client_id=_CLIENT_IDS)
def test_so_are_requests_about_what_others_have_left(
    data: st.DataObject, client_id: str | None, broker: Broker
) -> None:
    for api in data.draw(st.lists(st.sampled_from(sorted(all_handlers())), max_size=5)):
        request, version = drawn_request(data, api)
        check_answered(broker, request, version, client_id)


def test_what_a_request_has_done_is_told_though_another_part_of_it_quotes_too_long_a_name(
    broker: Broker,
) -> None:
    names = ("made", LONGEST)
    with Wire(broker.bootstrap) as wire:
        reply = wire.ask(
            CreateTopicsRequest(
                topics=tuple(
                    CreatableTopic(name=TopicName(name), num_partitions=1, replication_factor=1)
                    for name in names
                )
            ),
            CreateTopicsResponse,
            7,
        )
    made, refused = reply.topics
    assert (made.name, made.error_code) == ("made", 0)
    assert (refused.name, refused.error_code) == (LONGEST, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert refused.error_message is not None
    assert len(refused.error_message) < 3000
