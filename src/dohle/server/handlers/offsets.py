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

from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.core.uuid import ZERO_UUID
from dohle.groups.offsets.prepared import (
    PreparedCommit,
    PreparedDeletion,
    PreparedTxnCommit,
    prepare_commit,
    prepare_txn_commit,
)
from dohle.metadata.image import TopicImage
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
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
from dohle.server.coordinators.offset_commit_answers import commit_refused
from dohle.server.net.handler import Handler, serves
from dohle.server.net.outcome import Answer
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.coordination.effects import Effects, Ticket
    from dohle.groups.coordinator import GroupCoordinator
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

_TOPIC_IDS = 10
_KNOWS_LOADING = 2
#: What refuses more than this is built in steps.
_COMMITTED_AT_ONCE = 500
#: How many partitions are looked up in one step.
_LOOKED_UP_PER_STEP = 64

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
) -> PlainSteps[Answer | Coroutine[Any, Any, OffsetCommitResponse]]:
    """Commit a group's offsets."""
    version = context.version
    image = broker.image
    if version >= _TOPIC_IDS:
        known, unknown = yield from _look_up(
            request.topics,
            lambda topic: image.topic_by_id(topic.topic_id),
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
        named = []
        for topic in known:
            found = image.topic_by_id(topic.topic_id)
            assert found is not None, "it was found a moment ago, in the same image"
            named.append(topic.replace(name=found.name))
            yield
        request = request.replace(topics=tuple(named))
    else:
        known, unknown = yield from _look_up(request.topics, lambda topic: image.topic(topic.name))
        if unknown:
            request = request.replace(topics=tuple(known))
    refused: tuple[OffsetCommitResponseTopic, ...] = ()
    if unknown:
        refused = yield from mapped_steps(_refused_commit, unknown)
    if unknown and not known:
        return OffsetCommitResponse(topics=(yield from _joined(refused, ())))
    length_max = broker.coordinators.group_settings.offset_metadata_max_bytes
    try:
        prepared = yield from prepare_commit(request, broker.clock.now_ms(), length_max)
    except KafkaError as error:
        topics = yield from mapped_steps(_refused_commit, _all(request.topics, error.code))
        return OffsetCommitResponse(topics=(yield from _joined(refused, topics)))
    entries = len(request.topics) + prepared.records.builder.record_count
    if unknown or entries > _COMMITTED_AT_ONCE:
        return _commit_known(broker, version, prepared, refused)
    return broker.groups.submit(
        request.group_id,
        partial(_commit, broker, version, prepared),
        lambda error: commit_refused(request, error),
    )


def _commit(
    broker: BrokerServer,
    version: int,
    prepared: PreparedCommit,
    machine: GroupCoordinator,
    ticket: Ticket,
) -> Effects:
    effects = machine.offsets.commit(prepared, ticket, version)
    broker.offset_commits += prepared.records.builder.record_count
    return effects


def _refused_commit(unknown: _Unknown) -> PlainSteps[OffsetCommitResponseTopic]:
    topic, indexes, code = unknown
    partitions = yield from mapped(
        lambda index: OffsetCommitResponsePartition(partition_index=index, error_code=code), indexes
    )
    return OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


async def _commit_known(
    broker: BrokerServer,
    version: int,
    prepared: PreparedCommit,
    refused: Sequence[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    request = prepared.request
    slices = Slices(broker.turns)
    try:
        response: OffsetCommitResponse = await broker.groups.call(
            request.group_id,
            partial(_commit, broker, version, prepared),
        )
        topics = response.topics
    except KafkaError as error:
        all_refused = _all(request.topics, coordinator_error_code(error))
        topics = await slices.run(mapped_steps(_refused_commit, all_refused))
    return OffsetCommitResponse(topics=await slices.run(_joined(refused, topics)))


# TxnOffsetCommit


async def handle_txn_offset_commit(
    broker: BrokerServer, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit a group's offsets as part of a transaction."""
    version = context.version
    image = broker.image
    slices = Slices(broker.turns)
    known, unknown = await slices.run(
        _look_up(request.topics, lambda topic: image.topic(topic.name))
    )
    refused = await slices.run(mapped_steps(_refused_in_transaction, unknown))
    if not known:
        return TxnOffsetCommitResponse(topics=await slices.run(_joined(refused, ())))
    if unknown:
        request = request.replace(topics=tuple(known))
    length_max = broker.coordinators.group_settings.offset_metadata_max_bytes
    try:
        prepared = await slices.run(prepare_txn_commit(request, broker.clock.now_ms(), length_max))
        topics = (await _commit_in_transaction(broker, version, prepared)).topics
    except KafkaError as error:
        code = coordinator_error_code(error)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        all_refused = _all(request.topics, code)
        topics = await slices.run(mapped_steps(_refused_in_transaction, all_refused))
    return TxnOffsetCommitResponse(topics=await slices.run(_joined(refused, topics)))


async def _commit_in_transaction(
    broker: BrokerServer, version: int, prepared: PreparedTxnCommit
) -> TxnOffsetCommitResponse:
    request = prepared.request
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
        lambda machine, ticket: machine.offsets.commit_in_transaction(prepared, ticket, version),
        guard=guard,
    )
    broker.offset_commits += prepared.records.builder.record_count
    return response


def _refused_in_transaction(unknown: _Unknown) -> PlainSteps[TxnOffsetCommitResponseTopic]:
    topic, indexes, code = unknown
    partitions = yield from mapped(
        lambda index: TxnOffsetCommitResponsePartition(partition_index=index, error_code=code),
        indexes,
    )
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)


# OffsetDelete


async def handle_offset_delete(
    broker: BrokerServer, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete a group's offsets."""
    image = broker.image
    slices = Slices(broker.turns)
    known, unknown = await slices.run(
        _look_up(request.topics, lambda topic: image.topic(topic.name))
    )
    known_request = request.replace(topics=tuple(known))
    try:
        _ensure_group_id(request.group_id)
        response = await _delete_known(broker, known_request, slices)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=coordinator_error_code(error))
    refused = await slices.run(mapped_steps(_refused_deletion, unknown))
    return OffsetDeleteResponse(topics=await slices.run(_joined(refused, response.topics)))


async def _delete_known(
    broker: BrokerServer, request: OffsetDeleteRequest, slices: Slices
) -> OffsetDeleteResponse:
    while True:
        offsets = broker.groups.shard(broker.groups.partition_of(request.group_id)).machine.offsets
        prepared = await slices.run(offsets.prepare_deletion(request))
        response: OffsetDeleteResponse | None = await broker.groups.call(
            request.group_id, partial(_delete, prepared)
        )
        if response is not None:
            return response
        # A topic has got a subscriber between two steps.


def _delete(prepared: PreparedDeletion, machine: GroupCoordinator, ticket: Ticket) -> Effects:
    return machine.offsets.delete(prepared, ticket)


def _refused_deletion(unknown: _Unknown) -> PlainSteps[OffsetDeleteResponseTopic]:
    topic, indexes, code = unknown
    partitions = yield from mapped(
        lambda index: OffsetDeleteResponsePartition(partition_index=index, error_code=code), indexes
    )
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


# Shared by all three


def _ensure_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


def _all(topics: Iterable[Asked], code: ErrorCode) -> Iterator[_Unknown]:
    """Have all partitions refused."""
    for topic in topics:
        yield _Unknown(topic, [each.partition_index for each in topic.partitions], code)


def _look_up(
    topics: Iterable[Asked],
    find: Callable[[Asked], TopicImage | None],
    code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> PlainSteps[tuple[list[Asked], list[_Unknown]]]:
    """Separate the topics and partitions that exist; ``code`` is for topics that do not."""
    known: list[Asked] = []
    unknown: list[_Unknown] = []
    for topic in topics:
        if known or unknown:
            yield
        image = find(topic)
        existing: Container[int] = () if image is None else image.partitions
        present, missing = [], []
        for number, each in enumerate(topic.partitions, 1):
            if each.partition_index in existing:
                present.append(each)
            else:
                missing.append(each.partition_index)
            if not number % _LOOKED_UP_PER_STEP:
                yield
        if image is None:
            unknown.append(_Unknown(topic, missing, code))
            continue
        if missing:
            unknown.append(_Unknown(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if not present:
                continue
            topic = topic.replace(partitions=tuple(present))
        known.append(topic)
    return known, unknown


def _joined(refused: Sequence[Told], answered: Sequence[Told]) -> PlainSteps[tuple[Told, ...]]:
    """Put answers together: one entry for each topic, what was refused first."""
    if not refused:
        return tuple(answered)
    found: dict[object, tuple[Told, list[Any]]] = {}
    for topics in (refused, answered):
        for topic in topics:
            # By its id where the request has it: not all answers know its name then.
            topic_id = getattr(topic, "topic_id", ZERO_UUID)
            key: object = topic.name if topic_id == ZERO_UUID else topic_id
            _, partitions = found.setdefault(key, (topic, []))
            partitions += topic.partitions
            yield
    return (
        yield from mapped(
            lambda each: (
                each[0]
                if len(each[0].partitions) == len(each[1])
                else each[0].replace(partitions=tuple(each[1]))
            ),
            found.values(),
        )
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.OFFSET_COMMIT, handle_offset_commit),
    serves(ApiKey.TXN_OFFSET_COMMIT, handle_txn_offset_commit),
    serves(ApiKey.OFFSET_DELETE, handle_offset_delete),
)
