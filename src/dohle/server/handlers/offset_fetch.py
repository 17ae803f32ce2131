"""OffsetFetch (9), v1-10.

- Up to v7 one group, from v8 on several, each with an answer of its own; each group's coordinator
  is asked. Null topics ask for all (v2+).
- v1 has no field for an error of the group: each partition gets it. v2-7 have one field, v8+ one
  for each group.
- v7+ may require stable offsets: 88 for a partition with a pending transactional offset.
- v9+ may name a member, which must still be in the group.
- v10+ names topics by their ids. An unknown id: 100. If all topics were asked for, deleted ones
  have no id and are left out.
- A topic that does not exist is not an error: nothing was committed for it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps, finish, mapped, mapped_steps
from dohle.groups.offsets.reading import FetchedPartition, FetchedTopic, TopicAsked
from dohle.protocol.apis import ApiKey
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
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.net.handler import Handler, serves
from dohle.server.net.outcome import Answer
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.groups.coordinator import GroupCoordinator
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

_GROUP_ERROR = 2
_BATCHED = 8
_TOPIC_IDS = 10
_NO_OFFSET = -1

#: How many topics or partitions are looked up at once.
_PART = 1_000

_AnyTopic = TypeVar("_AnyTopic", OffsetFetchRequestTopic, OffsetFetchRequestTopics)
_AnyFound = TypeVar("_AnyFound", OffsetFetchResponseTopic, OffsetFetchResponseTopics)

_NO_MEMBER_EPOCH = -1


def handle_offset_fetch(
    broker: BrokerServer, context: RequestContext, request: OffsetFetchRequest
) -> Answer | Coroutine[Any, Any, OffsetFetchResponse] | PlainSteps[Answer]:
    """Return the committed offsets of groups."""
    version = context.version
    if version < _BATCHED:
        if request.topics is None:
            return _fetch_all_of_one(broker, version, request)
        if _is_long(request.topics):
            return _fetch_one_in_parts(broker, version, request)
        return _fetch_one(broker, version, request)
    if len(request.groups) == 1 and not _is_long(request.groups[0].topics):
        (group,) = request.groups
        if group.topics is None:
            return _fetch_all_of_group(
                broker, version, group, require_stable=request.require_stable
            )
        return _fetch_group(broker, version, group, require_stable=request.require_stable)
    return _fetch_groups(broker, version, request)


# Long requests are split: each part is answered by the state of its own moment.


async def _fetch_one_in_parts(
    broker: BrokerServer, version: int, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    found: list[OffsetFetchResponseTopic] = []
    slices = Slices(broker.turns)
    for topics, goes_on in _parts(request.topics or ()):
        part = await _answered(_fetch_one(broker, version, request.replace(topics=topics)))
        if part.error_code:
            return part
        _add_topics(found, part.topics, goes_on)
        await slices.give_way()
    return OffsetFetchResponse(topics=tuple(found))


async def _fetch_groups(
    broker: BrokerServer, version: int, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    stable = request.require_stable
    groups: list[OffsetFetchResponseGroup] = []
    slices = Slices(broker.turns)
    for group in request.groups:
        if group.topics is None:
            steps = _fetch_all_of_group(broker, version, group, require_stable=stable)
            groups += (await _answered(await slices.run(steps))).groups
        elif _is_long(group.topics):
            groups.append(
                await _fetch_group_in_parts(broker, version, group, slices, require_stable=stable)
            )
        else:
            answer = _fetch_group(broker, version, group, require_stable=stable)
            groups += (await _answered(answer)).groups
        await slices.give_way()
    return OffsetFetchResponse(groups=tuple(groups))


async def _fetch_group_in_parts(
    broker: BrokerServer,
    version: int,
    group: OffsetFetchRequestGroup,
    slices: Slices,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    found: list[OffsetFetchResponseTopics] = []
    for topics, goes_on in _parts(group.topics or ()):
        asked = group.replace(topics=topics)
        answer = _fetch_group(broker, version, asked, require_stable=require_stable)
        (part,) = (await _answered(answer)).groups
        if part.error_code:
            return part
        _add_topics(found, part.topics, goes_on)
        await slices.give_way()
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(found))


def _is_long(topics: Sequence[_AnyTopic] | None) -> bool:
    if topics is None:
        return False
    return len(topics) > _PART or sum(len(each.partition_indexes) for each in topics) > _PART


def _parts(topics: Sequence[_AnyTopic]) -> Iterator[tuple[tuple[_AnyTopic, ...], bool]]:
    """Split topics; a long topic goes on in the next part, then the only one in it."""
    part: list[_AnyTopic] = []
    size = 0
    for topic in topics:
        indexes = topic.partition_indexes
        if len(indexes) > _PART:
            if part:
                yield tuple(part), False
                part, size = [], 0
            for start in range(0, len(indexes), _PART):
                some = indexes[start : start + _PART]
                yield (topic.replace(partition_indexes=some),), start > 0
            continue
        part.append(topic)
        size += 1 + len(indexes)
        if size >= _PART:
            yield tuple(part), False
            part, size = [], 0
    if part:
        yield tuple(part), False


def _add_topics(found: list[_AnyFound], more: Sequence[_AnyFound], goes_on: bool) -> None:
    if goes_on:
        last = found.pop()
        (only,) = more
        more = (last.replace(partitions=last.partitions + only.partitions),)
    found += more


async def _answered(answer: Answer) -> OffsetFetchResponse:
    response = await answer if isinstance(answer, Future) else answer
    assert isinstance(response, OffsetFetchResponse)
    return response


def _command(
    group_id: str,
    member_id: str | None,
    member_epoch: int,
    topics: Sequence[TopicAsked],
    answer: Callable[[list[FetchedTopic]], OffsetFetchResponse],
    *,
    require_stable: bool,
) -> Callable[[GroupCoordinator, Ticket], Effects]:
    def fetch(machine: GroupCoordinator, ticket: Ticket) -> Effects:
        found = machine.offsets.reader.fetch(
            group_id, member_id, member_epoch, topics, require_stable=require_stable
        )
        return Effects().reply(ticket, answer(found))

    return fetch


# One group


def _fetch_one(broker: BrokerServer, version: int, request: OffsetFetchRequest) -> Answer:
    asked = request.topics or ()
    topics = [TopicAsked(topic.name, topic.partition_indexes) for topic in asked]
    command = _command(
        request.group_id,
        None,
        _NO_MEMBER_EPOCH,
        topics,
        _one_group,
        require_stable=request.require_stable,
    )
    return broker.groups.submit(
        request.group_id, command, lambda error: _one_refused(version, request, error)
    )


def _fetch_all_of_one(
    broker: BrokerServer, version: int, request: OffsetFetchRequest
) -> PlainSteps[Answer]:
    """Fetch the offsets of all topics, of which there may be any number."""
    group_id = request.group_id
    try:
        machine = broker.groups.shard(broker.groups.partition_of(group_id)).machine
        found = yield from machine.offsets.reader.fetch_all(
            group_id, None, _NO_MEMBER_EPOCH, require_stable=request.require_stable
        )
    except KafkaError as error:
        return _one_refused(version, request, error)
    response = OffsetFetchResponse(topics=(yield from mapped_steps(_one_topic, found)))
    return broker.groups.submit(
        group_id,
        lambda _, ticket: Effects().reply(ticket, response),
        lambda error: _one_refused(version, request, error),
    )


def _one_group(found: list[FetchedTopic]) -> OffsetFetchResponse:
    return OffsetFetchResponse(topics=finish(mapped_steps(_one_topic, found)))


def _one_topic(topic: FetchedTopic) -> PlainSteps[OffsetFetchResponseTopic]:
    partitions = yield from mapped(_one_partition, topic.partitions)
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _one_partition(found: FetchedPartition) -> OffsetFetchResponsePartition:
    index, offset, code = found
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=code,
    )


def _one_refused(
    version: int, request: OffsetFetchRequest, error: KafkaError
) -> OffsetFetchResponse:
    code = coordinator_error_code(error)
    if version >= _GROUP_ERROR:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=_NO_OFFSET, error_code=code
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        )
    )


# Several groups


def _fetch_group(
    broker: BrokerServer, version: int, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> Answer:
    asked: list[TopicAsked] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in group.topics or ():
        name = topic.name
        if version >= _TOPIC_IDS:
            found = broker.image.topic_by_id(topic.topic_id)
            if found is None:
                unknown.append(_unknown_id(topic))
                continue
            name = found.name
        asked.append(TopicAsked(name, topic.partition_indexes, topic.topic_id))

    def answer(found: list[FetchedTopic]) -> OffsetFetchResponse:
        return _of_group(group, (*finish(mapped_steps(_group_topic, found)), *unknown))

    command = _command(
        group.group_id,
        group.member_id,
        group.member_epoch,
        asked,
        answer,
        require_stable=require_stable,
    )
    return broker.groups.submit(group.group_id, command, lambda error: _group_refused(group, error))


def _fetch_all_of_group(
    broker: BrokerServer, version: int, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> PlainSteps[Answer]:
    """Fetch the offsets of all topics, of which there may be any number."""
    image, group_id = broker.image, group.group_id
    topics = []
    try:
        machine = broker.groups.shard(broker.groups.partition_of(group_id)).machine
        found = yield from machine.offsets.reader.fetch_all(
            group_id, group.member_id, group.member_epoch, require_stable=require_stable
        )
    except KafkaError as error:
        return _group_refused(group, error)
    for topic in found:
        if version >= _TOPIC_IDS:
            known = image.topic(topic.name)
            if known is None:
                continue
            topic = topic._replace(topic_id=known.id)
        topics.append((yield from _group_topic(topic)))
    response = _of_group(group, tuple(topics))
    return broker.groups.submit(
        group_id,
        lambda _, ticket: Effects().reply(ticket, response),
        lambda error: _group_refused(group, error),
    )


def _of_group(
    group: OffsetFetchRequestGroup, topics: tuple[OffsetFetchResponseTopics, ...]
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics),)
    )


def _group_refused(group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponse:
    code = coordinator_error_code(error)
    return OffsetFetchResponse(
        groups=(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code),)
    )


def _group_topic(topic: FetchedTopic) -> PlainSteps[OffsetFetchResponseTopics]:
    partitions = yield from mapped(_group_partition, topic.partitions)
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def _group_partition(found: FetchedPartition) -> OffsetFetchResponsePartitions:
    index, offset, code = found
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=code,
    )


def _unknown_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=_NO_OFFSET,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in topic.partition_indexes
        ),
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (serves(ApiKey.OFFSET_FETCH, handle_offset_fetch),)
