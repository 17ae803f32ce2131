"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Versions 1-4, 0-2, 0-1 and 0-1.

- Resources: topics, this broker (by its id), all brokers (an empty name), this broker's loggers,
  groups and client metrics; names of the last two need not exist.
- Another broker's id: 42, as only that broker can describe and check its configs. No such topic: 3.
- DescribeConfigs: v1 synonyms, v3 types and documentation, each if asked for. One resource of an
  unknown type fails the whole request.
- The controller decides about alterations (``dohle.metadata.configs``): all of a resource's or
  none. They take effect before they are answered. Loggers are altered at once and only
  incrementally; a restart resets them.
- ListConfigResources: v0 client metrics only; v1 the types asked for, or all. Another type: 35.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dohle.core.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.metadata.configs import (
    ConfigOperation,
    altered_response,
    incrementally_altered_response,
)
from dohle.metadata.decision import NO_ERROR, ApiError
from dohle.metadata.image import ResourceType
from dohle.metadata.topic_names import topic_name_error
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages import alter_configs as legacy
from dohle.protocol.messages import incremental_alter_configs as incremental
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from dohle.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from dohle.server.broker_loggers import alter_loggers, describe_loggers
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext

_DESCRIBABLE = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_ID_DIGITS_MAX = 10
_LISTED_SINCE = ((ResourceType.CLIENT_METRICS,), tuple(sorted(_DESCRIBABLE)))

_AnyResource = TypeVar(
    "_AnyResource", legacy.AlterConfigsResource, incremental.AlterConfigsResource
)
_AnyResult = legacy.AlterConfigsResourceResponse | incremental.AlterConfigsResourceResponse


# Describing


def handle_describe_configs(
    server: Frontend, context: RequestContext, request: DescribeConfigsRequest
) -> PlainSteps[DescribeConfigsResponse]:
    """Describe the configs of resources."""
    for resource in request.resources:
        if resource.resource_type not in _DESCRIBABLE:
            error = _invalid(f"there are no resources of type {resource.resource_type}")
            refused = yield from mapped(partial(_not_described, error=error), request.resources)
            return DescribeConfigsResponse(results=refused)
        yield
    known: _KnownConfigs = {}
    results = yield from mapped_steps(
        lambda resource: _result(server, request, resource, known), request.resources
    )
    return DescribeConfigsResponse(results=results)


#: What was described already in an answer, by what it depends on: topics have the same configs,
#: but for the few that have been changed. (It is encoded once, too.)
_KnownConfigs = dict[Hashable, tuple[DescribeConfigsResourceResult, ...]]


def _result(
    server: Frontend,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    known: _KnownConfigs,
) -> PlainSteps[DescribeConfigsResult]:
    names = yield from _asked_keys(resource)
    try:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            configs = _logger_configs(server, resource, names)
        else:
            configs = _configs(server, request, resource, names, known)
    except KafkaError as error:
        return _not_described(resource, error)
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _configs(
    server: Frontend,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    names: frozenset[str] | None,
    known: _KnownConfigs,
) -> tuple[DescribeConfigsResourceResult, ...]:
    overrides = _overrides(server, resource)
    told_apart = resource.resource_name if overrides is None else frozenset(overrides.items())
    key = resource.resource_type, told_apart, names
    configs = known.get(key)
    if configs is None:
        configs = known[key] = tuple(
            _entry(config, request.include_synonyms, request.include_documentation)
            for config in _described(server, resource, overrides or {}, names)
        )
    return configs


def _overrides(server: Frontend, resource: DescribeConfigsResource) -> Mapping[str, str] | None:
    """Return what was set for a resource; None for brokers, which differ in more than that."""
    image, name = server.image, resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            _check_topic(server, TopicName(name))
            return image.topic_config(TopicName(name))
        case ResourceType.BROKER:
            return None
        case _ if not name:
            raise _invalid("the name of the resource must not be empty")
        case ResourceType.GROUP:
            return image.group_config(name)
        case _:
            return image.client_metrics_config(name)


