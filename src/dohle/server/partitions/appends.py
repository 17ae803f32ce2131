"""Appending a producer's records to its partitions: the checks in Kafka's order, then the log.

Most batches pass the fast check (``records.checking.fast_check``) and need no other; those that it
does not accept take the slow path, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import GeneratorType
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import Steps
from dohle.metadata.topic_names import INTERNAL_TOPICS
from dohle.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from dohle.protocol.schema import Records
from dohle.records.batch import RecordBatch
from dohle.records.checking.fast_check import FastCheckedBatch, begin_fast_check
from dohle.records.checking.validation import (
    RecordErrors,
    RecordRules,
    produced_batch,
    validating,
)
from dohle.records.errors import WrongChecksum, WrongFormat, WrongOffsets
from dohle.records.up_conversion import converting_up
from dohle.server.partitions.lookup import local_partition
from dohle.server.partitions.partitions import Partition
from dohle.storage.log_values import AppendInfo
from dohle.storage.producers.append import NO_VERIFICATION, VerificationGuard

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

#: The first version with record batches, and the first that names topics by their ids.
BATCHES, TOPIC_IDS = 3, 13
_ADMIN_CLIENT = "__admin_client"
#: The first version that allows every codec. Older ones need more checks: those of the slow path.
_FAST_CHECK_FROM = 7

#: How many refused records are listed in an answer, and of each further partition the first one.
_RECORD_ERRORS_MAX = 10_000
#: How many partitions' batches are appended in one step, if each is short.
_PARTITIONS_PER_STEP = 8

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
#: With these errors, Kafka does not return the log start offset.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)


class RefusedByLog(KafkaError):
    """The log refused an append; the answer includes the log start offset."""

    def __init__(self, cause: KafkaError, log_start_offset: int) -> None:
        super().__init__(cause.code, cause.args[0])
        self.cause = cause
        self.record_errors = cause.record_errors if isinstance(cause, RecordErrors) else ()
        self.log_start_offset = log_start_offset

    def list_at_most(self, count: int) -> None:
        """Keep the first errors of single records."""
        self.record_errors = self.record_errors[:count]


#: A partition and what was appended to it. Writing it may still fail.
Appended = tuple[Partition, AppendInfo]
#: What a finished append returns. (Kept here: it takes longer to make a union than to look at it.)
DONE = (tuple, KafkaError)

#: A partition, or why there is none, the records for it, and the guard of transactional ones.
Part = tuple[Partition | KafkaError, Records | None, VerificationGuard | None]


def find_partition(
    broker: BrokerServer, version: int, topic: TopicName, topic_id: Uuid, index: int
) -> Partition | KafkaError:
    """Return the partition that a request of this version names, by topic or by topic id."""
    if version < TOPIC_IDS:
        partition = broker.partitions.get(topic, index)
    else:
        partition = broker.partitions.get_by_id(topic_id, index)
    # An offline directory is reported only after errors in the request itself.
    if partition is not None:
        return partition
    if version >= TOPIC_IDS:
        name = broker.topic_name(topic_id)
        if name is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        topic = name
    try:
        return local_partition(broker, topic, index)
    except KafkaError as error:
        return error


def appending_all(
    broker: BrokerServer, parts: Iterable[Part], acks: int, version: int, client_id: str
) -> Steps[list[Appended | KafkaError]]:
    """Append to each partition in turn; return the outcomes in this order.

    The parts are taken one by one: between steps partitions may come and go.
    """
    now_ms = broker.clock.now_ms()
    outcomes: list[Appended | KafkaError] = []
    errors: dict[tuple[type, ErrorCode, str], KafkaError] = {}
    left, listed = _PARTITIONS_PER_STEP, 0
    for partition, records, guard in parts:
        if isinstance(partition, KafkaError):
            outcome: Appended | KafkaError = partition
        else:
            begun = append(broker, partition, records, acks, version, client_id, now_ms, guard)
            outcome = begun if isinstance(begun, DONE) else (yield from begun)
        left -= 1
        if not left:
            left = _PARTITIONS_PER_STEP
            yield None
        if isinstance(outcome, KafkaError):
            # It takes a kilobyte, and very many may be refused.
            outcome.__traceback__ = None
            if not isinstance(outcome, RefusedByLog):
                # Most of them for the same reason.
                reason = type(outcome), outcome.code, str(outcome)
                outcome = errors.setdefault(reason, outcome)
            elif outcome.record_errors:
                outcome.list_at_most(max(1, _RECORD_ERRORS_MAX - listed))
                listed += len(outcome.record_errors)
        outcomes.append(outcome)
    return outcomes


def append(
    broker: BrokerServer,
    partition: Partition,
    records: Records | None,
    acks: int,
    version: int,
    client_id: str,
    now_ms: int,
    guard: VerificationGuard | None = None,
) -> Appended | KafkaError | Steps[Appended | KafkaError]:
    """Check one partition's records and append them; they are written after the read event.

    Transactional records are refused if ``guard`` is None; ``NO_VERIFICATION`` is a guard too.
    Returns the steps that are left if the batch takes the slow path or has very many records.
    """
    check: FastCheckedBatch | Steps[FastCheckedBatch | None] | None = None
    partition.traffic.produce_requests += 1
    try:
        if (
            partition.allows_fast_check
            and version >= _FAST_CHECK_FROM
            and -1 <= acks <= 1
            and isinstance(records, memoryview)
        ):
            check = begin_fast_check(
                records, partition.rules, now_ms, is_transactional=guard is not None
            )
            if isinstance(check, FastCheckedBatch):
                info = partition.log.append_fast_checked(check, partition.image.leader_epoch)
                if info is not None:
                    broker.note_unwritten(partition)
                    return partition, info
    except KafkaError as error:
        return _refused(partition, records, error)
    return _appending(broker, partition, records, acks, version, client_id, now_ms, guard, check)


def _appending(
    broker: BrokerServer,
    partition: Partition,
    records: Records | None,
    acks: int,
    version: int,
    client_id: str,
    now_ms: int,
    guard: VerificationGuard | None,
    check: FastCheckedBatch | Steps[FastCheckedBatch | None] | None,
) -> Steps[Appended | KafkaError]:
    """Check and append on the slow path, or after the rest of a long fast check."""
    try:
        if isinstance(check, GeneratorType):
            check = yield from check
        is_checked = check is not None
        if version < BATCHES:
            converted = yield from converting_up(
                memoryview(records or b""),
                max_message_bytes=partition.rules.max_message_bytes,
                rules=RecordRules(partition.rules, now_ms, partition.key),
            )
            batch = RecordBatch(memoryview(converted))
            partition.traffic.produce_conversions += batch.record_count
        else:
            batch = produced_batch(records, version)
            if guard is None and batch.is_transactional:
                raise no_transactional_id()
        check_request(partition, acks, client_id)
        _check_leader(partition)
        if not is_checked:
            with _told_by_log(partition):
                _check_isr(partition, acks)
                batch = yield from validating(batch, partition.rules, now_ms, partition.key)
            # That may have taken long.
            _check_leader(partition)
        with _told_by_log(partition):
            _check_isr(partition, acks)
            info = partition.log.append_validated(
                batch,
                partition.image.leader_epoch,
                verification_guard=NO_VERIFICATION if guard is None else guard,
                defer_write=True,
            )
    except KafkaError as error:
        return _refused(partition, records, error)
    broker.note_unwritten(partition)
    return partition, info


def _refused(partition: Partition, records: Records | None, error: KafkaError) -> KafkaError:
    """Count what is refused."""
    traffic = partition.traffic
    traffic.failed_produce_requests += 1
    if error.code in _TOO_LARGE:
        traffic.bytes_rejected += len(records or b"")
    match error.cause if isinstance(error, RefusedByLog) else error:
        case WrongChecksum():
            traffic.invalid_checksums += 1
        case WrongFormat():
            traffic.invalid_magic += 1
        case WrongOffsets():
            traffic.invalid_offsets += 1
        case RecordErrors() as of_records:
            traffic.invalid_magic += of_records.of_wrong_format
            traffic.no_key += of_records.without_key
    return error


@contextmanager
def _told_by_log(partition: Partition) -> Iterator[None]:
    """Let an error tell where the log begins, where Kafka does."""
    try:
        yield
    except KafkaError as error:
        if error.code in _WITHOUT_LOG_START:
            raise
        raise RefusedByLog(error, partition.log.log_start_offset) from None


def _check_leader(partition: Partition) -> None:
    if not partition.is_led:
        # That its disk has failed goes first, as in every other look-up.
        partition.log.disk.ensure_online()
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
        )


def _check_isr(partition: Partition, acks: int) -> None:
    if acks == -1 and partition.is_under_min_isr:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"only {len(partition.replication.isr)} replicas are in sync;"
            f" min.insync.replicas is {partition.replication.min_isr}",
        )


def check_request(partition: Partition, acks: int, client_id: str) -> None:
    """Check what can be wrong with a request whatever its records are."""
    if acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, but is {acks}")
    if partition.key.topic in INTERNAL_TOPICS and client_id != _ADMIN_CLIENT:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, "clients must not write to an internal topic"
        )


def no_transactional_id() -> KafkaError:
    """Return the error for transactional records without a transactional id."""
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactional records in a request without a transactional id",
    )


def is_uncommitted(outcome: Appended) -> bool:
    """Tell whether records are in the log but not committed, so that acks=all has to wait."""
    partition, info = outcome
    log = partition.log
    return log.high_watermark <= info.last_offset and log.disk.is_online()


def partition_response(
    index: int, outcome: Appended | KafkaError, commit_error: ErrorCode = ErrorCode.NONE
) -> PartitionProduceResponse:
    """Make the answer for one partition's records, after writing has succeeded or failed.

    ``commit_error`` is the reason why they are not known to be committed; they are in the log all
    the same, and the answer has their offset.
    """
    if not isinstance(outcome, KafkaError):
        partition, info = outcome
        # The write itself may have taken the directory offline.
        if partition.log.disk.is_online():
            return PartitionProduceResponse(
                index=index,
                error_code=commit_error,
                base_offset=info.first_offset,
                log_append_time_ms=info.log_append_time_ms,
                log_start_offset=partition.log.log_start_offset,
            )
        outcome = partition.log.disk.offline_error()
    by_log = outcome if isinstance(outcome, RefusedByLog) else None
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
