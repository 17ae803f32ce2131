"""Fetch (1), v0-18.

- v0-1 get message format 0, v2-3 format 1 (down-converted); from v4 on batches are sent as they are
  on disk. v4 isolation level and aborted transactions; v7 sessions; v9 leader epochs; v12 diverging
  epochs; v13 topic ids.
- Answered at once if there is enough, if anything failed, or if it may not wait; else delayed until
  ``min_bytes`` have come or ``max_wait_ms`` have passed. One of very many partitions that comes
  soon after another is looked at a little later: see ``fetch_pacing``.
- Consumers may ask any replica from v11 on, and see what that replica knows to be committed. With
  ``replica.selector.class`` a leader sends those that name their rack to a replica there (KIP-392).
- What is in the remote tier only is read in other threads, and answered after no more than
  ``remote.fetch.max.wait.ms``; a follower is told 109, and begins with what the tier knows.
- A consumer with a quota that has had too much gets no records, and is told how long to wait.
- From v16 on whoever asks the wrong broker is told the leader and where it is (KIP-951).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, Steps
from dohle.protocol.messages.fetch import FetchRequest, FetchResponse
from dohle.server.net.outcome import LongAnswer
from dohle.server.net.slices import Slices, in_slices, result_of, work_for
from dohle.server.partitions.delayed_fetch import DelayedFetch
from dohle.server.partitions.fetch_pacing import Pace
from dohle.server.partitions.fetch_reader import FetchReader, fetching_replica
from dohle.server.partitions.old_fetches import UNCONVERTED, converted
from dohle.server.rights import Rights

if TYPE_CHECKING:
    from dohle.replication.fetch_sessions import SessionPartition
    from dohle.server.broker import BrokerServer
    from dohle.server.client_quotas import FetchMeter
    from dohle.server.net.handler import RequestContext

#: How many partitions are looked at in one step.
_LOOKED_AT_PER_STEP = 256


def fetch_kind(request: FetchRequest) -> str:
    """Tell consumers' requests from those of followers, as Kafka's metrics do."""
    return "FetchConsumer" if fetching_replica(request) is None else "FetchFollower"


def handle_fetch(
    broker: BrokerServer, context: RequestContext, request: FetchRequest
) -> FetchResponse | Future[FetchResponse] | LongAnswer:
    """Read, or wait for something to read."""
    session_size = broker.fetch_sessions.size_of(request.session_id) if request.session_id else 0
    pace = broker.fetch_pacing.of(context.connection, request, session_size)
    if fetching_replica(request) is not None:
        # Producers wait for followers: these are never held up.
        pace = None
        context.connection.is_follower = True
    now_ms = broker.clock.monotonic_ms()
    steps = _serve(broker, context, request, pace, now_ms)
    answer = in_slices(broker.turns, steps) if pace is None else _read_at(broker, pace, steps)
    if context.version < UNCONVERTED:
        answer = converted(broker, answer)
    if pace is not None and isinstance(answer, Future):
        return LongAnswer(answer)
    return answer


def _read_at(
    broker: BrokerServer, pace: Pace, steps: Steps[FetchResponse | Future[FetchResponse]]
) -> FetchResponse | Future[FetchResponse]:
    loop, steps = broker.loop, pace.timed(steps)
    if pace.next_at > loop.time():
        future: Future[FetchResponse] = loop.create_future()
        work_for(loop, future, _serve_later(broker, pace.next_at, steps))
        return future
    return in_slices(broker.turns, steps)


async def _serve_later(
    broker: BrokerServer, when: float, steps: Steps[FetchResponse | Future[FetchResponse]]
) -> FetchResponse:
    loop = broker.loop
    wake_up = loop.create_future()
    timer = loop.call_at(when, wake_up.set_result, None)
    try:
        await wake_up
    finally:
        timer.cancel()
    return await result_of(await Slices(broker.turns).run(steps))


class _All:
    """All topics."""

    def __contains__(self, name: object) -> bool:
        return name is not None


def _refused_topics(
    rights: Rights, request: FetchRequest, partitions: Iterable[SessionPartition]
) -> PlainSteps[Container[TopicName | None]]:
    """Return the topics of a fetch that its sender may not read.

    A follower may read all or nothing, whatever it says of itself (CVE-2018-1288).
    """
    if fetching_replica(request) is not None:
        return () if rights.may_cluster(AclOperation.CLUSTER_ACTION) else _All()
    known: dict[TopicName | None, bool] = {None: True}
    for number, part in enumerate(partitions, 1):
        name = part.topic
        if name not in known:
            assert name is not None
            known[name] = rights.may(AclOperation.READ, AclResourceType.TOPIC, name)
        if not number % _LOOKED_AT_PER_STEP:
            yield
    return {name for name, may in known.items() if not may}


def _serve(
    broker: BrokerServer,
    context: RequestContext,
    request: FetchRequest,
    pace: Pace | None,
    now_ms: int,
) -> Steps[FetchResponse | Future[FetchResponse]]:
    sessions, version = broker.fetch_sessions, context.version
    session = sessions.open_unchanged(request, version, now_ms) if request.session_id else None
    if session is None:
        session = yield from sessions.open(request, version, broker.topic_name, now_ms)
    if session.error is not ErrorCode.NONE:
        return FetchResponse(error_code=session.error)
    refused: Container[TopicName | None] = ()
    if broker.authorizer is not None:
        rights = Rights.of(broker.authorizer, context.connection, "Fetch")
        refused = yield from _refused_topics(rights, request, session.partitions)
    meter: FetchMeter | None = None
    if broker.metering is not None and fetching_replica(request) is None:
        user = context.connection.principal.name
        meter = broker.metering.fetch_meter(user, context.client_id)
        if meter is not None:
            request = meter.capped(request)
    listener = context.connection.listener
    reader = FetchReader(broker, request, version, session, listener, refused=refused, meter=meter)
    may_wait = request.max_wait_ms > 0
    # Of very many partitions the sizes are looked at first: there may be nothing to read yet.
    if pace is None or not may_wait or not (yield from reader.may_wait_unread()):
        yield from reader.read()
        if reader.remote:
            return broker.answer_from_tier(reader)
        if reader.is_enough() or not may_wait:
            if pace is not None:
                pace.has_found_much = reader.has_found_much()
            return (yield from reader.response())
    delayed = DelayedFetch(broker, reader, now_ms + request.max_wait_ms, pace)
    yield from delayed.look_at_all()
    return delayed.future
