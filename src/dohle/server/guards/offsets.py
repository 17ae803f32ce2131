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
from dohle.core.steps import PlainSteps, mapped, mapped_steps
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
from dohle.server.guards.guard import GuardedRequest, Narrowed, joined, split, topic_of_id
from dohle.server.rights import Rights

_GROUP, _TXN_ID = AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
_GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_COMMIT_TOPIC_IDS, _FETCH_TOPIC_IDS = 10, 10
_GROUP_ERROR, _BATCHED = 2, 8
_NO_OFFSET = -1


def _name(topic: Any) -> str:
    name: str = topic.name
    return name


# OffsetCommit


def guard_offset_commit(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let offsets pass of topics that may be read."""
    request: OffsetCommitRequest = asked.request

    def refuse(
        topic: OffsetCommitRequestTopic, code: ErrorCode
    ) -> PlainSteps[OffsetCommitResponseTopic]:
        return OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=(
                yield from mapped(
                    lambda each: OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    ),
                    topic.partitions,
                )
            ),
        )

    if not asked.rights.may(AclOperation.READ, _GROUP, request.group_id):
        denied = yield from mapped_steps(lambda topic: refuse(topic, _GROUP_DENIED), request.topics)
        return OffsetCommitResponse(topics=denied)
    name_of: Callable[[Any], str | None] = _name
    if asked.version >= _COMMIT_TOPIC_IDS:
        name_of = topic_of_id(asked.image)
    allowed, refused = yield from split(asked.rights, AclOperation.READ, request.topics, name_of)
    if not refused:
        return None
    answers = yield from mapped_steps(lambda topic: refuse(topic, _TOPIC_DENIED), refused)
    if not allowed:
        return OffsetCommitResponse(topics=answers)
    left = request.replace(topics=tuple(allowed))
    return Narrowed(left, joined("topics", answers, first=True))


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
    allowed, refused = yield from split(rights, AclOperation.READ, request.topics, _name)
    if not refused:
        return None
    answers = yield from _refused_txn(refused, _TOPIC_DENIED)
    if not allowed:
        return TxnOffsetCommitResponse(topics=answers)
    left = request.replace(topics=tuple(allowed))
    return Narrowed(left, joined("topics", answers, first=True))


def _refused_txn(
    topics: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> PlainSteps[tuple[TxnOffsetCommitResponseTopic, ...]]:
    def refuse(
        topic: TxnOffsetCommitRequestTopic,
    ) -> PlainSteps[TxnOffsetCommitResponseTopic]:
        return TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=(
                yield from mapped(
                    lambda each: TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    ),
                    topic.partitions,
                )
            ),
        )

    return mapped_steps(refuse, topics)


# OffsetDelete


def guard_offset_delete(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be deleted."""
    request: OffsetDeleteRequest = asked.request
    if not asked.rights.may(AclOperation.DELETE, _GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=_GROUP_DENIED)
    allowed, refused = yield from split(asked.rights, AclOperation.READ, request.topics, _name)
    if not refused:
        return None

    def refuse(topic: OffsetDeleteRequestTopic) -> PlainSteps[OffsetDeleteResponseTopic]:
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=(
                yield from mapped(
                    lambda each: OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=_TOPIC_DENIED
                    ),
                    topic.partitions,
                )
            ),
        )

    answers = yield from mapped_steps(refuse, refused)

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
    name_of: Callable[[Any], str | None] = _name
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
        said.append((yield from mapped_steps(_refused_topics, refused)))
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


def _refused_topics(topic: OffsetFetchRequestTopics) -> PlainSteps[OffsetFetchResponseTopics]:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=(
            yield from mapped(
                lambda index: OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=_NO_OFFSET, error_code=_TOPIC_DENIED
                ),
                topic.partition_indexes,
            )
        ),
    )


def _guard_one(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Do the same for the versions that have one group."""
    request: OffsetFetchRequest = asked.request
    rights = asked.rights
    if not rights.may(AclOperation.DESCRIBE, _GROUP, request.group_id):
        if asked.version >= _GROUP_ERROR:
            return OffsetFetchResponse(error_code=_GROUP_DENIED)
        topics = yield from mapped_steps(
            lambda each: _refused_one(each, _GROUP_DENIED), request.topics or ()
        )
        return OffsetFetchResponse(topics=topics)
    if request.topics is None:

        def seen(response: OffsetFetchResponse) -> PlainSteps[Response]:
            left, _ = yield from split(
                rights, AclOperation.DESCRIBE, response.topics, _name, quiet=True
            )
            return response.replace(topics=tuple(left))

        return Narrowed(request, seen)
    allowed, refused = yield from split(rights, AclOperation.DESCRIBE, request.topics, _name)
    if not refused:
        return None
    answers = yield from mapped_steps(lambda each: _refused_one(each, _TOPIC_DENIED), refused)

    def complete(response: OffsetFetchResponse) -> PlainSteps[Response]:
        if response.error_code:
            return response
        return (yield from joined("topics", answers)(response))

    return Narrowed(request.replace(topics=tuple(allowed)), complete)


def _refused_one(
    topic: OffsetFetchRequestTopic, code: ErrorCode
) -> PlainSteps[OffsetFetchResponseTopic]:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=(
            yield from mapped(
                lambda index: OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
                ),
                topic.partition_indexes,
            )
        ),
    )
