"""Fetch (1), v0-18.

- v0-1 get message format 0, v2-3 format 1 (down-converted); from v4 on batches are sent as they are
  on disk. v4 isolation level and aborted transactions; v7 sessions; v9 leader epochs; v12 diverging
  epochs; v13 topic ids.
- Answered at once if there is enough, if anything failed, or if it may not wait; else delayed until
  ``min_bytes`` have come or ``max_wait_ms`` have passed.
- No preferred replica is named: there is one replica.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.fetch import FetchRequest, FetchResponse
from dohle.server.partitions.delayed_fetch import DelayedFetch
from dohle.server.partitions.fetch_reader import FetchReader

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext


def handle_fetch(
    broker: BrokerServer, context: RequestContext, request: FetchRequest
) -> FetchResponse | Future[FetchResponse]:
    """Read, or wait for something to read."""
    now_ms = broker.clock.monotonic_ms()
    session = broker.fetch_sessions.open(request, context.version, broker.topic_name, now_ms)
    if session.error is not ErrorCode.NONE:
        return FetchResponse(error_code=session.error)
    reader = FetchReader(broker, request, context.version, session)
    reader.read()
    if reader.is_enough or request.max_wait_ms <= 0:
        return reader.response()
    partitions = reader.wait()
    if partitions is None:
        return reader.response()
    return DelayedFetch(broker, reader, partitions, now_ms + request.max_wait_ms).future
