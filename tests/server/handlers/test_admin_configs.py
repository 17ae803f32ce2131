"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources on a running node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.core.config.describe import ConfigSource
from dohle.core.errors import ErrorCode
from dohle.core.steps import finish
from dohle.metadata.configs import ConfigOperation
from dohle.metadata.image import ResourceType
from dohle.protocol.messages import alter_configs as legacy
from dohle.protocol.messages import incremental_alter_configs as incremental
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from dohle.protocol.messages.list_config_resources import ListConfigResourcesRequest
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce, running_node

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def _resource(
    kind: int, name: str, names: tuple[str, ...] | None = None
) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=names)


async def _describe(
    wire: Wire, kind: int, name: str, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest(resources=(_resource(kind, name),), include_synonyms=True)
    result = (await wire.send(request, version)).results[0]
    assert (result.error_code, result.error_message) == (0, "")
    assert (result.resource_type, result.resource_name) == (kind, name)
    return {config.name: config for config in result.configs}


async def _alter(
    wire: Wire,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ),
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=validate_only
    )
    result = (await wire.send(request)).responses[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_configs_are_described_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", configs={"retention.ms": "1000"})
        configs = await _describe(wire, TOPIC, "t", version)
        retention = configs["retention.ms"]
        assert (retention.value, retention.config_source) == ("1000", ConfigSource.TOPIC_CONFIG)
        assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
            ("retention.ms", "1000", ConfigSource.TOPIC_CONFIG)
        ]
        assert not retention.read_only
        assert configs["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
        assert configs["compression.type"].value == "producer"
        assert configs["segment.bytes"].config_type == (3 if version >= 3 else 0)

    on_node(tmp_path, scenario)


def test_synonyms_and_documentation_come_only_if_asked_for(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        resources = (_resource(TOPIC, "t", ("segment.bytes",)),)
        bare = (await wire.send(DescribeConfigsRequest(resources=resources))).results[0].configs
        assert [(one.name, one.synonyms, one.documentation) for one in bare] == [
            ("segment.bytes", (), None)
        ]
        request = DescribeConfigsRequest(
            resources=resources, include_synonyms=True, include_documentation=True
        )
        full = (await wire.send(request)).results[0].configs
        assert len(full) == 1
        assert [one.name for one in full[0].synonyms] == ["log.segment.bytes"]
        assert full[0].documentation

    on_node(tmp_path, scenario)


def test_a_brokers_configs_tell_where_they_come_from(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        configs = await _describe(wire, BROKER, "1")
        assert configs["num.partitions"].value == "7"
        assert configs["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
        assert configs["num.partitions"].read_only
        assert configs["log.retention.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
        assert not configs["log.retention.bytes"].read_only
        # The one that all controllers must agree on, because ELR is on (A22).
        (minimum,) = (await _describe(wire, BROKER, "")).values()
        assert (minimum.name, minimum.value) == ("min.insync.replicas", "1")
        assert minimum.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG

    on_node(tmp_path, scenario, {"num.partitions": "7"})


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TOPIC, "never", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "me", ErrorCode.INVALID_REQUEST),
        (BROKER, "9" * 10_000, ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_each_resource_has_its_own_error(
    tmp_path: Path, kind: int, name: str, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = DescribeConfigsRequest(resources=(_resource(kind, name), _resource(BROKER, "1")))
        wrong, right = (await wire.send(request)).results
        assert ErrorCode(wrong.error_code) is expected
        assert (wrong.resource_type, wrong.resource_name, wrong.configs) == (kind, name, ())
        assert right.error_code == 0
        assert right.configs

    on_node(tmp_path, scenario)


def test_a_resource_of_an_unknown_type_spoils_the_request(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = DescribeConfigsRequest(resources=(_resource(BROKER, "1"), _resource(3, "x")))
        results = (await wire.send(request)).results
        assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST] * 2
        assert [one.resource_name for one in results] == ["1", "x"]

    on_node(tmp_path, scenario)


def test_altered_topic_configs_take_effect_at_once(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        small, large = batch(b"x"), batch(b"x" * 1_000)
        assert (await produce(wire, "t", large)).error_code == 0
        assert await _alter(wire, TOPIC, "t", ("max.message.bytes", SET, "200")) == (0, None)
        assert (await produce(wire, "t", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await produce(wire, "t", small)).error_code == 0
        assert await _alter(wire, TOPIC, "t", ("max.message.bytes", DELETE, None)) == (0, None)
        assert (await produce(wire, "t", large)).error_code == 0

    on_node(tmp_path, scenario)


def test_altered_broker_defaults_take_effect_on_topics_without_their_own(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "plain")
        await create_topic(wire, "own", configs={"max.message.bytes": "5000"})
        large = batch(b"x" * 1_000)
        assert await _alter(wire, BROKER, "", ("message.max.bytes", SET, "200")) == (0, None)
        assert (await produce(wire, "plain", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await produce(wire, "own", large)).error_code == 0
        described = await _describe(wire, TOPIC, "plain")
        config = described["max.message.bytes"]
        assert config.value == "200"
        assert config.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        assert await _alter(wire, BROKER, "1", ("message.max.bytes", SET, "3000")) == (0, None)
        assert (await produce(wire, "plain", large)).error_code == 0
        assert (await _describe(wire, BROKER, ""))["message.max.bytes"].value == "200"
        config = (await _describe(wire, BROKER, "1"))["message.max.bytes"]
        assert [(one.value, one.source) for one in config.synonyms] == [
            ("3000", ConfigSource.DYNAMIC_BROKER_CONFIG),
            ("200", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ("1048588", ConfigSource.DEFAULT_CONFIG),
        ]

    on_node(tmp_path, scenario)


def test_lists_can_be_added_to_and_taken_from(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        assert await _alter(wire, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
        described = await _describe(wire, TOPIC, "t")
        assert described["cleanup.policy"].value == "delete,compact"
        assert await _alter(wire, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
        described = await _describe(wire, TOPIC, "t")
        assert described["cleanup.policy"].value == "compact"
        refused = await produce(wire, "t", batch(b"without a key"))
        assert refused.error_code == ErrorCode.INVALID_RECORD

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("kind", "name", "change", "expected"),
    [
        (TOPIC, "never", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("num.partitions", SET, "3"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "3"), ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ("log.retention.bytes", SET, "3"), ErrorCode.INVALID_REQUEST),
        (BROKER, "me", ("log.retention.bytes", SET, "3"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("log.retention.bytes", SET, "x"), ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "g", ("x", SET, "3"), ErrorCode.INVALID_CONFIG),
        (ResourceType.GROUP, "", ("x", SET, "3"), ErrorCode.INVALID_REQUEST),
        (0, "g", ("x", SET, "3"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered_is_refused(
    tmp_path: Path,
    kind: int,
    name: str,
    change: tuple[str, int, str | None],
    expected: ErrorCode,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        before = node.controller.image
        code, message = await _alter(wire, kind, name, change)
        assert code is expected
        assert message
        assert node.controller.image is before

    on_node(tmp_path, scenario)


def test_altering_can_be_tried_without_effect(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        before = node.controller.image
        change = ("retention.ms", SET, "5")
        assert await _alter(wire, TOPIC, "t", change, validate_only=True) == (0, None)
        assert node.controller.image is before

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", range(3))
def test_the_old_way_replaces_all_configs_of_a_resource(tmp_path: Path, version: int) -> None:
    def request(kind: int, name: str, **configs: str) -> legacy.AlterConfigsRequest:
        given = tuple(
            legacy.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        )
        resource = legacy.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=given
        )
        return legacy.AlterConfigsRequest(resources=(resource,))

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", configs={"retention.ms": "1000", "segment.ms": "2000"})
        answer = await wire.send(request(TOPIC, "t", retention_ms="3000"), version)
        assert answer.responses[0].error_code == 0
        configs = await _describe(wire, TOPIC, "t")
        assert configs["retention.ms"].value == "3000"
        assert configs["segment.ms"].config_source == ConfigSource.DEFAULT_CONFIG
        for refused in (request(BROKER, "2"), request(LOGGER, "1"), request(BROKER, "x")):
            result = (await wire.send(refused, version)).responses[0]
            assert result.error_code == ErrorCode.INVALID_REQUEST

    on_node(tmp_path, scenario)


def test_resources_of_one_request_are_altered_independently(tmp_path: Path) -> None:
    def resource(kind: int, name: str, key: str, value: str) -> incremental.AlterConfigsResource:
        change = incremental.AlterableConfig(name=key, config_operation=SET, value=value)
        return incremental.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=(change,)
        )

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        request = incremental.IncrementalAlterConfigsRequest(
            resources=(
                resource(BROKER, "2", "log.retention.bytes", "5"),
                resource(TOPIC, "t", "retention.bytes", "5"),
                resource(TOPIC, "twice", "retention.bytes", "5"),
                resource(LOGGER, "1", "no.such.logger", "INFO"),
                resource(TOPIC, "twice", "retention.bytes", "6"),
            )
        )
        results = (await wire.send(request, 0)).responses
        assert [(one.resource_name, ErrorCode(one.error_code)) for one in results] == [
            ("2", ErrorCode.INVALID_REQUEST),
            ("t", ErrorCode.NONE),
            ("twice", ErrorCode.INVALID_REQUEST),
            ("1", ErrorCode.INVALID_CONFIG),
            ("twice", ErrorCode.INVALID_REQUEST),
        ]
        assert (await _describe(wire, TOPIC, "t"))["retention.bytes"].value == "5"

    on_node(tmp_path, scenario)


def test_altered_configs_are_there_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            await _alter(wire, TOPIC, "t", ("max.message.bytes", SET, "200"))
            await _alter(wire, BROKER, "", ("log.retention.bytes", SET, "7"))
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            large = batch(b"x" * 1_000)
            assert (await produce(wire, "t", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert (await _describe(wire, TOPIC, "t"))["retention.bytes"].value == "7"

    asyncio.run(run())


@pytest.fixture
def quiet_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("dohle.test_of_loggers")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_the_levels_of_loggers_are_told_and_altered(
    tmp_path: Path, quiet_logger: logging.Logger
) -> None:
    name = quiet_logger.name

    async def scenario(node: Node, wire: Wire) -> None:
        before = await _describe(wire, LOGGER, "1")
        assert {"root", name, "dohle.server"} <= before.keys()
        assert await _alter(wire, LOGGER, "1", (name, SET, "DEBUG"), validate_only=True) == (
            0,
            None,
        )
        assert quiet_logger.level == logging.NOTSET
        for word, level in (("TRACE", 5), ("WARN", logging.WARNING), ("FATAL", logging.CRITICAL)):
            assert await _alter(wire, LOGGER, "1", (name, SET, word)) == (0, None)
            assert quiet_logger.level == level
            assert (await _describe(wire, LOGGER, "1"))[name].value == word
        assert await _alter(wire, LOGGER, "1", (name, DELETE, None)) == (0, None)
        assert quiet_logger.level == logging.NOTSET
        assert (await _describe(wire, LOGGER, "1"))[name].value == before[name].value

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("dohle.server", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("kafka", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("dohle.server", SET, None), ErrorCode.INVALID_REQUEST),
        (("dohle.server", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_done_to_a_logger_is_refused(
    tmp_path: Path, change: tuple[str, int, str | None], expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        code, message = await _alter(wire, LOGGER, "1", change)
        assert code is expected
        assert message

    on_node(tmp_path, scenario)


def test_config_resources_are_listed(tmp_path: Path) -> None:
    async def listed(wire: Wire, version: int, *types: int) -> set[tuple[int, str]] | int:
        answer = await wire.send(ListConfigResourcesRequest(resource_types=types), version)
        if answer.error_code:
            return int(answer.error_code)
        return {(one.resource_type, one.resource_name) for one in answer.config_resources}

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        assert await listed(wire, 0) == set()
        assert await listed(wire, 1) == {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")}
        assert await listed(wire, 1, TOPIC) == {(TOPIC, "t")}
        assert await listed(wire, 1, BROKER, ResourceType.GROUP) == {(BROKER, "1")}
        assert await listed(wire, 1, TOPIC, 3) == ErrorCode.UNSUPPORTED_VERSION

    on_node(tmp_path, scenario)


def test_producers_are_forgotten_by_the_time_that_was_altered(tmp_path: Path) -> None:
    """Seen in the log's own state: the check comes every ten minutes only."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        answer = await produce(
            wire, "t", batch(b"v", producer_id=9, producer_epoch=0, base_sequence=0)
        )
        assert answer.error_code == 0
        (log,) = node.logs
        later_ms = max(entry.last_timestamp for entry in log.producer_state.producers.values()) + 50
        finish(log.producer_state.remove_expired_producers(later_ms))
        assert 9 in log.producer_state.producers
        altered = await _alter(
            wire, BROKER, "", ("producer.id.expiration.ms", ConfigOperation.SET, "50")
        )
        assert altered[0] is ErrorCode.NONE
        finish(log.producer_state.remove_expired_producers(later_ms))
        assert 9 not in log.producer_state.producers

    on_node(tmp_path, scenario)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "dohle.server.configs"]


def test_what_has_no_effect_is_accepted_and_told_once_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dohle.server.configs")

    async def scenario(node: Node, wire: Wire) -> None:
        caplog.clear()
        for rate in ("5", "6"):
            change = ("max.connection.creation.rate", ConfigOperation.SET, rate)
            assert (await _alter(wire, BROKER, "", change))[0] is ErrorCode.NONE
        assert _lines(caplog) == [
            "No effect in dohle: max.connection.creation.rate, because "
            "this limit is not enforced yet"
        ]

    on_node(tmp_path, scenario)
