"""Produce (0), v0-13; advertised from 0.

- v0-2 carry message formats 0 and 1, which are converted to batches. (librdkafka up to 2.8 drops
  compression if Produce is not advertised from 0; KAFKA-18659.)
- v3 transactional id; v7 zstd; v8 errors of single records; v10 the current leader in errors; v13
  topic ids.
- The order of checks is Kafka's: request, partition, batch, records, producer state.
- Transactional records need a transactional id in the request (53), and must all have the same
  producer id and epoch (49). If the coordinator has to be asked about the transaction first
  (``transactions.verification``), the request waits; otherwise it is like any other.
- Most batches pass the fast check (``records.checking.fast_check``); the slow path has the same
  result.
- The appends of all produce requests of one read event are written together; answers are made after
  that, so nothing is acknowledged that was not written.
- acks=all is answered when the high watermark has passed the records. If that takes longer than
  ``timeout_ms``: 7, and the records stay in the log. If fewer replicas than min.insync.replicas are
  in sync by then: 20. If the leader has changed: 6.
- acks=0 gets no answer; if anything fails the connection is closed, which is all that such a client
  can notice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import PlainSteps, Steps, finish
from dohle.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dohle.records.checking.validation import produced_batch
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.slices import Begun, Slices, begin
from dohle.server.partitions.appends import (
    BATCHES,
    TOPIC_IDS,
    Appended,
    Part,
    appending_all,
    check_request,
    find_partition,
    is_uncommitted,
    no_transactional_id,
    partition_response,
)
from dohle.server.partitions.leader_hints import LeaderHints
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.claims import ClientSupport, TransactionClaim
from dohle.server.transactions.verification import (
    FirstAppend,
    TransactionalHead,
    Verified,
    may_be_transactional,
    transactional_head,
)
from dohle.storage.producers.append import NO_VERIFICATION, VerificationGuard

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

_NOTHING_ASKED = Verified({}, {})
#: How many outcomes are told of in one step.
_OUTCOMES_PER_STEP = 32
#: acks
_ALL = -1
# Looking up a member of an enum is slow.
_NO_ERROR = ErrorCode.NONE

#: What came of each partition of a request, in their order.
Outcomes = list[Appended | KafkaError]
#: Makes the answer when everything is written, or waits until it is committed.
Late = Callable[[], ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None]


def handle_produce(
    broker: BrokerServer, context: RequestContext, request: ProduceRequest
) -> Late | Coroutine[Any, Any, ProduceResponse | None]:
    """Append to every partition of the request; answer when that is written."""
    if context.version >= BATCHES and has_transactional(request):
        return _handle_transactional(broker, context, request)
    return _append_all(broker, context, request, None)


def has_transactional(request: ProduceRequest) -> bool:
    """Tell whether any of the records are part of a transaction."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if may_be_transactional(records) and transactional_head(records) is not None:
                return True
    return False


def _handle_transactional(
    broker: BrokerServer, context: RequestContext, request: ProduceRequest
) -> Late | Coroutine[Any, Any, ProduceResponse | None]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _late(broker, context, request, _refuse_all(request, no_transactional_id()))
    appends, missing = _transactional_appends(broker, context, request)
    producers = {(head.producer_id, head.producer_epoch) for _, head in appends}
    if len(producers) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "the request has transactional records of several producers",
        )
        return _late(broker, context, request, _refuse_all(request, error))
    verified = _NOTHING_ASKED
    if producers:
        support = ClientSupport.of_produce(context.version)
        transaction = TransactionClaim(transactional_id, *producers.pop(), support)
        firsts = [FirstAppend(partition, head.base_sequence) for partition, head in appends]
        verified = broker.txn_verification.begin(transaction, firsts)
        if verified.guards:
            return _append_when_verified(
                broker, context, request, transaction, firsts, verified, missing
            )
    return _append_all(broker, context, request, verified)


async def _append_when_verified(
    broker: BrokerServer,
    context: RequestContext,
    request: ProduceRequest,
    transaction: TransactionClaim,
    firsts: list[FirstAppend],
    begun: Verified,
    missing: Mapping[TopicPartition, KafkaError],
) -> ProduceResponse | None:
    verified = await broker.txn_verification.finish(transaction, firsts, begun)
    # A partition that was missing when the coordinator was asked may be here now, unverified.
    verified = verified._replace(errors={**missing, **verified.errors})
    steps = _appending_all(broker, context, request, verified)
    return await _answer_later(broker, context, request, await Slices(broker.turns).run(steps))


async def _finish(
    broker: BrokerServer, context: RequestContext, request: ProduceRequest, begun: Begun[Outcomes]
) -> ProduceResponse | None:
    return await _answer_later(broker, context, request, await begun.finish())


async def _answer_later(
    broker: BrokerServer, context: RequestContext, request: ProduceRequest, outcomes: Outcomes
) -> ProduceResponse | None:
    """Write what was appended, and answer: the requests of the same read event are answered."""
    broker.write_appends()
    slices = Slices(broker.turns)
    codes = {}
    if waiting := await slices.run(_uncommitted(request, outcomes)):
        codes = await slices.wait_for(_commit_codes(broker, request, waiting))
    response = await slices.run(_responding(broker, context, request, outcomes, codes))
    return _unless_unwanted(request, response)


