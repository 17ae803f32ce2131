"""Topics: metadata, creation, partitions, deletion."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Client, Run

UNKNOWN_ID = bytes(15) + b"\xee"
TIMEOUT = {"timeout_ms": 30_000}


def _new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
    }
    return {**body, **more}


async def _exists(client: Client, name: str) -> None:
    await client.until_quietly(
        *("Metadata", 12, lambda r: r.topics[0].error_code == 0),
        topics=[{"name": name}],
        allow_auto_topic_creation=False,
    )


async def metadata(run: Run) -> None:
    """Metadata at every version."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    fixed = {"allow_auto_topic_creation": False}

    def mine(response: Any) -> Any:
        topics = tuple(each for each in response.topics if run.is_mine(each.name or ""))
        return response.replace(topics=topics)

    for version in versions_of("Metadata"):
        await client.send("Metadata", version, topics=[{"name": topic.name}], **fixed)
        await client.send(
            "Metadata", version, note="all", topics=None if version else [], show=mine
        )
        if version:
            await client.send("Metadata", version, note="none", topics=[], **fixed)
        if version >= 4:
            names = [{"name": run.name("unknown")}, {"name": "bad/name"}, {"name": ""}]
            await client.send("Metadata", version, note="unknown", topics=names, **fixed)
        if version >= 8:
            await client.send(
                *("Metadata", version),
                note="operations",
                topics=[{"name": topic.name}],
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
                **fixed,
            )
        if version >= 10:
            ids = [{"topic_id": topic.id, "name": None}, {"topic_id": UNKNOWN_ID, "name": None}]
            await client.send("Metadata", version, note="by id", topics=ids, **fixed)
            both = [{"topic_id": topic.id, "name": topic.name}]
            await client.send("Metadata", version, note="by both", topics=both, **fixed)
            neither: list[dict[str, Any]] = [{"name": None}]
            await client.send("Metadata", version, note="by neither", topics=neither, **fixed)


async def creation_by_metadata(run: Run) -> None:
    """A topic that is made because somebody asked for it."""
    client = await run.client()
    for version in (0, 3, 4, 13):
        names = [{"name": run.name(f"auto-{version}")}]
        await client.send("Metadata", version, note="new", topics=names)
        await client.until(
            *("Metadata", version, lambda r: r.topics[0].error_code == 0), note="made", topics=names
        )
    await client.send("Metadata", 12, note="bad", topics=[{"name": "bad name"}])


async def describing(run: Run) -> None:
    """DescribeTopicPartitions: pages and cursors."""
    client = await run.client()
    names = sorted([(await run.topic(f"t{each}", 3)).name for each in range(2)])
    topics = [{"name": each} for each in (*names, run.name("unknown"))]

    async def ask(note: str, **more: Any) -> Any:
        return await client.send(
            "DescribeTopicPartitions", 0, note=note, **{"topics": topics, **more}
        )

    await ask("all")
    await ask("four", response_partition_limit=4)
    await ask("one", response_partition_limit=1)
    await ask("none", response_partition_limit=0)
    await ask("from the middle", cursor={"topic_name": names[0], "partition_index": 2})
    await ask("from the second", cursor={"topic_name": names[1], "partition_index": 0})
    await ask("from between", cursor={"topic_name": names[0] + "x", "partition_index": 1})
    await ask("beyond", cursor={"topic_name": names[0], "partition_index": 7})
    await ask("negative", cursor={"topic_name": names[0], "partition_index": -1})
    await ask("bad name", topics=[{"name": "bad/name"}])
    await ask("no name", topics=[{"name": ""}])
    await ask("twice", topics=[topics[0], topics[0]])


async def creation(run: Run) -> None:
    """CreateTopics at every version, and all that is refused."""
    client = await run.client()
    for version in versions_of("CreateTopics"):

        async def create(note: str, *topics: dict[str, Any], v: int = version, **more: Any) -> Any:
            return await client.send(
                "CreateTopics", v, note=note, **TIMEOUT, topics=[*topics], **more
            )

        name = run.name(f"made-{version}")
        await create("only checked", _new(name, 2), validate_only=True)
        await create("made", _new(name, 2))
        await create("again", _new(name, 2))
        await create("checked again", _new(name, 2), validate_only=True)
        other = run.name(f"other-{version}")
        await create("no partitions", _new(other, 0))
        await create("negative partitions", _new(other, -2))
        await create("default partitions", _new(other, -1, -1), validate_only=True)
        await create("no replicas", _new(other, 1, 0))
        await create("negative replicas", _new(other, 1, -2))
        await create("too many replicas", _new(other, 1, 2))
        await create("twice", _new(other), _new(other, 2))
        await create("nothing")
        config = [{"name": "retention.ms", "value": "5000"}]
        await create("with a config", _new(other, configs=config), validate_only=True)
        for note, key, value in (
            ("unknown config", "no.such", "1"),
            ("bad value", "retention.ms", "x"),
            ("bad range", "segment.bytes", "1"),
            ("bad choice", "cleanup.policy", "odd"),
            ("null value", "retention.ms", None),
            ("empty list", "cleanup.policy", ""),
        ):
            await create(
                note, _new(other, configs=[{"name": key, "value": value}]), validate_only=True
            )
        for note, replicas in (
            ("assigned", [[1], [1]]),
            ("assigned to nobody", [[]]),
            ("assigned to somebody unknown", [[7]]),
            ("assigned twice", [[1, 1]]),
            ("assigned unevenly", [[1], []]),
        ):
            given = [
                {"partition_index": index, "broker_ids": each}
                for index, each in enumerate(replicas)
            ]
            await create(note, _new(other, -1, -1, assignments=given), validate_only=True)
            await create(
                f"{note}, and counted", _new(other, 1, 1, assignments=given), validate_only=True
            )
        gap = [{"partition_index": 1, "broker_ids": [1]}]
        await create(
            "assigned with a gap", _new(other, -1, -1, assignments=gap), validate_only=True
        )


