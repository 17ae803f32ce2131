"""Reads and changes the configs of topics, brokers and other resources.

Requests about one broker go to that broker; all others, including the defaults of all brokers, to
any. If its broker is gone, that is the resource's error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dohle.client.admin.config_values import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from dohle.client.admin.requests import AdminRequests, Ask, sort_out
from dohle.client.admin.results import Results
from dohle.client.net.connection import Connection
from dohle.core.config.definition import ConfigType
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.protocol.messages import alter_configs, incremental_alter_configs
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

_Value = TypeVar("_Value")
_DOCUMENTATION_VERSION = 3
_OF_A_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


def entry_source(number: int) -> ConfigSource:
    """Return a source by its number; UNKNOWN for an unknown one."""
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


class ConfigAdmin(AdminRequests):
    """The part of an admin client for configs."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Results[ConfigResource, tuple[ConfigEntry, ...]]:
        """Return the configs of resources: all of them, or those with the given names."""
        keys = None if names is None else tuple(names)

        def asking(
            some: Sequence[ConfigResource],
        ) -> Ask[Results[ConfigResource, tuple[ConfigEntry, ...]]]:
            async def ask(
                connection: Connection,
            ) -> Results[ConfigResource, tuple[ConfigEntry, ...]]:
                version = connection.version_of(DescribeConfigsRequest)
                request = DescribeConfigsRequest(
                    resources=tuple(
                        DescribeConfigsResource(
                            resource_type=each.type,
                            resource_name=each.name,
                            configuration_keys=keys,
                        )
                        for each in some
                    ),
                    include_synonyms=include_synonyms and version > 0,
                    include_documentation=include_documentation
                    and version >= _DOCUMENTATION_VERSION,
                )
                answer = await connection.request(request, DescribeConfigsResponse)
                return sort_out(
                    (
                        resource := _resource(each.resource_type, each.resource_name),
                        each.error_code,
                        _about(resource),
                        each.error_message,
                        tuple(map(_entry, each.configs)),
                    )
                    for each in answer.results
                )

            return ask

        return await self._for_each_broker("describe configs", tuple(resources), asking)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Replace all configs of resources: what is not given returns to its default."""

        def asking(some: Sequence[ConfigResource]) -> Ask[Results[ConfigResource, None]]:
            request = alter_configs.AlterConfigsRequest(
                resources=tuple(
                    alter_configs.AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=tuple(
                            alter_configs.AlterableConfig(name=name, value=value)
                            for name, value in configs[each].items()
                        ),
                    )
                    for each in some
                ),
                validate_only=validate_only,
            )

            async def ask(connection: Connection) -> Results[ConfigResource, None]:
                answer = await connection.request(request, alter_configs.AlterConfigsResponse)
                return _altered(answer.responses)

            return ask

        return await self._for_each_broker("alter configs", tuple(configs), asking)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Results[ConfigResource, None]:
        """Change some configs of resources and leave the rest as they are."""
        wanted = {resource: tuple(some) for resource, some in changes.items()}

        def asking(some: Sequence[ConfigResource]) -> Ask[Results[ConfigResource, None]]:
            request = incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=tuple(
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=tuple(
                            incremental_alter_configs.AlterableConfig(
                                name=change.name,
                                config_operation=change.op,
                                value=change.value,
                            )
                            for change in wanted[each]
                        ),
                    )
                    for each in some
                ),
                validate_only=validate_only,
            )

            async def ask(connection: Connection) -> Results[ConfigResource, None]:
                answer = await connection.request(
                    request, incremental_alter_configs.IncrementalAlterConfigsResponse
                )
                return _altered(answer.responses)

            return ask

        return await self._for_each_broker("alter configs", tuple(wanted), asking)

    async def _for_each_broker(
        self,
        what: str,
        resources: Sequence[ConfigResource],
        asking: Callable[[Sequence[ConfigResource]], Ask[Results[ConfigResource, _Value]]],
    ) -> Results[ConfigResource, _Value]:
        """Ask each broker about itself and the controller's broker about the rest."""
        groups: dict[BrokerId | None, list[ConfigResource]] = {}
        for resource in resources:
            groups.setdefault(_broker_of(resource), []).append(resource)

        async def ask_one(
            node_id: BrokerId | None, some: Sequence[ConfigResource]
        ) -> Results[ConfigResource, _Value]:
            try:
                if node_id is None:
                    return await self._ask_controller(what, asking(some))
                return await self._ask_broker(node_id, what, asking(some))
            except KafkaError as error:
                return Results({}, dict.fromkeys(some, error))

        done: dict[ConfigResource, _Value] = {}
        errors: dict[ConfigResource, KafkaError] = {}
        for results in await asyncio.gather(*(ask_one(*group) for group in groups.items())):
            done |= results.done
            errors |= results.errors
        return Results(done, errors)


def _broker_of(resource: ConfigResource) -> BrokerId | None:
    """Return the broker that must be asked about a resource; None if any will do."""
    if resource.type not in _OF_A_BROKER or not resource.name:
        return None
    if not resource.name.isdecimal():
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a broker's id is a number, not {resource.name!r}"
        )
    return BrokerId(int(resource.name))


def _altered(
    responses: Iterable[
        alter_configs.AlterConfigsResourceResponse
        | incremental_alter_configs.AlterConfigsResourceResponse
    ],
) -> Results[ConfigResource, None]:
    return sort_out(
        (
            resource := _resource(each.resource_type, each.resource_name),
            each.error_code,
            _about(resource),
            each.error_message,
            None,
        )
        for each in responses
    )


def _resource(number: int, name: str) -> ConfigResource:
    try:
        return ConfigResource(ResourceType(number), name)
    except ValueError:
        return ConfigResource(ResourceType.UNKNOWN, name)


def _about(resource: ConfigResource) -> str:
    kind = resource.type.name.lower().replace("_", " ")
    return f"configs of {kind} {resource.name}" if resource.name else f"configs of every {kind}"


def _entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    # Before version 1 a response only says whether the value is the default.
    source = entry_source(result.config_source)
    if result.is_default:
        source = ConfigSource.DEFAULT_CONFIG
    try:
        config_type = ConfigType(result.config_type)
    except ValueError:
        config_type = ConfigType.UNKNOWN
    return ConfigEntry(
        result.name,
        result.value,
        source,
        is_read_only=result.read_only,
        is_sensitive=result.is_sensitive,
        type=config_type,
        documentation=result.documentation,
        synonyms=tuple(
            ConfigSynonym(each.name, each.value, entry_source(each.source))
            for each in result.synonyms
        ),
    )
