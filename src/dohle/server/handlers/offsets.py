"""OffsetCommit (8) v2-10, TxnOffsetCommit (28) v0-5 and OffsetDelete (47) v0.

- A topic or partition that does not exist: 3, whatever the result of the others. From OffsetCommit
  v10 on topics have ids; an unknown id: 100.
- An empty group id: 24, except for OffsetCommit, which has always allowed it.
- An error of the coordinator for the whole request is returned for each partition; OffsetDelete has
  a field of its own for it.
- TxnOffsetCommit verifies the transaction before it writes: from v5 on it adds the partition of
  ``__consumer_offsets`` to the transaction; before that it must have been added (KIP-890). Clients
  before v2 do not know that a coordinator can be loading (14): they get 15.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.image import TopicImage
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.coordinators.offset_commit_answers import commit_refused, commit_topic
from dohle.server.net.dispatch import Handler, serves
from dohle.server.net.outcome import Answer

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

_TOPIC_IDS = 10
_KNOWS_LOADING = 2

Asked = TypeVar(
    "Asked", OffsetCommitRequestTopic, TxnOffsetCommitRequestTopic, OffsetDeleteRequestTopic
)
Told = TypeVar(
    "Told", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic, OffsetDeleteResponseTopic
)


class _Unknown(NamedTuple):
    """Partitions of a request that do not exist."""

    topic: Any
    partition_indexes: Sequence[int]
    code: ErrorCode


# OffsetCommit


def handle_offset_commit(
    broker: BrokerServer, context: RequestContext, request: OffsetCommitRequest
) -> Answer | Coroutine[Any, Any, OffsetCommitResponse]:
    """Commit a group's offsets."""
    version = context.version
    image = broker.image
    if version >= _TOPIC_IDS:
        known, unknown = _look_up(
            request.topics,
            lambda topic: image.topic_by_id(topic.topic_id),
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
        request = request.replace(
            topics=tuple(
                topic.replace(name=found.name)
                for topic in known
                if (found := image.topic_by_id(topic.topic_id)) is not None
            )
        )
    else:
        known, unknown = _look_up(request.topics, lambda topic: image.topic(topic.name))
        if unknown:
            request = request.replace(topics=tuple(known))
    refused = [commit_topic(topic, indexes, code) for topic, indexes, code in unknown]
    if not refused:
        return broker.groups.submit(
            request.group_id,
            lambda machine, ticket: machine.offsets.commit(request, ticket, version),
            lambda error: commit_refused(request, error),
        )
    if not known:
        return OffsetCommitResponse(topics=_joined(refused, ()))
    return _commit_known(broker, version, request, refused)


async def _commit_known(
    broker: BrokerServer,
    version: int,
    request: OffsetCommitRequest,
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    try:
        response: OffsetCommitResponse = await broker.groups.call(
            request.group_id,
            lambda machine, ticket: machine.offsets.commit(request, ticket, version),
        )
    except KafkaError as error:
        response = commit_refused(request, error)
    return OffsetCommitResponse(topics=_joined(refused, response.topics))


# TxnOffsetCommit


async def handle_txn_offset_commit(
    broker: BrokerServer, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit a group's offsets as part of a transaction."""
    version = context.version
    image = broker.image
    known, unknown = _look_up(request.topics, lambda topic: image.topic(topic.name))
    refused = [_txn_topic(topic, indexes, code) for topic, indexes, code in unknown]
    if not known:
        return TxnOffsetCommitResponse(topics=_joined(refused, ()))
    if unknown:
        request = request.replace(topics=tuple(known))
    try:
        topics = (await _commit_in_transaction(broker, version, request)).topics
    except KafkaError as error:
        code = coordinator_error_code(error)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        topics = tuple(
            _txn_topic(topic, [each.partition_index for each in topic.partitions], code)
            for topic in request.topics
        )
    return TxnOffsetCommitResponse(topics=_joined(refused, topics))


async def _commit_in_transaction(
    broker: BrokerServer, version: int, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    _ensure_group_id(request.group_id)
    index = broker.groups.partition_of(request.group_id)
    if index is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's topic has not been created yet"
        )
    guard = await broker.txn_verification.verify_offsets_partition(
        index, request.transactional_id, request.producer_id, request.producer_epoch, version
    )
    response: TxnOffsetCommitResponse = await broker.groups.call(
        request.group_id,
        lambda machine, ticket: machine.offsets.commit_in_transaction(request, ticket, version),
        guard=guard,
    )
    return response


def _txn_topic(
    topic: TxnOffsetCommitRequestTopic, indexes: Iterable[int], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=tuple(
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index in indexes
        ),
    )


# OffsetDelete


async def handle_offset_delete(
    broker: BrokerServer, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete a group's offsets."""
    image = broker.image
    known, unknown = _look_up(request.topics, lambda topic: image.topic(topic.name))
    known_request = request.replace(topics=tuple(known))
    try:
        _ensure_group_id(request.group_id)
        response: OffsetDeleteResponse = await broker.groups.call(
            request.group_id,
            lambda machine, ticket: machine.offsets.delete(known_request, ticket),
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=coordinator_error_code(error))
    refused = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                for index in indexes
            ),
        )
        for topic, indexes, code in unknown
    ]
    return OffsetDeleteResponse(topics=_joined(refused, response.topics))


# Shared by all three


def _ensure_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


def _look_up(
    topics: Iterable[Asked],
    find: Callable[[Asked], TopicImage | None],
    code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> tuple[list[Asked], list[_Unknown]]:
    """Separate topics and partitions that exist from those that do not, which get ``code``."""
    known: list[Asked] = []
    unknown: list[_Unknown] = []
    for topic in topics:
        image = find(topic)
        partitions = topic.partitions
        if image is None:
            unknown.append(_Unknown(topic, [each.partition_index for each in partitions], code))
            continue
        existing = image.partitions
        missing = [
            each.partition_index for each in partitions if each.partition_index not in existing
        ]
        if missing:
            unknown.append(_Unknown(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if len(missing) == len(partitions):
                continue
            topic = topic.replace(
                partitions=tuple(each for each in partitions if each.partition_index in existing)
            )
        known.append(topic)
    return known, unknown


def _joined(refused: Sequence[Told], answered: Sequence[Told]) -> tuple[Told, ...]:
    """Merge answers into one entry for each topic; refused partitions come first."""
    if not refused:
        return tuple(answered)
    found: dict[object, Told] = {}
    for topics in (refused, answered):
        for topic in topics:
            # By id if the request has ids: then not all answers have the name.
            topic_id = getattr(topic, "topic_id", ZERO_UUID)
            key: object = topic.name if topic_id == ZERO_UUID else topic_id
            earlier = found.get(key)
            if earlier is None:
                found[key] = topic
            else:
                found[key] = earlier.replace(partitions=earlier.partitions + topic.partitions)
    return tuple(found.values())


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.OFFSET_COMMIT, handle_offset_commit),
    serves(ApiKey.TXN_OFFSET_COMMIT, handle_txn_offset_commit),
    serves(ApiKey.OFFSET_DELETE, handle_offset_delete),
)
