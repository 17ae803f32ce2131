"""Guards of transactions and of producers that want an id.

- InitProducerId: WRITE on the transactional id, else 53; for transactions without a timeout
  (KIP-939) TWO_PHASE_COMMIT too. Without a transactional id: IDEMPOTENT_WRITE on the cluster, or
  WRITE on any topic, else 31.
- AddPartitionsToTxn: WRITE on the transactional id, else 53; WRITE on each topic, else 29 for its
  partitions and 55 for the others. From v4 on it comes from brokers: CLUSTER_ACTION, else 31.
- AddOffsetsToTxn: WRITE on the transactional id, else 53; READ on the group, else 30.
- EndTxn: WRITE on the transactional id, else 53.
- WriteTxnMarkers: ALTER or CLUSTER_ACTION on the cluster, else 31.
- DescribeTransactions: DESCRIBE on the transactional id, else 53; topics that may not be described
  are left out. ListTransactions: what may not be described is left out.
"""

from __future__ import annotations

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.ids import NO_PRODUCER_ID
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.metadata.topic_names import is_internal
from dohle.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from dohle.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from dohle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from dohle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from dohle.protocol.schema import Response
from dohle.records.batch import NO_PRODUCER_EPOCH
from dohle.server.guards.guard import GuardedRequest, Narrowed, split
from dohle.server.guards.refusals import refused_markers

_TOPIC, _GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
_TXN_ID = AclResourceType.TRANSACTIONAL_ID
_TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_WRITE, _DESCRIBE = AclOperation.WRITE, AclOperation.DESCRIBE
_FROM_BROKERS = 4


def guard_init_producer_id(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let those pass who may write."""
    yield
    request: InitProducerIdRequest = asked.request
    rights, name = asked.rights, request.transactional_id
    if name is not None:
        may = rights.may(_WRITE, _TXN_ID, name) and (
            not request.enable_two_pc or rights.may(AclOperation.TWO_PHASE_COMMIT, _TXN_ID, name)
        )
        code = _TXN_DENIED
    else:
        may = rights.may_cluster(AclOperation.IDEMPOTENT_WRITE, quiet=True) or rights.may_any(
            _WRITE, _TOPIC
        )
        code = _CLUSTER_DENIED
    if may:
        return None
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def guard_add_partitions_to_txn(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let brokers pass, and producers that may write all that they name."""
    request: AddPartitionsToTxnRequest = asked.request
    rights = asked.rights
    if asked.version >= _FROM_BROKERS:
        if rights.may_cluster(AclOperation.CLUSTER_ACTION):
            return None
        return AddPartitionsToTxnResponse(error_code=_CLUSTER_DENIED)
    topics = request.v3_and_below_topics
    codes: dict[str, ErrorCode] = {}
    if not rights.may(_WRITE, _TXN_ID, request.v3_and_below_transactional_id):
        codes = {topic.name: _TXN_DENIED for topic in topics}
    else:
        _, refused = yield from split(
            rights, _WRITE, topics, lambda topic: None if is_internal(topic.name) else topic.name
        )
        if not refused:
            return None
        denied = {topic.name for topic in refused}
        for topic in topics:
            name = topic.name
            is_missing = asked.image.topic(name) is None
            codes[name] = (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if name in denied or is_internal(name)
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_missing
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
            yield

    def tell(topic: AddPartitionsToTxnTopic) -> PlainSteps[AddPartitionsToTxnTopicResult]:
        code = codes[topic.name]
        return AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=(
                yield from mapped(
                    lambda index: AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    ),
                    topic.partitions,
                )
            ),
        )

    results = yield from mapped_steps(tell, topics)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def guard_add_offsets_to_txn(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let those pass who may write the transaction and read for the group."""
    yield
    request: AddOffsetsToTxnRequest = asked.request
    if not asked.rights.may(_WRITE, _TXN_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_TXN_DENIED)
    if not asked.rights.may(AclOperation.READ, _GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return None


def guard_end_txn(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let those pass who may write the transaction."""
    yield
    request: EndTxnRequest = asked.request
    if asked.rights.may(_WRITE, _TXN_ID, request.transactional_id):
        return None
    return EndTxnResponse(error_code=_TXN_DENIED)


def guard_write_txn_markers(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let coordinators and administrators pass."""
    rights = asked.rights
    if rights.may_cluster(AclOperation.ALTER, quiet=True):
        return None
    if rights.may_cluster(AclOperation.CLUSTER_ACTION):
        return None
    return (yield from refused_markers(asked.request, _CLUSTER_DENIED))


def guard_describe_transactions(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be described, and hide topics that may not be seen."""
    request: DescribeTransactionsRequest = asked.request
    rights = asked.rights
    allowed, refused = yield from split(
        rights, _DESCRIBE, request.transactional_ids, lambda name: name, _TXN_ID
    )
    answers = yield from mapped(
        lambda name: TransactionState(transactional_id=name, error_code=_TXN_DENIED), refused
    )

    def complete(response: DescribeTransactionsResponse) -> PlainSteps[Response]:
        states = []
        for state in response.transaction_states:
            seen, _ = yield from split(rights, _DESCRIBE, state.topics, lambda each: each.topic)
            states.append(state.replace(topics=tuple(seen)))
            yield
        return response.replace(transaction_states=(*states, *answers))

    return Narrowed(request.replace(transactional_ids=tuple(allowed)), complete)


def guard_list_transactions(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let everybody pass, and leave out what they may not describe."""
    yield
    request: ListTransactionsRequest = asked.request

    def complete(response: ListTransactionsResponse) -> PlainSteps[Response]:
        seen, _ = yield from split(
            asked.rights,
            _DESCRIBE,
            response.transaction_states,
            lambda state: state.transactional_id,
            _TXN_ID,
            quiet=True,
        )
        return response.replace(transaction_states=tuple(seen))

    return Narrowed(request, complete)
