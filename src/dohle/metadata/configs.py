"""AlterConfigs and IncrementalAlterConfigs: changes to the defaults, kept in the log.

Each resource of a request is altered completely or not at all, and has its own result. The old API
replaces all configs of a resource; the incremental one (KIP-339) sets, deletes, and appends to or
removes from lists. Topics, groups and client metrics accept the configs of their tables; brokers,
and the cluster default, whose name is "", all but what only a restart can change. A group or a
subscription to client metrics need not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.client_metrics import (
    CLIENT_METRICS_CONFIGS,
    validate_client_metrics_overrides,
)
from dohle.core.config.definition import ConfigKey, ConfigType
from dohle.core.config.dynamic import validate_broker_overrides
from dohle.core.config.group import GROUP_CONFIGS, validate_group_overrides
from dohle.core.config.topic import TOPIC_CONFIGS
from dohle.core.config.topic_rules import validate_topic_overrides
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, mapped
from dohle.metadata.context import MIN_INSYNC_REPLICAS, ControllerContext
from dohle.metadata.decision import (
    NO_ERROR,
    RECORDS_PER_REQUEST_MAX,
    ApiError,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.image import ClusterImage, ConfigResource, ResourceType
from dohle.metadata.topic_names import topic_name_error
from dohle.protocol.messages import alter_configs as legacy
from dohle.protocol.messages import incremental_alter_configs as incremental
from dohle.protocol.messages.records.cluster_metadata import ClearElrRecord, ConfigRecord

#: A longer value would not fit the requests that read it back.
VALUE_BYTES_MAX = 32767

_TABLES: Mapping[int, Mapping[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
}

AnyResource = TypeVar("AnyResource", legacy.AlterConfigsResource, incremental.AlterConfigsResource)


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def alter_configs(
    image: ClusterImage, request: legacy.AlterConfigsRequest, context: ControllerContext
) -> PlainSteps[Decision[legacy.AlterConfigsResponse]]:
    """Replace all the configs of each resource."""

    def alter(resource: legacy.AlterConfigsResource) -> PlainSteps[list[VersionedRecord]]:
        after = {}
        for config in resource.configs:
            yield
            if config.value is None:
                raise _null_value(config.name)
            after[config.name] = config.value
        target = _target(resource)
        removed = [name for name in image.config(target) if name not in after]
        return (yield from _altered(image, context, target, after, [*after, *removed]))

    records, errors = yield from _each(request.resources, alter)
    reply = yield from altered_response(request, errors)
    return Decision(() if request.validate_only else records, reply)


def incremental_alter_configs(
    image: ClusterImage,
    request: incremental.IncrementalAlterConfigsRequest,
    context: ControllerContext,
) -> PlainSteps[Decision[incremental.IncrementalAlterConfigsResponse]]:
    """Change some configs of each resource."""

    def alter(resource: incremental.AlterConfigsResource) -> PlainSteps[list[VersionedRecord]]:
        target = _target(resource)
        after = dict(image.config(target))
        for config in resource.configs:
            yield
            value = _operated(target, config, after.get(config.name))
            if value is None:
                after.pop(config.name, None)
            else:
                after[config.name] = value
        names = [config.name for config in resource.configs]
        return (yield from _altered(image, context, target, after, names))

    records, errors = yield from _each(request.resources, alter)
    reply = yield from incrementally_altered_response(request, errors)
    return Decision(() if request.validate_only else records, reply)


def altered_response(
    request: legacy.AlterConfigsRequest, errors: Iterable[ApiError]
) -> PlainSteps[legacy.AlterConfigsResponse]:
    """Return the result for each resource of an AlterConfigs request."""

    def result(
        each: tuple[legacy.AlterConfigsResource, ApiError],
    ) -> legacy.AlterConfigsResourceResponse:
        resource, error = each
        return legacy.AlterConfigsResourceResponse(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    responses = yield from mapped(result, zip(request.resources, errors, strict=True))
    return legacy.AlterConfigsResponse(responses=responses)


def incrementally_altered_response(
    request: incremental.IncrementalAlterConfigsRequest, errors: Iterable[ApiError]
) -> PlainSteps[incremental.IncrementalAlterConfigsResponse]:
    """Return the result for each resource of an IncrementalAlterConfigs request."""

    def result(
        each: tuple[incremental.AlterConfigsResource, ApiError],
    ) -> incremental.AlterConfigsResourceResponse:
        resource, error = each
        return incremental.AlterConfigsResourceResponse(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    responses = yield from mapped(result, zip(request.resources, errors, strict=True))
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


def new_topic_config_records(
    image: ClusterImage, name: TopicName, configs: Mapping[str, str], context: ControllerContext
) -> PlainSteps[list[VersionedRecord]]:
    """Return the records of a new topic's configs; INVALID_CONFIG if one is not allowed."""
    yield from _check_lengths(configs)
    validate_topic_overrides(configs, context.config)
    resource = ConfigResource(ResourceType.TOPIC, name)
    return _records(image, resource, {}, configs, configs)


