"""FindCoordinator (10), v0-6.

- Key types: 0 group, 1 transaction (v1+), 2 share partition (v6, ``group:topic-id:partition``).
  Any other type, or a malformed key of a share partition: 42.
- The coordinator of a key is the leader of its partition of the coordinator's topic. The first
  request creates that topic; Kafka answers 15 meanwhile, here the answer waits for the topic.
- The partition has no leader, or its leader lacks the client's listener: 15. There are no share
  coordinators yet: 15.
- v4+ asks for many keys and gets an answer for each; before that there is one key and one answer.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.steps import PlainSteps, mapped
from dohle.core.uuid import uuid_from_text
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

logger = logging.getLogger("dohle.server")

BATCHED = 4
_SHARE_COORDINATORS = 6
_NO_NODE = BrokerId(-1)
_NO_PORT = -1


class KeyType(IntEnum):
    """What the coordinator is to coordinate."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS = {KeyType.GROUP: CONSUMER_OFFSETS, KeyType.TRANSACTION: TRANSACTION_STATE}


def handle_find_coordinator(
    broker: BrokerServer, context: RequestContext, request: FindCoordinatorRequest
) -> PlainSteps[FindCoordinatorResponse] | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Find the coordinators of groups or transactional ids."""
    topic = _TOPICS.get(KeyType(request.key_type)) if request.key_type in _TOPICS else None
    if topic is None or broker.coordinators.internal_topics.has(topic):
        return _answer(broker, context, request)
    return _create_and_answer(broker, context, request)


async def _create_and_answer(
    broker: BrokerServer, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    try:
        await broker.coordinators.internal_topics.ensure(_TOPICS[KeyType(request.key_type)])
    except KafkaError as error:
        # Clients retry, whatever the reason.
        logger.warning("a coordinator cannot be found, and the client is told to retry: %s", error)
    return await Slices(broker.turns).run(_answer(broker, context, request))


def _answer(
    broker: BrokerServer, context: RequestContext, request: FindCoordinatorRequest
) -> PlainSteps[FindCoordinatorResponse]:
    keys = request.coordinator_keys if context.version >= BATCHED else (request.key,)
    found = yield from mapped(lambda key: _look_up(broker, context, request.key_type, key), keys)
    if context.version >= BATCHED:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # In these versions success has the message "NONE".
        error_message=only.error_message or ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _look_up(broker: BrokerServer, context: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type in _TOPICS:
        is_group = key_type == KeyType.GROUP
        runtime = broker.groups if is_group else broker.transactions
        index = runtime.partition_of(key)
        partition = None if index is None else broker.image.partition(runtime.topic, index)
        leader = None if partition is None else broker.image.broker(partition.leader)
        endpoint = None if leader is None else leader.endpoints.get(context.connection.listener)
        if leader is None or leader.fenced or endpoint is None:
            return _unavailable(key)
        return Coordinator(
            key=key,
            node_id=leader.id,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
            error_message="",
        )
    if key_type == KeyType.SHARE and context.version >= _SHARE_COORDINATORS and _is_share_key(key):
        return _unavailable(key)
    return no_coordinator(key, ErrorCode.INVALID_REQUEST, "the key or its type is not valid")


def _unavailable(key: str) -> Coordinator:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return no_coordinator(key, code, "the coordinator is not available")


def no_coordinator(key: str, code: ErrorCode, message: str) -> Coordinator:
    """Say why there is no coordinator of a key."""
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_PORT,
        error_code=code,
        error_message=message,
    )


def _is_share_key(key: str) -> bool:
    parts = key.rsplit(":", 2)
    if len(parts) < 3:
        return False
    group, topic_id, partition = parts
    try:
        uuid_from_text(topic_id)
    except ValueError:
        return False
    return bool(group.strip()) and partition.isascii() and partition.isdigit()


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.FIND_COORDINATOR, handle_find_coordinator),
)
