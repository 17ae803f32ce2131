"""Produce (0), v0-13; advertised from 0.

- v0-2 carry message formats 0 and 1, which are converted to batches. (librdkafka up to 2.8 drops
  compression if Produce is not advertised from 0; KAFKA-18659.)
- v3 transactional id; v7 zstd; v8 errors of single records; v10 the current leader in errors; v13
  topic ids.
- The order of checks is Kafka's: request, partition, batch, records, producer state.
- Transactional records need a transactional id in the request (53), and all of them one producer
  and epoch (49). If the coordinator has to be asked about the transaction first
  (``txn_verification``), the request waits; else it is like any other.
- Most batches are plain and take a short way to the log (``records.plain``), with the same result.
- The appends of all produce requests of one read event are written together; the answer is made
  after that, so nothing is acknowledged that was not written.
- acks=0 gets no answer; if anything failed the connection is closed, which is all that such a
  client can notice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.metadata.topic_names import INTERNAL_TOPICS
from dohle.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dohle.protocol.schema import Records
from dohle.records.batch import ATTRIBUTES_AT, TRANSACTIONAL_FLAG, RecordBatch
from dohle.records.checking.fast_check import plain_batch
from dohle.records.checking.validation import RecordErrors, produced_batch, validate_batch
from dohle.records.conversion import to_v2
from dohle.server.net.outcome import CloseConnection
from dohle.server.partitions.lookup import hosted_partition
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.verification import (
    ClientSupport,
    FirstAppend,
    Transaction,
    TransactionalHead,
    Verified,
    transactional_head,
)
from dohle.storage.log_values import AppendInfo
from dohle.storage.producers.append import NO_VERIFICATION, VerificationGuard

if TYPE_CHECKING:
    from dohle.server.broker import Broker
    from dohle.server.net.dispatch import RequestContext

_ADMIN_CLIENT = "__admin_client"
#: The first version with record batches.
_BATCHES = 3
#: The first with any codec: before, there is more to check, and the general way does it.
_PLAIN_BATCHES = 7
#: The lower byte of a batch's attributes.
_FLAGS_AT = ATTRIBUTES_AT + 1
_NOTHING_ASKED = Verified({}, {})

#: With these, Kafka does not tell where the log begins.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)


class _RefusedByLog(KafkaError):
    """What came of an append to a log; its answer tells where the log begins."""

    def __init__(self, cause: KafkaError, log_start_offset: int) -> None:
        super().__init__(cause.code, cause.args[0])
        self.record_errors = cause.record_errors if isinstance(cause, RecordErrors) else ()
        self.log_start_offset = log_start_offset


#: A partition and what was appended to it, which may still fail to be written.
Appended = tuple[Partition, AppendInfo]
Results = list[tuple[TopicProduceData, list[tuple[PartitionProduceData, Appended | KafkaError]]]]
#: Makes the answer, when everything is written.
Late = Callable[[], ProduceResponse | None]


def handle_produce(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> Late | Coroutine[Any, Any, ProduceResponse | None]:
    """Append to every partition of the request; answer when that is written."""
    if context.version >= _BATCHES and _has_transactional(request):
        return _handle_transactional(broker, context, request)
    return _late(request, _append_all(broker, context, request, None))


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            # The flag's byte alone tells of nearly all.
            if (
                records is not None
                and len(records) > _FLAGS_AT
                and records[_FLAGS_AT] & TRANSACTIONAL_FLAG
                and transactional_head(records) is not None
            ):
                return True
    return False


def _handle_transactional(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> Late | Coroutine[Any, Any, ProduceResponse | None]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _late(request, _refuse_all(request, _no_transactional_id()))
    appends, missing = _transactional_appends(broker, context, request)
    producers = {(head.producer_id, head.producer_epoch) for _, head in appends}
    if len(producers) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of several producers"
        )
        return _late(request, _refuse_all(request, error))
    verified = _NOTHING_ASKED
    if producers:
        support = ClientSupport.of_produce(context.version)
        transaction = Transaction(transactional_id, *producers.pop(), support)
        firsts = [FirstAppend(partition, head.base_sequence) for partition, head in appends]
        verified = broker.txn_verification.begin(transaction, firsts)
        if verified.guards:
            return _append_when_verified(
                broker, context, request, transaction, firsts, verified, missing
            )
    return _late(request, _append_all(broker, context, request, verified))


async def _append_when_verified(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    transaction: Transaction,
    firsts: list[FirstAppend],
    begun: Verified,
    missing: Mapping[TopicPartition, KafkaError],
) -> ProduceResponse | None:
    verified = await broker.txn_verification.finish(transaction, firsts, begun)
    # What was not here when the coordinator was asked may be by now; it was not asked about.
    verified = verified._replace(errors={**missing, **verified.errors})
    answer = _late(request, _append_all(broker, context, request, verified))
    broker.write_held()
    return answer()


def _transactional_appends(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> tuple[list[tuple[Partition, TransactionalHead]], dict[TopicPartition, KafkaError]]:
    """Return what belongs to a transaction and may be written, as far as one can tell by now.

    And of what partitions are missing here.
    """
    found = []
    missing: dict[TopicPartition, KafkaError] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            head = transactional_head(data.records)
            if head is None or head.producer_id < 0:
                continue
            try:
                partition = _find(broker, context.version, topic, data.index)
            except KafkaError as error:
                name = _name(broker, context.version, topic)
                if name is not None:
                    missing[TopicPartition(name, data.index)] = error
                continue
            try:
                produced_batch(data.records, context.version)
                _check_request(partition, request.acks, context.client_id)
            except KafkaError:
                # Said again when it comes to the append.
                continue
            found.append((partition, head))
    return found, missing


def _late(request: ProduceRequest, results: Results) -> Late:
    """Return what makes the answer, when everything is written."""

    def answer() -> ProduceResponse | None:
        responses = tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    partition_response(data.index, outcome) for data, outcome in outcomes
                ),
            )
            for topic, outcomes in results
        )
        if request.acks == 0:
            _close_on_error(responses)
            return None
        return ProduceResponse(responses=responses)

    return answer


def _append_all(
    broker: Broker, context: RequestContext, request: ProduceRequest, verified: Verified | None
) -> Results:
    now_ms = broker.clock.now_ms()
    return [
        (
            topic,
            [
                (data, _append(broker, context, request, topic, data, verified, now_ms))
                for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]


def _refuse_all(request: ProduceRequest, error: KafkaError) -> Results:
    return [
        (topic, [(data, error) for data in topic.partition_data]) for topic in request.topic_data
    ]


def _append(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    verified: Verified | None,
    now_ms: int,
) -> Appended | KafkaError:
    guard: VerificationGuard | None = None
    try:
        partition = _find(broker, context.version, topic, data.index)
    except KafkaError as error:
        return error
    if verified is not None:
        if partition.key in verified.errors:
            return verified.errors[partition.key]
        guard = verified.guards.get(partition.key, NO_VERIFICATION)
    return append(
        broker,
        partition,
        data.records,
        request.acks,
        context.version,
        context.client_id,
        now_ms,
        guard,
    )


def append(
    broker: Broker,
    partition: Partition,
    records: Records | None,
    acks: int,
    version: int,
    client_id: str,
    now_ms: int,
    guard: VerificationGuard | None = None,
) -> Appended | KafkaError:
    """Check one partition's records and append them; they are written at the end of the event.

    Without a ``guard``, be it the one that proves nothing, no transactional records are taken.
    """
    try:
        if (
            partition.takes_plain
            and version >= _PLAIN_BATCHES
            and -1 <= acks <= 1
            and isinstance(records, memoryview)
            and (
                plain := plain_batch(
                    records, partition.rules, now_ms, is_transactional=guard is not None
                )
            )
            and (info := partition.log.append_plain(plain, partition.image.leader_epoch))
        ):
            broker.hold(partition)
            return partition, info
        return _append_general(broker, partition, records, acks, version, client_id, now_ms, guard)
    except KafkaError as error:
        return error


def _append_general(
    broker: Broker,
    partition: Partition,
    records: Records | None,
    acks: int,
    version: int,
    client_id: str,
    now_ms: int,
    guard: VerificationGuard | None,
) -> Appended:
    if version < _BATCHES:
        batch = RecordBatch(memoryview(to_v2(memoryview(records or b""))))
    else:
        batch = produced_batch(records, version)
        if guard is None and batch.is_transactional:
            raise _no_transactional_id()
    _check_request(partition, acks, client_id)
    if partition.image.leader != broker.node_id:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead it")
    try:
        return partition, _append_to_log(broker, partition, batch, acks, now_ms, guard)
    except KafkaError as error:
        if error.code in _WITHOUT_LOG_START:
            raise
        raise _RefusedByLog(error, partition.log.log_start_offset) from None


def _append_to_log(
    broker: Broker,
    partition: Partition,
    batch: RecordBatch,
    acks: int,
    now_ms: int,
    guard: VerificationGuard | None,
) -> AppendInfo:
    if acks == -1 and len(partition.image.isr) < partition.min_insync_replicas:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(partition.image.isr)} replicas are in sync, not the"
            f" {partition.min_insync_replicas} of min.insync.replicas",
        )
    batch = validate_batch(batch, partition.rules, now_ms)
    info = partition.log.append_validated(
        batch,
        partition.image.leader_epoch,
        verification_guard=NO_VERIFICATION if guard is None else guard,
        hold=True,
    )
    broker.hold(partition)
    return info


def _check_request(partition: Partition, acks: int, client_id: str) -> None:
    if acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {acks} is not known")
    if partition.key.topic in INTERNAL_TOPICS and client_id != _ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal")


def _no_transactional_id() -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactional records in a request without a transactional id",
    )


def _name(broker: Broker, version: int, topic: TopicProduceData) -> TopicName | None:
    return broker.topic_name(topic.topic_id) if version >= 13 else topic.name


def _find(broker: Broker, version: int, topic: TopicProduceData, index: int) -> Partition:
    name = _name(broker, version, topic)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    # That its directory is offline is told after what is wrong with the request itself.
    return broker.partitions.get(name, index) or hosted_partition(broker, name, index)


def partition_response(index: int, outcome: Appended | KafkaError) -> PartitionProduceResponse:
    """Say what became of one partition's records, now that they are written or not."""
    if not isinstance(outcome, KafkaError):
        partition, info = outcome
        try:
            # The write itself may have taken the directory offline.
            partition.log.owner.ensure_online()
        except KafkaError as error:
            outcome = error
        else:
            return PartitionProduceResponse(
                index=index,
                base_offset=info.first_offset,
                log_append_time_ms=info.log_append_time_ms,
                log_start_offset=partition.log.log_start_offset,
            )
    by_log = outcome if isinstance(outcome, _RefusedByLog) else None
    record_errors = by_log.record_errors if by_log else ()
    return PartitionProduceResponse(
        index=index,
        error_code=outcome.code,
        base_offset=-1,
        log_start_offset=by_log.log_start_offset if by_log else -1,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in record_errors
        ),
        error_message=str(outcome.args[0]),
    )


def _close_on_error(responses: tuple[TopicProduceResponse, ...]) -> None:
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                name = ErrorCode(partition.error_code).name
                raise CloseConnection(f"produce with acks=0 to {topic.name} failed: {name}")
