"""Guards of what administrators do: topics, settings, and the cluster as a whole.

- CreateTopics: CREATE on the cluster or on each topic, else 29; its settings are shown to those
  who may describe them. DeleteTopics: DELETE on the cluster or on each topic, else 29; whoever may
  not describe a topic does not learn whether it is there, nor what it is called. CreatePartitions:
  ALTER, else 29.
- DescribeConfigs and alterations: DESCRIBE_CONFIGS or ALTER_CONFIGS on the topic (29), the group
  (30), or the cluster for all else (31). On a controller loggers take CLUSTER_ACTION.
- Everything else needs one right on the cluster: 31.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dohle.core.acls import CLUSTER_NAME, AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, mapped
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.image import ResourceType
from dohle.protocol.messages import alter_configs as legacy
from dohle.protocol.messages import incremental_alter_configs as incremental
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dohle.protocol.schema import Response
from dohle.server.guards.guard import Complete, Guard, GuardedRequest, Narrowed, joined, split
from dohle.server.guards.refusals import refused as refused_whole
from dohle.server.rights import Rights

_TOPIC, _GROUP, _CLUSTER = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
)
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_MESSAGE = "Topic authorization failed."
_BY_STATE = 6


def on_cluster(operation: AclOperation) -> Guard:
    """Return a guard that lets those pass who may do an operation on the cluster."""

    def guard(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
        yield
        if asked.rights.may_cluster(operation):
            return None
        return (yield from refused_whole(asked.request))

    return guard


def open_to_all(_: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let everybody pass."""
    yield
    return None


# Topics


