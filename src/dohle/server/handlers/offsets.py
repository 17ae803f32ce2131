"""OffsetCommit (8) v2-10, TxnOffsetCommit (28) v0-5 and OffsetDelete (47) v0.

- A topic or partition that does not exist: 3, whatever becomes of the others. From OffsetCommit v10
  on topics have ids; an unknown one: 100.
- An empty group id: 24, but not for OffsetCommit, which has always taken it.
- What the coordinator refuses as a whole is the answer for each partition; OffsetDelete has a place
  for it of its own.
- TxnOffsetCommit makes sure of the transaction before it writes: from v5 on the partition of
  ``__consumer_offsets`` is added to it, before that it must have been (KIP-890). Before v2 clients
  do not know that a coordinator can be loading (14): they are told 15.
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
    """Partitions of a request that there are none of."""

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
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are no coordinators yet")
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


# What they share


def _ensure_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs an id")


def _look_up(
    topics: Iterable[Asked],
    find: Callable[[Asked], TopicImage | None],
    code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> tuple[list[Asked], list[_Unknown]]:
    """Keep the topics and partitions that exist; ``code`` is for topics that do not."""
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
    """Put answers together: one entry for each topic, what was refused first."""
    if not refused:
        return tuple(answered)
    found: dict[object, Told] = {}
    for topics in (refused, answered):
        for topic in topics:
            # By its id where the request has it: not all answers know its name then.
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
