"""Configs of topics, brokers and groups: described, altered, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Client, Run

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def _resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


async def _describe(client: Client, version: int, note: str, *resources: Any, **more: Any) -> Any:
    return await client.send("DescribeConfigs", version, note=note, resources=[*resources], **more)


async def _alter(
    client: Client,
    note: str,
    resource: dict[str, Any],
    *configs: Any,
    version: int = 1,
    **more: Any,
) -> Any:
    entries = [
        {"name": name, "config_operation": how, "value": value} for name, how, value in configs
    ]
    return await client.send(
        "IncrementalAlterConfigs",
        version,
        note=note,
        resources=[{**resource, "configs": entries}],
        **more,
    )


def _has(value: str) -> Callable[[Any], bool]:
    """Tell whether a DescribeConfigs shows a value."""
    return lambda response: any(each.value == value for each in response.results[0].configs)


async def of_a_topic(run: Run) -> None:
    """All configs of a topic at every version, with synonyms."""
    client = await run.client()
    topic = await run.topic(retention_ms="5000", cleanup_policy="compact")
    resource = _resource(TOPIC, topic.name, configuration_keys=None)
    for version in versions_of("DescribeConfigs"):
        await _describe(client, version, "all", resource, include_synonyms=True)
        some = {**resource, "configuration_keys": ["retention.ms", "no.such", "segment.bytes"]}
        await _describe(client, version, "some", some, include_documentation=version >= 3)
        await _describe(client, version, "none", {**resource, "configuration_keys": []})
        await _describe(
            client,
            version,
            "unknown",
            _resource(TOPIC, run.name("unknown"), configuration_keys=None),
            _resource(TOPIC, "bad/name", configuration_keys=None),
            _resource(TOPIC, "", configuration_keys=None),
        )
        await _describe(client, version, "nothing")
        await _describe(
            client,
            version,
            "odd resources",
            _resource(BROKER, "7", configuration_keys=[]),
            _resource(BROKER, "x", configuration_keys=[]),
            _resource(3, "x", configuration_keys=[]),
            _resource(LOGGER, "7", configuration_keys=[]),
        )


async def of_a_broker(run: Run) -> None:
    """Some configs of the broker, and of all brokers."""
    client = await run.client()
    keys = [
        "log.retention.ms",
        "log.retention.hours",
        "num.partitions",
        "message.max.bytes",
        "group.initial.rebalance.delay.ms",
        "offsets.topic.num.partitions",
        "min.insync.replicas",
        "log.cleaner.threads",
        "compression.type",
        "auto.create.topics.enable",
        "no.such",
    ]
    for version in versions_of("DescribeConfigs"):
        for name in ("1", ""):
            await _describe(
                *(client, version, f"broker '{name}'"),
                _resource(BROKER, name, configuration_keys=keys),
                include_synonyms=True,
            )


#: What says how the broker was started, and not what it is.
_OF_THE_START = {
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
}


async def of_a_broker_in_full(run: Run) -> None:
    """All configs of the broker, with their types, defaults and synonyms."""
    client = await run.client()

    def shown(response: Any) -> Any:
        (result,) = response.results
        configs = tuple(each for each in result.configs if each.name not in _OF_THE_START)
        return response.replace(results=(result.replace(configs=configs),))

    await client.send(
        *("DescribeConfigs", 4),
        show=shown,
        resources=[_resource(BROKER, "1", configuration_keys=None)],
        include_synonyms=True,
    )


async def values_of_topics(run: Run) -> None:
    """What a topic may be told, whether it has an effect or not."""
    client = await run.client()
    topic = await run.topic(internal_segment_bytes="1000000")
    resource = _resource(TOPIC, topic.name)
    for name, value in (
        ("delete.retention.ms", "5"),
        ("delete.retention.ms", "-1"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("min.cleanable.dirty.ratio", "1e-9"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "half"),
        ("unclean.leader.election.enable", "TRUE"),
        ("unclean.leader.election.enable", "yes"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("follower.replication.throttled.replicas", "0:1, 1:2"),
        ("follower.replication.throttled.replicas", ""),
        ("follower.replication.throttled.replicas", "0-1"),
        ("follower.replication.throttled.replicas", "*,0:1"),
        ("local.retention.ms", "1000"),
        ("local.retention.ms", "-1"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "1000"),
        ("max.compaction.lag.ms", "10"),
        ("min.compaction.lag.ms", "11"),
        ("min.compaction.lag.ms", "9"),
        ("max.compaction.lag.ms", "0"),
        ("remote.storage.enable", "true"),
        ("remote.storage.enable", "false"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("internal.segment.bytes", "2000000"),
        ("message.format.version", "3.0"),
        ("message.downconversion.enable", "true"),
    ):
        await _alter(client, f"{name}={value}", resource, (name, SET, value))
    await client.until(
        *("DescribeConfigs", 4, _has("2000000")),
        note="after all",
        resources=[{**resource, "configuration_keys": None}],
        include_synonyms=True,
    )


async def of_client_metrics(run: Run) -> None:
    """Subscriptions to client metrics."""
    client = await run.client()
    resource = _resource(CLIENT_METRICS, run.name("subscription"))
    for version in versions_of("DescribeConfigs"):
        shown = {**resource, "configuration_keys": None}
        await _describe(client, version, "before", shown, include_synonyms=True)
    for name, value in (
        ("interval.ms", "1000"),
        ("interval.ms", "99"),
        ("interval.ms", "x"),
        ("metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer."),
        ("match", "client_id=a.*"),
        ("match", "client_id"),
        ("match", "colour=red"),
        ("no.such", "1"),
    ):
        await _alter(client, f"{name}={value}", resource, (name, SET, value))
    await client.until(
        *("DescribeConfigs", 4, _has("client_id=a.*")),
        note="after",
        resources=[{**resource, "configuration_keys": None}],
        include_synonyms=True,
    )
    await _describe(client, 4, "no name", _resource(CLIENT_METRICS, "", configuration_keys=None))
    await _alter(client, "no name", _resource(CLIENT_METRICS, ""), ("interval.ms", SET, "1000"))
    both = [("interval.ms", DELETE, None), ("metrics", DELETE, None), ("match", DELETE, None)]
    await _alter(client, "back", resource, *both)


async def without_effect_on_one_node(run: Run) -> None:
    """Dynamic configs of brokers that one node need not follow, and names that nobody knows."""
    client = await run.client()
    for broker in ("1", ""):
        resource = _resource(BROKER, broker)
        for name, value in (
            ("log.cleaner.threads", "2"),
            ("log.cleaner.threads", "5"),
            ("log.cleaner.backoff.ms", "16000"),
            ("num.io.threads", "9"),
            ("num.io.threads", "100"),
            ("num.network.threads", "4"),
            ("background.threads", "x"),
            ("leader.replication.throttled.rate", "1000"),
            ("log.cleaner.min.cleanable.ratio", "0.7"),
            ("log.local.retention.ms", "-1"),
            ("unclean.leader.election.enable", "false"),
            ("ssl.keystore.location", "/none"),
            ("sasl.enabled.mechanisms", "PLAIN"),
            ("queued.max.requests", "100"),
            ("max.connection.creation.rate", "1000000"),
            ("no.such", "1"),
        ):
            where = f"broker '{broker}': {name}={value}"
            await _alter(client, where, resource, (name, SET, value), validate_only=True)
        kept = [("leader.replication.throttled.rate", "1000"), ("no.such", "red")]
        kept += [("log.cleaner.min.cleanable.ratio", "0.7")]
        await _alter(client, f"'{broker}': set", resource, *((n, SET, v) for n, v in kept))
        await client.until(
            *("DescribeConfigs", 4, _has("0.7")),
            note=f"broker '{broker}'",
            resources=[{**resource, "configuration_keys": [name for name, _ in kept]}],
            include_synonyms=True,
        )
        await _alter(client, f"'{broker}': back", resource, *((n, DELETE, None) for n, _ in kept))


async def altering(run: Run) -> None:
    """IncrementalAlterConfigs: operations, values, and what is refused."""
    client = await run.client()
    topic = await run.topic(partitions=1)
    resource = _resource(TOPIC, topic.name)
    shown = _resource(TOPIC, topic.name, configuration_keys=["retention.ms", "cleanup.policy"])
    for version in versions_of("IncrementalAlterConfigs"):

        async def alter(note: str, *configs: Any, v: int = version, **more: Any) -> None:
            await _alter(client, note, resource, *configs, version=v, **more)

        await alter("checked", ("retention.ms", SET, "1"), validate_only=True)
        await alter("set", ("retention.ms", SET, f"{version + 1}000"))
        await alter("append", ("cleanup.policy", APPEND, "compact"))
        await alter("append again", ("cleanup.policy", APPEND, "compact"))
        await client.until(
            *("DescribeConfigs", 4, lambda r: len(r.results[0].configs[0].value) != 9),
            note="altered",
            resources=[shown],
            include_synonyms=True,
        )
        await alter("subtract", ("cleanup.policy", SUBTRACT, "delete"))
        await alter("subtract what is not there", ("cleanup.policy", SUBTRACT, "odd"))
        await alter("append to a number", ("retention.ms", APPEND, "1"))
        await alter("delete", ("cleanup.policy", DELETE, None), ("retention.ms", DELETE, ""))
        await alter("delete again", ("cleanup.policy", DELETE, None))
        await alter("delete unknown", ("no.such", DELETE, None))
        await alter("set unknown", ("no.such", SET, "1"))
        await alter("bad value", ("retention.ms", SET, "x"))
        await alter("null value", ("retention.ms", SET, None))
        await alter("bad range", ("min.cleanable.dirty.ratio", SET, "2"))
        await alter("bad choice", ("cleanup.policy", SET, "odd"))
        await alter("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        await alter("odd operation", ("retention.ms", 9, "1"))
        await alter("one of two bad", ("segment.ms", SET, "5000"), ("retention.ms", SET, "x"))
        await alter("nothing")
        for note, other in (
            ("unknown topic", _resource(TOPIC, run.name("unknown"))),
            ("bad topic", _resource(TOPIC, "bad/name")),
            ("no topic", _resource(TOPIC, "")),
            ("unknown broker", _resource(BROKER, "9")),
            ("odd broker", _resource(BROKER, "x")),
            ("odd kind", _resource(3, "x")),
            ("kind 0", _resource(0, "x")),
        ):
            await _alter(client, note, other, ("retention.ms", SET, "1"), version=version)
        twice = [{**resource, "configs": []}, {**resource, "configs": []}]
        await client.send("IncrementalAlterConfigs", version, note="topic twice", resources=twice)
        await client.send("IncrementalAlterConfigs", version, note="no resources", resources=[])


async def altering_all_at_once(run: Run) -> None:
    """AlterConfigs: what is not named goes back to its default."""
    client = await run.client()
    topic = await run.topic(retention_ms="5000")

    async def alter(
        version: int, note: str, resource: dict[str, Any], *configs: Any, **more: Any
    ) -> None:
        entries = [{"name": name, "value": value} for name, value in configs]
        await client.send(
            "AlterConfigs", version, note=note, resources=[{**resource, "configs": entries}], **more
        )

    resource = _resource(TOPIC, topic.name)
    for version in versions_of("AlterConfigs"):
        await alter(version, "checked", resource, ("segment.ms", "7000"), validate_only=True)
        await alter(version, "set", resource, ("segment.ms", f"{version + 1}000"))
        await client.until(
            *("DescribeConfigs", 4, _has(f"{version + 1}000")),
            resources=[{**resource, "configuration_keys": ["segment.ms", "retention.ms"]}],
        )
        await alter(version, "unknown config", resource, ("no.such", "1"))
        await alter(version, "bad value", resource, ("segment.ms", "x"))
        await alter(version, "null value", resource, ("segment.ms", None))
        await alter(version, "unknown topic", _resource(TOPIC, run.name("x")), ("segment.ms", "1"))
        await alter(version, "odd kind", _resource(3, "x"), ("segment.ms", "1"))
        await alter(version, "unknown broker", _resource(BROKER, "9"))
        await alter(version, "nothing", resource)


async def of_groups(run: Run) -> None:
    """Configs of groups."""
    client = await run.client()
    group = run.name("group")
    resource = _resource(GROUP, group)
    timeout, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    shown = {**resource, "configuration_keys": [timeout, interval]}
    await _describe(client, 4, "before", shown, include_synonyms=True)
    await _alter(client, "set", resource, (timeout, SET, "4000"))
    await client.until(
        *("DescribeConfigs", 4, _has("4000")),
        note="after",
        resources=[{**resource, "configuration_keys": [timeout]}],
        include_synonyms=True,
    )
    await _describe(client, 4, "all", {**resource, "configuration_keys": None})
    await _alter(client, "share group", resource, ("share.isolation.level", SET, "read_committed"))
    await _alter(client, "odd level", resource, ("share.isolation.level", SET, "none"))
    await _alter(client, "odd reset", resource, ("share.auto.offset.reset", SET, "none"))
    await _alter(client, "standbys", resource, ("streams.num.standby.replicas", SET, "3"))
    await _alter(client, "too short", resource, (timeout, SET, "1"))
    await _alter(client, "unknown", resource, ("no.such", SET, "1"))
    await _alter(client, "no group", _resource(GROUP, ""), (timeout, SET, "4000"))
    await _describe(client, 4, "no group", _resource(GROUP, "", configuration_keys=None))


async def of_the_broker_itself(run: Run) -> None:
    """Dynamic configs of the broker, taken back at the end."""
    client = await run.client()
    for name in ("1", ""):
        resource = _resource(BROKER, name)
        where = f"broker '{name}'"
        key = "log.retention.bytes"
        await _alter(client, f"{where}: set", resource, (key, SET, "12000"))
        await client.until(
            *("DescribeConfigs", 4, _has("12000")),
            note=where,
            resources=[{**resource, "configuration_keys": [key]}],
            include_synonyms=True,
        )
        await _alter(client, f"{where}: bad value", resource, (key, SET, "x"))
        await _alter(client, f"{where}: read only", resource, ("node.id", SET, "2"))
        await _alter(client, f"{where}: unknown", resource, ("no.such", SET, "2"))
        await _alter(client, f"{where}: unknown, back", resource, ("no.such", DELETE, None))
        await _alter(client, f"{where}: append", resource, (key, APPEND, "2"))
        await _alter(client, f"{where}: checked", resource, (key, SET, "13000"), validate_only=True)
        await _alter(client, f"{where}: back", resource, (key, DELETE, None))


async def listing(run: Run) -> None:
    """ListConfigResources."""
    client = await run.client()
    await run.topic()

    def mine(response: Any) -> Any:
        found = tuple(
            each
            for each in response.config_resources
            if each.resource_type != TOPIC or run.is_mine(each.resource_name)
        )
        found = tuple(each for each in found if each.resource_type != GROUP)
        return response.replace(config_resources=found)

    await client.send("ListConfigResources", 0, show=mine)
    for kinds in ([], [TOPIC], [BROKER], [LOGGER], [CLIENT_METRICS], [3], [TOPIC, 99]):
        await client.send(
            "ListConfigResources", 1, note=f"{kinds}", show=mine, resource_types=kinds
        )


async def defaults_of_brokers(run: Run) -> None:
    """What is set for a broker, and for all, shows in a topic that says nothing else."""
    client = await run.client()
    topic = await run.topic()
    resource = _resource(TOPIC, topic.name, configuration_keys=["retention.bytes"])
    key = "log.retention.bytes"
    for name, value in (("", "7001"), ("1", "7002")):
        await _alter(client, f"set for '{name}'", _resource(BROKER, name), (key, SET, value))
        await client.until(
            *("DescribeConfigs", 4, _has(value)),
            note=f"set for '{name}'",
            resources=[resource],
            include_synonyms=True,
        )
        if name:
            await _alter(
                client,
                "of the topic",
                _resource(TOPIC, topic.name),
                ("retention.bytes", SET, "7003"),
            )
            await client.until(
                *("DescribeConfigs", 4, _has("7003")),
                note="set for the topic",
                resources=[resource],
                include_synonyms=True,
            )
    for name in ("", "1"):
        await _alter(client, f"back for '{name}'", _resource(BROKER, name), (key, DELETE, None))