def guard_create_topics(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be created, and show settings to those who may see them."""
    request: CreateTopicsRequest = asked.request
    rights = asked.rights
    allowed = list(request.topics)
    refused: list[CreatableTopic] = []
    if not rights.may_cluster(AclOperation.CREATE, quiet=True):
        allowed, refused = yield from split(
            rights, AclOperation.CREATE, request.topics, lambda topic: topic.name
        )
    answers = yield from mapped(
        lambda name: CreatableTopicResult(
            name=name, error_code=_DENIED, error_message="Authorization failed."
        ),
        dict.fromkeys(topic.name for topic in refused),
    )
    if not allowed:
        return CreateTopicsResponse(topics=answers)

    def told(topic: CreatableTopicResult) -> CreatableTopicResult:
        if topic.error_code or rights.may(
            AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic.name, quiet=True
        ):
            return topic
        return topic.replace(
            topic_config_error_code=_DENIED, num_partitions=-1, replication_factor=-1, configs=()
        )

    def complete(response: CreateTopicsResponse) -> PlainSteps[Response]:
        topics = yield from mapped(told, response.topics)
        return response.replace(topics=topics + answers)

    return Narrowed(request.replace(topics=tuple(allowed)), complete)


def guard_delete_topics(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be deleted."""
    request: DeleteTopicsRequest = asked.request
    rights, image = asked.rights, asked.image
    if rights.may_cluster(AclOperation.DELETE, quiet=True):
        return None
    states = request.topics
    if asked.version < _BY_STATE:
        states = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    left: list[DeleteTopicState] = []
    refused: dict[tuple[object, object], DeletableTopicResult] = {}
    for state in states:
        yield
        name: TopicName | None = state.name
        by_id = state.name is None
        if by_id:
            found = image.topic_by_id(state.topic_id)
            name = None if found is None else found.name
        if name is None or (not by_id and state.topic_id != ZERO_UUID):
            left.append(state)
            continue
        may_see = rights.may(AclOperation.DESCRIBE, _TOPIC, name)
        is_absent = not by_id and image.topic(name) is None
        if may_see and (is_absent or rights.may(AclOperation.DELETE, _TOPIC, name)):
            left.append(state)
            continue
        refused[name if by_id else state.name, state.topic_id] = DeletableTopicResult(
            name=name if may_see or not by_id else None,
            topic_id=state.topic_id,
            error_code=_DENIED,
            error_message=_MESSAGE,
        )
    if not refused:
        return None
    answers = tuple(refused.values())
    if not left:
        return DeleteTopicsResponse(responses=answers)
    if asked.version < _BY_STATE:
        names = tuple(state.name for state in left if state.name is not None)
        return Narrowed(request.replace(topic_names=names), joined("responses", answers))
    return Narrowed(request.replace(topics=tuple(left)), joined("responses", answers))


def guard_create_partitions(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be altered."""
    request: CreatePartitionsRequest = asked.request
    allowed, refused = yield from split(
        asked.rights, AclOperation.ALTER, request.topics, lambda topic: topic.name
    )
    if not refused:
        return None
    answers = yield from mapped(
        lambda name: CreatePartitionsTopicResult(name=name, error_code=_DENIED),
        dict.fromkeys(topic.name for topic in refused),
    )
    if not allowed:
        return CreatePartitionsResponse(results=answers)
    return Narrowed(request.replace(topics=tuple(allowed)), joined("results", answers))


# Settings

_TYPES = frozenset(ResourceType)
_OF_TYPE = {ResourceType.TOPIC: _TOPIC, ResourceType.GROUP: _GROUP}
_CODES = {
    _TOPIC: (_DENIED, _MESSAGE),
    _GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    _CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
}


def _split_resources(
    rights: Rights, resources: Any, operation_on: Callable[[int], AclOperation]
) -> PlainSteps[tuple[list[Any], list[Any]]]:
    allowed: list[Any] = []
    refused: list[Any] = []
    for resource in resources:
        kind = resource.resource_type
        protected = _OF_TYPE.get(kind, _CLUSTER)
        name = CLUSTER_NAME if protected is _CLUSTER else resource.resource_name
        # The handler refuses the whole request for a type that it does not know.
        may = kind not in _TYPES or rights.may(operation_on(kind), protected, name)
        (allowed if may else refused).append(resource)
        yield
    return allowed, refused


def _refusal(resource: Any) -> tuple[ErrorCode, str]:
    return _CODES[_OF_TYPE.get(resource.resource_type, _CLUSTER)]


def guard_describe_configs(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be described."""
    request: DescribeConfigsRequest = asked.request
    allowed, refused = yield from _split_resources(
        asked.rights, request.resources, lambda _: AclOperation.DESCRIBE_CONFIGS
    )
    if not refused:
        return None

    def refuse(resource: DescribeConfigsResource) -> DescribeConfigsResult:
        code, message = _refusal(resource)
        return DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    answers = yield from mapped(refuse, refused)
    if not allowed:
        return DescribeConfigsResponse(results=answers)
    return Narrowed(request.replace(resources=tuple(allowed)), joined("results", answers))


def _altering(operation_on: Callable[[int], AclOperation]) -> Guard:
    """Return a guard of both ways to alter settings."""

    def guard(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
        request = asked.request
        allowed, refused = yield from _split_resources(
            asked.rights, request.resources, operation_on
        )
        if not refused:
            return None
        of = legacy if isinstance(request, legacy.AlterConfigsRequest) else incremental

        def refuse(resource: Any) -> Any:
            code, message = _refusal(resource)
            return of.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )

        answers = yield from mapped(refuse, refused)
        complete: Complete = joined("responses", answers)
        if not allowed:
            empty = (
                legacy.AlterConfigsResponse()
                if of is legacy
                else incremental.IncrementalAlterConfigsResponse()
            )
            return (yield from complete(empty))
        return Narrowed(request.replace(resources=tuple(allowed)), complete)

    return guard


guard_alter_configs = _altering(lambda _: AclOperation.ALTER_CONFIGS)
#: On a controller, which alters loggers of its own.
guard_alter_configs_of_controller = _altering(
    lambda kind: (
        AclOperation.CLUSTER_ACTION
        if kind == ResourceType.BROKER_LOGGER
        else AclOperation.ALTER_CONFIGS
    )
)


def _altering_own(kinds: frozenset[int], of: Any, answer: Callable[..., Response]) -> Guard:
    """Return a guard that lets pass what the controller decides about.

    The sender must have the right before the broker even looks at settings of its own: those of
    its listeners name files.
    """

    def guard(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
        request = asked.request
        own = [each for each in request.resources if each.resource_type in kinds]
        if not own or asked.rights.may_cluster(AclOperation.ALTER_CONFIGS):
            return None
        code, message = _CODES[_CLUSTER]
        answers = yield from mapped(
            lambda each: of.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            ),
            own,
        )
        rest = tuple(each for each in request.resources if each.resource_type not in kinds)
        if not rest:
            return answer(responses=answers)
        return Narrowed(request.replace(resources=rest), joined("responses", answers))

    return guard


guard_alter_own = _altering_own(
    frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER}),
    incremental,
    incremental.IncrementalAlterConfigsResponse,
)
guard_alter_own_legacy = _altering_own(
    frozenset({ResourceType.BROKER}), legacy, legacy.AlterConfigsResponse
)
