"""CreateTopics (19) v2-7, DeleteTopics (20) v1-6, CreatePartitions (37) v0-3.

- The controller decides about each topic separately (``dohle.metadata``). The answer comes when the
  decision is on disk and has taken effect here: a topic that was reported as created takes records
  at once.
- CreateTopics: manual assignments, configs; ``validate_only`` does everything except the writing.
  v5 returns the resulting counts and configs, v7 the topic id.
- DeleteTopics: by name, from v6 also by id. ``delete.topic.enable=false`` refuses: 73, below v3 42.
- CreatePartitions: the new total, optionally with the assignments of the added ones.
- A command whose ``timeout_ms`` passes before its turn comes is not carried out: 7 for every topic
  of the request. As in Kafka, that includes a timeout of 0.
- If the metadata log cannot be written, every topic of the request gets that error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from dohle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext


async def handle_create_topics(
    server: Frontend, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics."""
    return await server.ask_controller(context, request, CreateTopicsResponse)


async def handle_delete_topics(
    server: Frontend, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics."""
    return await server.ask_controller(context, request, DeleteTopicsResponse)


async def handle_create_partitions(
    server: Frontend, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics."""
    return await server.ask_controller(context, request, CreatePartitionsResponse)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.CREATE_TOPICS, handle_create_topics),
    serves(ApiKey.DELETE_TOPICS, handle_delete_topics),
    serves(ApiKey.CREATE_PARTITIONS, handle_create_partitions),
)