def _transactional_appends(
    broker: BrokerServer, context: RequestContext, request: ProduceRequest
) -> tuple[list[tuple[Partition, TransactionalHead]], dict[TopicPartition, KafkaError]]:
    """Return the transactional appends that can be written as far as is known now.

    Also return the partitions that are missing on this broker.
    """
    found = []
    missing: dict[TopicPartition, KafkaError] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            head = transactional_head(data.records)
            if head is None or head.producer_id < 0:
                continue
            partition = find_partition(
                broker, context.version, topic.name, topic.topic_id, data.index
            )
            if isinstance(partition, KafkaError):
                name = _name(broker, context.version, topic)
                if name is not None:
                    missing[TopicPartition(name, data.index)] = partition
                continue
            try:
                produced_batch(data.records, context.version)
                check_request(partition, request.acks, context.client_id)
            except KafkaError:
                # The append will report it.
                continue
            found.append((partition, head))
    return found, missing


def _late(
    broker: BrokerServer, context: RequestContext, request: ProduceRequest, outcomes: Outcomes
) -> Late:
    """Return a function that makes the answer when everything is written."""

    def answer() -> ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None:
        if request.acks == _ALL and (waiting := finish(_uncommitted(request, outcomes))):
            return _answer_when_committed(broker, context, request, outcomes, waiting)
        response = finish(_responding(broker, context, request, outcomes, {}))
        return _unless_unwanted(request, response)

    return answer


async def _answer_when_committed(
    broker: BrokerServer,
    context: RequestContext,
    request: ProduceRequest,
    outcomes: Outcomes,
    waiting: list[Appended],
) -> ProduceResponse:
    codes = await _commit_codes(broker, request, waiting)
    return finish(_responding(broker, context, request, outcomes, codes))


async def _commit_codes(
    broker: BrokerServer, request: ProduceRequest, waiting: list[Appended]
) -> dict[int, ErrorCode]:
    """Wait until what was appended is committed; return how that ended, by ``id()``."""
    codes = await broker.commits.wait_for_all(
        [(partition, info.last_offset + 1) for partition, info in waiting], request.timeout_ms
    )
    return {id(one): code for one, code in zip(waiting, codes, strict=True)}


def _uncommitted(request: ProduceRequest, outcomes: Outcomes) -> PlainSteps[list[Appended]]:
    """Return the appends whose commit the client waits for."""
    waiting: list[Appended] = []
    if request.acks != _ALL:
        return waiting
    left = _OUTCOMES_PER_STEP
    for outcome in outcomes:
        if not isinstance(outcome, KafkaError) and is_uncommitted(outcome):
            waiting.append(outcome)
        left -= 1
        if not left:
            left = _OUTCOMES_PER_STEP
            yield
    return waiting


def _unless_unwanted(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    """Return the response; with acks=0 there is none, and an error closes the connection."""
    if request.acks == 0:
        _close_on_error(response.responses)
        return None
    return response


def _responding(
    broker: BrokerServer,
    context: RequestContext,
    request: ProduceRequest,
    outcomes: Outcomes,
    commit_errors: Mapping[int, ErrorCode],
) -> PlainSteps[ProduceResponse]:
    """Make the response; the keys of ``commit_errors`` are the ``id()`` of outcomes."""
    topics = []
    hints = LeaderHints(broker, context.version, context.connection.listener)
    left = _OUTCOMES_PER_STEP
    rest = iter(outcomes)
    for topic in request.topic_data:
        partitions: list[PartitionProduceResponse] = []
        for data, outcome in zip(topic.partition_data, rest, strict=False):
            code = commit_errors.get(id(outcome), _NO_ERROR) if commit_errors else _NO_ERROR
            told = partition_response(data.index, outcome, code)
            if told.error_code:
                told = hints.add(topic.name, topic.topic_id, told)
            partitions.append(told)
            left -= 1
            if left <= 0:
                left = _OUTCOMES_PER_STEP
                yield
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=tuple(partitions)
            )
        )
        # There may be very many topics, too.
        left -= 1
    return hints.locate(ProduceResponse(responses=tuple(topics)))


def _append_all(
    broker: BrokerServer,
    context: RequestContext,
    request: ProduceRequest,
    verified: Verified | None,
) -> Late | Coroutine[Any, Any, ProduceResponse | None]:
    """Append to all partitions; if that takes long, in the connection's later turns."""
    begun = begin(broker.turns, _appending_all(broker, context, request, verified))
    if isinstance(begun, Begun):
        return _finish(broker, context, request, begun)
    return _late(broker, context, request, begun)


def _appending_all(
    broker: BrokerServer,
    context: RequestContext,
    request: ProduceRequest,
    verified: Verified | None,
) -> Steps[Outcomes]:
    parts = _parts(broker, context.version, request, verified)
    return appending_all(broker, parts, request.acks, context.version, context.client_id)


def _parts(
    broker: BrokerServer, version: int, request: ProduceRequest, verified: Verified | None
) -> Iterator[Part]:
    guard: VerificationGuard | None = None
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = find_partition(broker, version, topic.name, topic.topic_id, data.index)
            if verified is not None and isinstance(partition, Partition):
                guard = verified.guards.get(partition.key, NO_VERIFICATION)
                partition = verified.errors.get(partition.key, partition)
            yield partition, data.records, guard


def _name(broker: BrokerServer, version: int, topic: TopicProduceData) -> TopicName | None:
    return topic.name if version < TOPIC_IDS else broker.topic_name(topic.topic_id)


def _refuse_all(request: ProduceRequest, error: KafkaError) -> Outcomes:
    return [error] * sum(len(topic.partition_data) for topic in request.topic_data)


def _close_on_error(responses: tuple[TopicProduceResponse, ...]) -> None:
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                name = ErrorCode(partition.error_code).name
                raise CloseConnection(f"produce with acks=0 to {topic.name} failed: {name}")
