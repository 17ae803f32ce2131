"""A consumer that has had too much gets an empty answer, and the time that it should wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dohle.core.steps import Steps
from dohle.protocol.framing import encode_response_in_steps
from dohle.protocol.messages.fetch import FetchResponse
from dohle.replication.fetch_sessions import FetchContext, Result, group_by_topic
from dohle.server.partitions.old_fetches import UNCONVERTED, Unconverted

if TYPE_CHECKING:
    from dohle.server.client_quotas import FetchMeter


def throttled(
    meter: FetchMeter, context: FetchContext, results: Iterable[Result], version: int
) -> Steps[FetchResponse | None]:
    """Count what was found for a fetch; return its answer if that is too much.

    The session goes on, as if nothing had been found. One that would begin does not.
    """
    found = list(results)
    if version < UNCONVERTED:
        pieces: list[object] = [data.records for _, data in found]
        size = sum(each.piece.size for each in pieces if isinstance(each, Unconverted))
    else:
        topics = yield from group_by_topic(found)
        answer = FetchResponse(responses=topics)
        size = sum(map(len, (yield from encode_response_in_steps(answer, version, 0))))
    throttle_ms = meter.take(size)
    if not throttle_ms:
        return None
    reply = context.throttled()
    return FetchResponse(
        throttle_time_ms=throttle_ms, error_code=reply.error, session_id=reply.session_id
    )