def _each(
    resources: tuple[AnyResource, ...],
    alter: Callable[[AnyResource], PlainSteps[list[VersionedRecord]]],
) -> PlainSteps[tuple[tuple[VersionedRecord, ...], list[ApiError]]]:
    counts: Counter[tuple[int, str]] = Counter()
    for resource in resources:
        counts[resource.resource_type, resource.resource_name] += 1
        yield
    records: list[VersionedRecord] = []
    errors = []
    for resource in resources:
        yield
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise _invalid_request("Each resource must appear at most once.")
            names = set()
            for config in resource.configs:
                if config.name in names:
                    raise _invalid_request("Error due to duplicate config keys")
                names.add(config.name)
                yield
            altered = yield from alter(resource)
            if len(records) + len(altered) > RECORDS_PER_REQUEST_MAX:
                raise too_many_records()
            records += altered
            errors.append(NO_ERROR)
        except KafkaError as error:
            errors.append(ApiError.of(error))
    return tuple(records), errors


def _target(
    resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource,
) -> ConfigResource:
    if resource.resource_type not in _TABLES:
        raise _invalid_request(f"Unknown resource type {resource.resource_type}")
    return ConfigResource(resource.resource_type, resource.resource_name)


def _operated(
    target: ConfigResource, config: incremental.AlterableConfig, current: str | None
) -> str | None:
    """Return a config's value after an operation; None if it is removed."""
    if config.config_operation == ConfigOperation.DELETE:
        return None
    if config.value is None:
        raise _null_value(config.name)
    if config.config_operation == ConfigOperation.SET:
        return config.value
    if config.config_operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise _invalid_request(f"Unknown operations type {config.config_operation}")
    key = _table(target).get(config.name)
    if key is None or key.type is not ConfigType.LIST:
        operation = ConfigOperation(config.config_operation).name
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation} to key {config.name} because its type is not LIST.",
        )
    text = key.default_text if current is None else current
    items = [item for item in (text or "").split(",") if item]
    for item in config.value.split(","):
        if config.config_operation == ConfigOperation.SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)


def _altered(
    image: ClusterImage,
    context: ControllerContext,
    target: ConfigResource,
    after: Mapping[str, str],
    names: Sequence[str],
) -> PlainSteps[list[VersionedRecord]]:
    if len(names) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    yield from _check_lengths(after)
    table = _table(target)
    named: set[str] = set()
    for name in names:
        named.add(name)
        yield
    # Configs of other releases, unknown here, do not prevent a change.
    checked = {}
    for name, value in after.items():
        if name in table or name in named:
            checked[name] = value
        yield
    if target.type == ResourceType.TOPIC:
        _check_topic(image, target.name)
        validate_topic_overrides(checked, context.config, image.config(target))
    elif target.type == ResourceType.GROUP:
        if not target.name:
            raise _invalid_request("A group has a name: there is no default for all groups.")
        validate_group_overrides(checked, context.config)
    elif target.type == ResourceType.CLIENT_METRICS:
        validate_client_metrics_overrides(target.name, checked)
    else:
        _check_broker(image, target.name, context)
        validate_broker_overrides(
            checked,
            context.config,
            image.broker_config(int(target.name) if target.name else context.node_id),
            image.cluster_config(),
            cluster_wide=not target.name,
        )
    return _records(image, target, image.config(target), after, names)


def _records(
    image: ClusterImage,
    resource: ConfigResource,
    before: Mapping[str, str],
    after: Mapping[str, str],
    names: Iterable[str],
) -> list[VersionedRecord]:
    records = []
    for name in names:
        value = after.get(name)
        # KAFKA-14136: setting a broker's config to its current value makes the broker reload it.
        if value == before.get(name) and resource.type != ResourceType.BROKER:
            continue
        record = ConfigRecord(
            resource_type=resource.type, resource_name=resource.name, name=name, value=value
        )
        records.append(VersionedRecord(record, 0))
        if name == MIN_INSYNC_REPLICAS and image.is_elr_enabled:
            records.append(_clear_elr(resource, value))
    return records


def _clear_elr(resource: ConfigResource, value: str | None) -> VersionedRecord:
    # Eligibility depends on the minimum: a new one makes the old ELR meaningless.
    if resource.type == ResourceType.TOPIC:
        return VersionedRecord(ClearElrRecord(topic_name=TopicName(resource.name)), 0)
    if resource.name or value is None:
        level = "Broker-level" if resource.name else "Cluster-level"
        action = "altered" if resource.name else "removed"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{level} {MIN_INSYNC_REPLICAS} cannot be {action} while ELR is enabled.",
        )
    return VersionedRecord(ClearElrRecord(), 0)


def _check_topic(image: ClusterImage, name: str) -> None:
    if not name:
        raise _invalid_request("Default topic resources are not allowed.")
    reason = topic_name_error(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if image.topic(TopicName(name)) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )


def _check_broker(image: ClusterImage, name: str, context: ControllerContext) -> None:
    if not name:
        return
    if not (name.isascii() and name.removeprefix("-").isdigit()):
        raise _invalid_request(f"Node id must be an integer, but it is: {name}")
    if image.broker(int(name)) is None and int(name) != context.node_id:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _check_lengths(configs: Mapping[str, str]) -> PlainSteps[None]:
    for name, value in configs.items():
        yield
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The value of {name} is longer than the maximum of {VALUE_BYTES_MAX} bytes.",
            )


def _table(resource: ConfigResource) -> Mapping[str, ConfigKey]:
    return _TABLES[resource.type]


def _null_value(name: str) -> KafkaError:
    return _invalid_request(f"Null value not supported for : {name}")


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
