"""What tools may ask of controllers themselves: configs, and what is said about security."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import ACTIVE, STANDBY, delete, placed_topic
from tests.oracle.scenario import Client, Run, Topic
from tests.oracle.scenarios import security as of_one_node
from tests.oracle.scenarios._passwords import keep_passwords, password_of

_BROKER, _TOPIC = 4, 2
_SET, _DELETE = 0, 1


async def security(run: Run) -> None:
    """As on the listener of a broker: nobody has to authenticate, and there are no ACLs."""
    for run.here in (ACTIVE, STANDBY):
        await of_one_node.acls(run)
        await of_one_node.sasl(run)
        await of_one_node.delegation_tokens(run)


async def passwords(run: Run) -> None:
    """AlterUserScramCredentials and DescribeUserScramCredentials, at both kinds of controllers."""
    for run.here in (ACTIVE, STANDBY):
        await of_one_node.refused_passwords(run)
        client = await run.client()
        users = [{"name": run.name("somebody")}]
        await client.send("DescribeUserScramCredentials", 0, note="one", users=users)
    standby = await run.client(at=STANDBY)
    good = password_of(run.name("ann"))
    await standby.send("AlterUserScramCredentials", 0, note="good", upsertions=[good])
    await keep_passwords(run, ACTIVE, "broker 1")
    await keep_passwords(run, "broker 2", "broker 1")


async def configs(run: Run) -> None:
    """DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, at both kinds of controllers."""
    topic = await placed_topic(run, "topic", [1, 2, 3], retention_ms="1000000")
    for at in (ACTIVE, STANDBY):
        client = await run.client(at=at)
        await _describe(run, client, topic)
        await _alter(run, client, topic)
    await delete(run, topic)


async def _describe(run: Run, client: Client, topic: Topic) -> None:
    for version in versions_of("DescribeConfigs"):
        for note, kind, name, keys in (
            ("topic", _TOPIC, topic.name, ["retention.ms", "min.insync.replicas"]),
            ("unknown topic", _TOPIC, run.name("unknown"), []),
            ("bad topic", _TOPIC, "bad/name", []),
            ("all brokers", _BROKER, "", ["min.insync.replicas"]),
            ("another node", _BROKER, "3", ["min.insync.replicas"]),
            ("no node", _BROKER, "99", ["min.insync.replicas"]),
            ("odd node", _BROKER, "x", ["min.insync.replicas"]),
            ("odd kind", 9, "x", []),
        ):
            asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            await client.send(
                *("DescribeConfigs", version),
                note=note,
                resources=[asked],
                include_synonyms=True,
            )


async def _alter(run: Run, client: Client, topic: Topic) -> None:
    for note, kind, name, key, value in (
        ("topic", _TOPIC, topic.name, "retention.ms", "2000000"),
        ("unknown topic", _TOPIC, run.name("unknown"), "retention.ms", "2000000"),
        ("bad value", _TOPIC, topic.name, "retention.ms", "x"),
        ("bad key", _TOPIC, topic.name, "no.such.key", "x"),
        ("all brokers", _BROKER, "", "log.cleaner.threads", "2"),
        ("a broker", _BROKER, "3", "log.cleaner.threads", "2"),
        ("no broker", _BROKER, "99", "log.cleaner.threads", "2"),
        ("odd broker", _BROKER, "x", "log.cleaner.threads", "2"),
    ):
        resource: dict[str, Any] = {"resource_type": kind, "resource_name": name}
        for version in versions_of("AlterConfigs"):
            changed = [{**resource, "configs": [{"name": key, "value": value}]}]
            await client.send(
                *("AlterConfigs", version), note=note, resources=changed, validate_only=True
            )
        for version in versions_of("IncrementalAlterConfigs"):
            for how, operation in (("set", _SET), ("deleted", _DELETE)):
                change = {"name": key, "config_operation": operation, "value": value}
                changed = [{**resource, "configs": [change]}]
                await client.send(
                    *("IncrementalAlterConfigs", version),
                    note=f"{note}, {how}",
                    resources=changed,
                    validate_only=True,
                )
