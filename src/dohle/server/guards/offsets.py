"""Guards of committed offsets.

- OffsetCommit: READ on the group, else 30 for every partition; READ on each topic, else 29 for its
  partitions. TxnOffsetCommit also WRITE on the transactional id, first, else 53 for all.
- OffsetFetch: DESCRIBE on each group, else 30; DESCRIBE on topics, else 29 for those that were
  named; if all were asked for, the others are left out.
- OffsetDelete: DELETE on the group, else 30; READ on each topic, else 29 for its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from dohle.protocol.schema import Response
from dohle.server.guards.guard import (
    GuardedRequest,
    Narrowed,
    error_for_every_partition,
    guarded_topics,
    joined,
    name_of_topic,
    split,
    topic_of_id,
)
from dohle.server.rights import Rights

_GROUP, _TXN_ID = AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
_GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_COMMIT_TOPIC_IDS, _FETCH_TOPIC_IDS = 10, 10
_GROUP_ERROR, _BATCHED = 2, 8
_NO_OFFSET = -1


# OffsetCommit


def guard_offset_commit(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let offsets pass of topics that may be read."""
    request: OffsetCommitRequest = asked.request

    def refuse(
        topics: Sequence[OffsetCommitRequestTopic], code: ErrorCode = _TOPIC_DENIED
    ) -> PlainSteps[tuple[OffsetCommitResponseTopic, ...]]:
        return error_for_every_partition(
            topics,
            lambda each: OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=code
            ),
            lambda topic, partitions: OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            ),
        )

    if not asked.rights.may(AclOperation.READ, _GROUP, request.group_id):
        return OffsetCommitResponse(topics=(yield from refuse(request.topics, _GROUP_DENIED)))
    name_of: Callable[[Any], str | None] = name_of_topic
    if asked.version >= _COMMIT_TOPIC_IDS:
        name_of = topic_of_id(asked.image)
    return (
        yield from guarded_topics(
            asked,
            AclOperation.READ,
            refuse,
            OffsetCommitResponse,
            name_of=name_of,
            refused_first=True,
        )
    )


# TxnOffsetCommit