def _asked_keys(resource: DescribeConfigsResource) -> PlainSteps[frozenset[str] | None]:
    """Return the keys that are asked for, in a form in which each is found at once."""
    if resource.configuration_keys is None:
        return None
    keys: set[str] = set()
    for key in resource.configuration_keys:
        keys.add(key)
        yield
    return frozenset(keys)


def _not_described(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    shown = ApiError.of(error)
    return DescribeConfigsResult(
        error_code=shown.code,
        error_message=shown.message or "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _described(
    server: Frontend,
    resource: DescribeConfigsResource,
    overrides: Mapping[str, str],
    names: Collection[str] | None,
) -> list[DescribedConfig]:
    image = server.image
    dynamic_broker, dynamic_default = image.broker_config(server.node_id), image.cluster_config()
    match resource.resource_type:
        case ResourceType.TOPIC:
            return describe_topic(overrides, server.config, dynamic_broker, dynamic_default, names)
        case ResourceType.BROKER if not resource.resource_name:
            return describe_cluster_default(dynamic_default, names)
        case ResourceType.BROKER:
            _check_broker(server, resource.resource_name)
            return describe_broker(server.config, dynamic_broker, dynamic_default, names)
        case ResourceType.GROUP:
            return describe_group(overrides, server.config, names)
        case _:
            return describe_client_metrics(overrides, names)


def _entry(
    config: DescribedConfig, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if with_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in synonyms
        ),
        config_type=config.type,
        documentation=config.documentation if with_documentation else None,
    )


def _logger_configs(
    server: Frontend, resource: DescribeConfigsResource, names: Collection[str] | None
) -> tuple[DescribeConfigsResourceResult, ...]:
    if not resource.resource_name:
        raise _invalid("Broker id must not be empty")
    _check_broker(server, resource.resource_name)
    return describe_loggers(names)


