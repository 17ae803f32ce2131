"""FindCoordinator (10), v0-6.

- Key types: 0 group, 1 transaction (v1+), 2 share partition (v6, ``group:topic-id:partition``).
  Any other type, or a share partition's key that is none: 42.
- There are no coordinators yet: every valid key is answered with 15, which clients try again.
- v4+ asks for many keys and gets an answer for each; before that there is one key and one answer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.uuid import uuid_from_text
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.server.dispatch import Handler, serves

if TYPE_CHECKING:
    from dohle.server.broker import Broker
    from dohle.server.dispatch import RequestContext

_BATCHED = 4
_SHARE_COORDINATORS = 6
_NO_NODE = BrokerId(-1)
_NO_PORT = -1
_MESSAGES = {
    ErrorCode.INVALID_REQUEST: "no coordinator is responsible for such a key",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
}


class KeyType(IntEnum):
    """For what a coordinator is looked for."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def handle_find_coordinator(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Tell who coordinates a group or a transactional id."""
    if context.version < _BATCHED:
        code = _look_up(context.version, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=code,
            error_message=_MESSAGES[code],
            node_id=_NO_NODE,
            host="",
            port=_NO_PORT,
        )
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=_NO_NODE,
                host="",
                port=_NO_PORT,
                error_code=code,
                error_message=_MESSAGES[code],
            )
            for key in request.coordinator_keys
            for code in (_look_up(context.version, request.key_type, key),)
        )
    )


def _look_up(version: int, key_type: int, key: str) -> ErrorCode:
    if key_type in (KeyType.GROUP, KeyType.TRANSACTION):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if key_type == KeyType.SHARE and version >= _SHARE_COORDINATORS and _is_share_key(key):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_REQUEST


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
