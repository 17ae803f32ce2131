"""The cluster: versions, coordinators, brokers, quorum, features, log directories."""

from __future__ import annotations

from typing import Any

from dohle.metadata.features import SUPPORTED_FEATURES
from dohle.server.registry import all_handlers
from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run
from tests.oracle.scenarios._records import batch, produce


async def api_versions(run: Run) -> None:
    """ApiVersions: what dohle serves, and features."""
    client = await run.client()

    def shared(response: Any) -> Any:
        """Leave out what dohle does not serve, and its features."""
        return response.replace(
            api_keys=tuple(each for each in response.api_keys if each.api_key in all_handlers()),
            supported_features=tuple(
                each for each in response.supported_features if each.name in SUPPORTED_FEATURES
            ),
        )

    for version in versions_of("ApiVersions"):
        software = {"client_software_name": "oracle", "client_software_version": "1.0"}
        await client.send("ApiVersions", version, show=shared, **software)
        for name, number in (("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a.b-c", "v1.0")):
            await client.send(
                *("ApiVersions", version),
                note=f"'{name}' '{number}'",
                show=lambda response: response.replace(
                    api_keys=(), supported_features=(), finalized_features=()
                ),
                client_software_name=name,
                client_software_version=number,
            )


async def coordinators(run: Run) -> None:
    """FindCoordinator at every version, for every kind of key."""
    client = await run.client()
    group, transaction = await run.group(), await run.transactional_id()
    for version in versions_of("FindCoordinator"):
        if version < 4:
            for note, kind, key in (
                ("group", 0, group),
                ("transaction", 1, transaction),
                ("no key", 0, ""),
                ("share group", 2, f"{group}:AAAAAAAAAAAAAAAAAAAAAA:0"),
                ("odd kind", 7, group),
            ):
                await client.send("FindCoordinator", version, note=note, key_type=kind, key=key)
            continue
        for note, kind, keys in (
            ("groups", 0, [group, run.name("other")]),
            ("transactions", 1, [transaction]),
            ("no key", 0, [""]),
            ("no keys", 0, []),
            ("odd kind", 7, [group]),
            ("twice", 0, [group, group]),
        ):
            await client.send(
                "FindCoordinator", version, note=note, key_type=kind, coordinator_keys=keys
            )


async def brokers(run: Run) -> None:
    """DescribeCluster."""
    client = await run.client()
    for version in versions_of("DescribeCluster"):
        await client.send("DescribeCluster", version)
        await client.send(
            *("DescribeCluster", version),
            note="operations",
            include_cluster_authorized_operations=True,
            include_fenced_brokers=True,
        )
        if version:
            for kind in (0, 2, 3):
                await client.send("DescribeCluster", version, note=f"{kind}", endpoint_type=kind)


async def quorum(run: Run) -> None:
    """DescribeQuorum."""
    client = await run.client()

    def fixed(response: Any) -> Any:
        """Leave out how far the metadata log is, and in which epoch."""

        def voter(state: Any) -> Any:
            return state.replace(log_end_offset=0)

        return response.replace(
            topics=tuple(
                topic.replace(
                    partitions=tuple(
                        part.replace(
                            high_watermark=0,
                            leader_epoch=0,
                            current_voters=tuple(map(voter, part.current_voters)),
                            observers=tuple(map(voter, part.observers)),
                        )
                        for part in topic.partitions
                    )
                )
                for topic in response.topics
            )
        )

    for version in versions_of("DescribeQuorum"):
        for note, name, indexes in (
            ("metadata", "__cluster_metadata", [0]),
            ("another partition", "__cluster_metadata", [1]),
            ("another topic", "other", [0]),
            ("no partitions", "__cluster_metadata", []),
        ):
            parts = [{"partition_index": each} for each in indexes]
            topics = [{"topic_name": name, "partitions": parts}]
            await client.send("DescribeQuorum", version, note=note, show=fixed, topics=topics)
        await client.send("DescribeQuorum", version, note="no topics", show=fixed, topics=[])


async def voters(run: Run) -> None:
    """AddRaftVoter and RemoveRaftVoter, in a quorum whose voters cannot change."""
    client = await run.client()
    at = {"name": "CONTROLLER", "host": "localhost", "port": 9}
    for note, voter_id, listeners in (
        ("a new one", 5, [at]),
        ("a negative id", -1, [at]),
        ("nowhere", 5, []),
    ):
        voter = {"cluster_id": None, "voter_id": voter_id, "voter_directory_id": b"d" * 16}
        for version in versions_of("AddRaftVoter"):
            fields = {"timeout_ms": 5000, "listeners": listeners, **voter}
            await client.send("AddRaftVoter", version, note=note, **fields)
        for version in versions_of("RemoveRaftVoter"):
            await client.send("RemoveRaftVoter", version, note=note, **voter)


async def features(run: Run) -> None:
    """UpdateFeatures that change nothing."""
    client = await run.client()
    for version in versions_of("UpdateFeatures"):
        for note, name, level, kind in (
            ("unknown", "no.such.feature", 1, 1),
            ("too high", "group.version", 99, 1),
            ("the same", "group.version", 1, 1),
            ("lower by an upgrade", "transaction.version", 1, 1),
            ("odd kind", "group.version", 1, 9),
            ("negative", "group.version", -1, 1),
            ("metadata too low", "metadata.version", 1, 3),
            ("metadata too high", "metadata.version", 999, 1),
        ):
            update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
            await client.send(
                "UpdateFeatures",
                version,
                note=note,
                timeout_ms=5000,
                feature_updates=[update],
                validate_only=version > 0,
            )
        await client.send("UpdateFeatures", version, note="nothing", feature_updates=[])


async def log_dirs(run: Run) -> None:
    """DescribeLogDirs and AlterReplicaLogDirs."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    await produce(client, 9, topic, batch(b"some", b"records"))
    for version in versions_of("DescribeLogDirs"):
        for note, name, partitions in (
            ("one", topic.name, [0]),
            ("both", topic.name, [0, 1]),
            ("unknown partition", topic.name, [7]),
            ("unknown topic", run.name("unknown"), [0]),
            ("no partitions", topic.name, []),
        ):
            topics = [{"topic": name, "partitions": partitions}]
            await client.send("DescribeLogDirs", version, note=note, topics=topics)
        await client.send("DescribeLogDirs", version, note="nothing", topics=[])
    for version in versions_of("AlterReplicaLogDirs"):
        for note, path, name in (
            ("unknown folder", "/no/such/folder", topic.name),
            ("relative folder", "folder", topic.name),
            ("unknown topic", "/no/such/folder", run.name("unknown")),
        ):
            topics = [{"name": name, "partitions": [0, 9]}]
            await client.send(
                "AlterReplicaLogDirs", version, note=note, dirs=[{"path": path, "topics": topics}]
            )
        await client.send("AlterReplicaLogDirs", version, note="nothing", dirs=[])


async def producers(run: Run) -> None:
    """DescribeProducers."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    init = {"transactional_id": None, "transaction_timeout_ms": 1000}
    pid = (await client.send("InitProducerId", 4, **init)).producer_id
    own = {"producer_id": pid, "producer_epoch": 0, "base_sequence": 0}
    await produce(client, 9, topic, batch(b"a", b"b", **own))
    for note, name, partitions in (
        ("one", topic.name, [0]),
        ("both", topic.name, [0, 1]),
        ("unknown topic", run.name("unknown"), [0]),
        ("bad name", "bad/name", [0]),
        ("no partitions", topic.name, []),
    ):
        topics = [{"name": name, "partition_indexes": partitions}]
        await client.send("DescribeProducers", 0, note=note, topics=topics)