def _check_topic(server: Frontend, name: TopicName) -> None:
    reason = topic_name_error(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if server.image.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")


def _check_broker(server: Frontend, name: str) -> None:
    """Accept the name of this broker only."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _ID_DIGITS_MAX):
        raise _invalid(f"Broker id must be an integer, but it is: {name}")
    if int(name) != server.node_id:
        raise _invalid(f"Unexpected broker id, expected {server.node_id}, but received {name}")


# Altering


async def handle_alter_configs(
    server: Frontend, context: RequestContext, request: legacy.AlterConfigsRequest
) -> legacy.AlterConfigsResponse:
    """Replace the configs of resources."""

    def prepare(resource: legacy.AlterConfigsResource) -> bool:
        _check_altered_broker(server, resource)
        _check_listeners(server, resource, {each.name: each.value for each in resource.configs})
        return False

    async def submit(resources: tuple[legacy.AlterConfigsResource, ...]) -> list[_AnyResult]:
        left = request.replace(resources=resources)
        reply = await server.ask_controller(context, left, legacy.AlterConfigsResponse)
        return list(reply.responses)

    slices = Slices(server.turns)
    errors = await _alter(slices, request.resources, prepare, submit)
    return await slices.run(altered_response(request, errors))


async def handle_incremental_alter_configs(
    server: Frontend,
    context: RequestContext,
    request: incremental.IncrementalAlterConfigsRequest,
) -> incremental.IncrementalAlterConfigsResponse:
    """Change configs of resources."""

    def prepare(resource: incremental.AlterConfigsResource) -> bool:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            _check_broker(server, resource.resource_name)
            alter_loggers(resource.configs, validate_only=request.validate_only)
            return True
        _check_altered_broker(server, resource)
        if _is_own(server, resource):
            after: dict[str, str | None] = dict(server.image.broker_config(server.node_id))
            for each in resource.configs:
                if each.config_operation == ConfigOperation.SET:
                    after[each.name] = each.value
                elif each.config_operation == ConfigOperation.DELETE:
                    after[each.name] = None
            _check_listeners(server, resource, after)
        return False

    async def submit(resources: tuple[incremental.AlterConfigsResource, ...]) -> list[_AnyResult]:
        left = request.replace(resources=resources)
        reply = await server.ask_controller(
            context, left, incremental.IncrementalAlterConfigsResponse
        )
        return list(reply.responses)

    slices = Slices(server.turns)
    errors = await _alter(slices, request.resources, prepare, submit)
    return await slices.run(incrementally_altered_response(request, errors))


async def _alter(
    slices: Slices,
    resources: tuple[_AnyResource, ...],
    prepare: Callable[[_AnyResource], bool],
    submit: Callable[[tuple[_AnyResource, ...]], Awaitable[list[_AnyResult]]],
) -> tuple[ApiError, ...]:
    """Let the controller decide about resources that ``prepare`` neither refuses nor alters."""
    done: dict[tuple[int, str], ApiError] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for resource in resources:
        counts[_key(resource)] += 1
        await slices.give_way()
    left = []
    for resource in resources:
        key = _key(resource)
        try:
            # The controller has the error for a resource that is named twice.
            if counts[key] == 1 and prepare(resource):
                done[key] = NO_ERROR
            else:
                left.append(resource)
        except KafkaError as error:
            done[key] = ApiError.of(error)
        await slices.give_way()
    if left:
        for result in await submit(tuple(left)):
            done[_key(result)] = ApiError(ErrorCode(result.error_code), result.error_message)
            await slices.give_way()
    return await slices.run(mapped(lambda resource: done[_key(resource)], resources))


def _key(
    resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource | _AnyResult,
) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _check_altered_broker(
    server: Frontend, resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource
) -> None:
    # As in Kafka, a broker alters itself alone, and has a controller decide, which knows them all.
    if (
        resource.resource_type == ResourceType.BROKER
        and resource.resource_name
        and not server.is_controller
    ):
        _check_broker(server, resource.resource_name)


def _is_own(
    server: Frontend, resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource
) -> bool:
    return (
        resource.resource_type == ResourceType.BROKER
        and bool(resource.resource_name)
        and not server.is_controller
    )


def _check_listeners(
    server: Frontend,
    resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource,
    after: Mapping[str, str | None],
) -> None:
    """Refuse keys, certificates and users that this broker's listeners could not work with."""
    if not _is_own(server, resource):
        return
    given = {name: text for name, text in after.items() if text is not None}
    try:
        server.check_listeners({**server.config.texts, **given})
    except KafkaError as error:
        raise _invalid(str(error.args[0])) from None


# Listing


def handle_list_config_resources(
    server: Frontend, context: RequestContext, request: ListConfigResourcesRequest
) -> PlainSteps[ListConfigResourcesResponse]:
    """List the resources that have configs."""
    listed = _LISTED_SINCE[context.version]
    asked = set(request.resource_types) or set(listed)
    if not asked <= set(listed):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    for kind in listed:
        for name in _names(server, context, kind) if kind in asked else ():
            found.append(ConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(config_resources=tuple(found))


def _names(server: Frontend, context: RequestContext, kind: ResourceType) -> list[str]:
    image = server.image
    match kind:
        case ResourceType.TOPIC:
            return list(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            listener = context.connection.listener
            return [str(one.id) for one in image.brokers.values() if listener in one.endpoints]
        case _:
            return [resource.name for resource in image.configs if resource.type == kind]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_CONFIGS, handle_describe_configs),
    serves(ApiKey.ALTER_CONFIGS, handle_alter_configs, is_secret=True),
    serves(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle_incremental_alter_configs, is_secret=True),
    serves(ApiKey.LIST_CONFIG_RESOURCES, handle_list_config_resources),
)