async def names(run: Run) -> None:
    """Names that a topic may have."""
    client = await run.client()
    long = run.name("x")
    long += "y" * (249 - len(long))
    await run.topic("dotted.name")
    await run.group()
    for note, name in (
        ("empty", ""),
        ("dot", "."),
        ("dots", ".."),
        ("slash", "a/b"),
        ("blank", "a b"),
        ("umlaut", "ä"),
        ("just fits", long),
        ("too long", long + "y"),
        ("collides", run.name("dotted_name")),
        ("internal", "__consumer_offsets"),
        ("like metadata", "__cluster_metadata"),
    ):
        await client.send(
            "CreateTopics", 7, note=note, **TIMEOUT, topics=[_new(name)], validate_only=True
        )


async def more_partitions(run: Run) -> None:
    """CreatePartitions."""
    client = await run.client()
    for version in versions_of("CreatePartitions"):
        topic = await run.topic(f"topic-{version}", 2)

        async def grow(
            note: str,
            count: int,
            given: list[list[int]] | None = None,
            v: int = version,
            t: str = topic.name,
            **more: Any,
        ) -> None:
            assigned = None if given is None else [{"broker_ids": each} for each in given]
            topics = [{"name": t, "count": count, "assignments": assigned}]
            await client.send("CreatePartitions", v, note=note, **TIMEOUT, topics=topics, **more)

        await grow("checked", 3, validate_only=True)
        await grow("to 3", 3)
        await grow("to 3 again", 3)
        await grow("fewer", 2)
        await grow("none", 0)
        await grow("negative", -1)
        await grow("assigned", 4, [[1]], validate_only=True)
        await grow("assigned too few", 5, [[1]])
        await grow("assigned too many", 4, [[1], [1]])
        await grow("assigned to nobody", 4, [[]])
        await grow("assigned to somebody unknown", 4, [[9]])
        await grow("unknown topic", 4, t=run.name("unknown"))
        await grow("no topic", 4, t="")
        both = [{"name": topic.name, "count": 5, "assignments": None}] * 2
        await client.send("CreatePartitions", version, note="twice", **TIMEOUT, topics=both)
        await client.send("CreatePartitions", version, note="nothing", **TIMEOUT, topics=[])


async def deletion(run: Run) -> None:
    """DeleteTopics by name and by id."""
    client = await run.client()
    for version in versions_of("DeleteTopics"):
        name = run.name("unknown")
        topic = await run.topic(f"topic-{version}")
        if version < 6:
            for note, asked in (
                ("unknown", [name]),
                ("one", [topic.name]),
                ("again", [topic.name]),
                ("nothing", []),
                ("twice", [name, name]),
                ("no name", [""]),
            ):
                await client.send("DeleteTopics", version, note=note, **TIMEOUT, topic_names=asked)
            continue
        other = await run.topic("other")
        for note, some in (
            ("unknown", [{"name": name}]),
            ("unknown id", [{"name": None, "topic_id": UNKNOWN_ID}]),
            ("both", [{"name": topic.name, "topic_id": topic.id}]),
            ("neither", [{"name": None}]),
            ("by name and by id", [{"name": topic.name}, {"name": None, "topic_id": topic.id}]),
            ("both, twice", [{"name": topic.name, "topic_id": topic.id}] * 2),
            ("neither, twice", [{"name": None}] * 2),
            ("by id", [{"name": None, "topic_id": topic.id}]),
            ("by id again", [{"name": None, "topic_id": topic.id}]),
            ("by name", [{"name": other.name}, {"name": name}]),
            ("twice", [{"name": name}, {"name": name}]),
            ("nothing", []),
        ):
            await client.send("DeleteTopics", version, note=note, **TIMEOUT, topics=some)
    body: dict[str, Any] = {"topics": [{"name": other.name}], "allow_auto_topic_creation": False}
    await client.until(
        *("Metadata", 12, lambda r: r.topics[0].error_code != 0), note="deleted", **body
    )


async def internal_topics(run: Run) -> None:
    """Kafka's own topics are marked."""
    client = await run.client()
    await run.group()
    await run.transactional_id()
    names = ["__consumer_offsets", "__transaction_state"]
    for version in versions_of("Metadata"):
        topics = [{"name": each} for each in names]
        await client.send(
            "Metadata", version, topics=topics, show=_nameless, allow_auto_topic_creation=False
        )
    for name in names:
        more = [{"name": name, "count": 1, "assignments": None}]
        await client.send("CreatePartitions", 3, **TIMEOUT, topics=more)
        keys = ["cleanup.policy", "compression.type", "segment.bytes", "min.insync.replicas"]
        resource = {"resource_type": 2, "resource_name": name, "configuration_keys": keys}
        await client.send("DescribeConfigs", 4, resources=[resource], include_synonyms=True)


def _nameless(response: Any) -> Any:
    """Leave out ids, which are not this run's."""
    topics = tuple(each.replace(topic_id=bytes(16)) for each in response.topics)
    return response.replace(topics=topics)