def guard_txn_offset_commit(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let offsets pass of topics that may be read."""
    request: TxnOffsetCommitRequest = asked.request
    rights = asked.rights
    code: ErrorCode | None = None
    if not rights.may(AclOperation.WRITE, _TXN_ID, request.transactional_id):
        code = _TXN_DENIED
    elif not rights.may(AclOperation.READ, _GROUP, request.group_id):
        code = _GROUP_DENIED
    if code is not None:
        return TxnOffsetCommitResponse(topics=(yield from _refused_txn(request.topics, code)))
    return (
        yield from guarded_topics(
            asked, AclOperation.READ, _refused_txn, TxnOffsetCommitResponse, refused_first=True
        )
    )


def _refused_txn(
    topics: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode = _TOPIC_DENIED
) -> PlainSteps[tuple[TxnOffsetCommitResponseTopic, ...]]:
    return error_for_every_partition(
        topics,
        lambda each: TxnOffsetCommitResponsePartition(
            partition_index=each.partition_index, error_code=code
        ),
        lambda topic, partitions: TxnOffsetCommitResponseTopic(
            name=topic.name, partitions=partitions
        ),
    )


# OffsetDelete


def guard_offset_delete(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be deleted."""
    request: OffsetDeleteRequest = asked.request
    if not asked.rights.may(AclOperation.DELETE, _GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=_GROUP_DENIED)
    allowed, refused = yield from split(
        asked.rights, AclOperation.READ, request.topics, name_of_topic
    )
    if not refused:
        return None

    answers = yield from error_for_every_partition(
        refused,
        lambda each: OffsetDeleteResponsePartition(
            partition_index=each.partition_index, error_code=_TOPIC_DENIED
        ),
        lambda topic, partitions: OffsetDeleteResponseTopic(name=topic.name, partitions=partitions),
    )

    def complete(response: OffsetDeleteResponse) -> PlainSteps[Response]:
        if response.error_code:
            return response
        return (yield from joined("topics", answers, first=True)(response))

    return Narrowed(request.replace(topics=tuple(allowed)), complete)


# OffsetFetch


def guard_offset_fetch(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass groups and topics that may be described."""
    if asked.version < _BATCHED:
        return (yield from _guard_one(asked))
    request: OffsetFetchRequest = asked.request
    name_of: Callable[[Any], str | None] = name_of_topic
    if asked.version >= _FETCH_TOPIC_IDS:
        name_of = topic_of_id(asked.image)
    left: list[OffsetFetchRequestGroup] = []
    #: What is to be said of each group, in their order: an error, or what is added to its answer.
    said: list[OffsetFetchResponseGroup | tuple[OffsetFetchResponseTopics, ...]] = []
    is_whole = True
    for group in request.groups:
        yield
        if not asked.rights.may(AclOperation.DESCRIBE, _GROUP, group.group_id):
            said.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=_GROUP_DENIED))
            is_whole = False
            continue
        refused: list[OffsetFetchRequestTopics] = []
        if group.topics is None:
            is_whole = False
        else:
            allowed, refused = yield from split(
                asked.rights, AclOperation.DESCRIBE, group.topics, name_of
            )
            if refused:
                is_whole = False
                group = group.replace(topics=tuple(allowed))
        left.append(group)
        said.append((yield from _refused_topics(refused)))
    if is_whole:
        return None

    def complete(response: OffsetFetchResponse) -> PlainSteps[Response]:
        answered = iter(zip(left, response.groups, strict=True))
        groups = []
        for each in said:
            if isinstance(each, OffsetFetchResponseGroup):
                groups.append(each)
            else:
                request_group, found = next(answered)
                if request_group.topics is None:
                    found = yield from _seen(asked.rights, found, name_of)
                elif not found.error_code and each:
                    found = found.replace(topics=(*found.topics, *each))
                groups.append(found)
            yield
        return response.replace(groups=tuple(groups))

    if not left:
        return (yield from complete(OffsetFetchResponse()))
    return Narrowed(request.replace(groups=tuple(left)), complete)


def _seen(
    rights: Rights, group: OffsetFetchResponseGroup, name_of: Callable[[Any], str | None]
) -> PlainSteps[OffsetFetchResponseGroup]:
    topics, _ = yield from split(rights, AclOperation.DESCRIBE, group.topics, name_of, quiet=True)
    return group.replace(topics=tuple(topics))


def _refused_topics(
    topics: Sequence[OffsetFetchRequestTopics],
) -> PlainSteps[tuple[OffsetFetchResponseTopics, ...]]:
    return error_for_every_partition(
        topics,
        lambda index: OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=_NO_OFFSET, error_code=_TOPIC_DENIED
        ),
        lambda topic, partitions: OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        ),
        field="partition_indexes",
    )


def _guard_one(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Do the same for the versions that have one group."""
    request: OffsetFetchRequest = asked.request
    rights = asked.rights
    if not rights.may(AclOperation.DESCRIBE, _GROUP, request.group_id):
        if asked.version >= _GROUP_ERROR:
            return OffsetFetchResponse(error_code=_GROUP_DENIED)
        topics = yield from _refused_one(request.topics or (), _GROUP_DENIED)
        return OffsetFetchResponse(topics=topics)
    if request.topics is None:

        def seen(response: OffsetFetchResponse) -> PlainSteps[Response]:
            left, _ = yield from split(
                rights, AclOperation.DESCRIBE, response.topics, name_of_topic, quiet=True
            )
            return response.replace(topics=tuple(left))

        return Narrowed(request, seen)
    allowed, refused = yield from split(
        rights, AclOperation.DESCRIBE, request.topics, name_of_topic
    )
    if not refused:
        return None
    answers = yield from _refused_one(refused, _TOPIC_DENIED)

    def complete(response: OffsetFetchResponse) -> PlainSteps[Response]:
        if response.error_code:
            return response
        return (yield from joined("topics", answers)(response))

    return Narrowed(request.replace(topics=tuple(allowed)), complete)


def _refused_one(
    topics: Sequence[OffsetFetchRequestTopic], code: ErrorCode
) -> PlainSteps[tuple[OffsetFetchResponseTopic, ...]]:
    return error_for_every_partition(
        topics,
        lambda index: OffsetFetchResponsePartition(
            partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
        ),
        lambda topic, partitions: OffsetFetchResponseTopic(name=topic.name, partitions=partitions),
        field="partition_indexes",
    )
