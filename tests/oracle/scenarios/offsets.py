"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and whom they are refused."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run, Topic
from tests.oracle.scenarios._classic_members import join_body, joined, stable


def committed(topic: Topic, *offsets: int, **more: Any) -> dict[str, Any]:
    """Return a topic of an OffsetCommit: an offset for each partition."""
    partitions = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": "", **more}
        for number, offset in enumerate(offsets)
    ]
    return {**topic.both, "partitions": partitions}


def fetch_body(version: int, group: str, *topics: Topic, **more: Any) -> dict[str, Any]:
    """Return an OffsetFetch of partitions 0 and 1 of some topics, or of all there is."""
    listed = [{**each.both, "partition_indexes": [0, 1]} for each in topics] or None
    if version >= 8:
        return {"groups": [{"group_id": group, "topics": listed, **more}]}
    old = [{"name": each.name, "partition_indexes": [0, 1]} for each in topics] or None
    return {"group_id": group, "topics": old}


async def every_version(run: Run) -> None:
    """A group that only commits."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    for version in versions_of("OffsetCommit"):
        group = await run.group(f"commit-{version}")
        topics = [committed(topic, 10 + version, committed_leader_epoch=0)]
        await client.send("OffsetCommit", version, group_id=group, topics=topics)
        await client.send("OffsetFetch", 9, **fetch_body(9, group, topic))
        await client.send("DescribeGroups", 6, groups=[group])
    for version in versions_of("OffsetFetch"):
        unknown = run.name(f"unknown-{version % 2}")
        await client.send("OffsetFetch", version, **fetch_body(version, group, topic))
        await client.send(
            "OffsetFetch", version, note="unknown group", **fetch_body(version, unknown, topic)
        )
        if version >= 2:
            await client.send("OffsetFetch", version, note="all", **fetch_body(version, group))
            await client.send(
                "OffsetFetch", version, note="all of nothing", **fetch_body(version, unknown)
            )


async def commits_without_a_group(run: Run) -> None:
    """What decides whether a commit by nobody is accepted."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    body: dict[str, Any] = {"topics": [committed(topic, 1)]}
    for version in versions_of("OffsetCommit"):
        group = await run.group(f"g{version}")

        async def commit(note: str, v: int = version, g: str = group, **more: Any) -> None:
            await client.send("OffsetCommit", v, note=note, **{"group_id": g, **body, **more})

        generation: dict[str, Any] = {"generation_id_or_member_epoch": 3}
        await commit("a generation of no group", **generation)
        await commit("a member of no group", **generation, member_id="nobody")
        await commit("a member without a generation", member_id="nobody")
        await commit("an instance of no group", group_instance_id="i")
        await commit("no group id", group_id="")
        await commit("accepted")
        await commit("a generation of an empty group", **generation)
        await commit("a member of an empty group", **generation, member_id="nobody")
    # A group without a name would be seen by all scenarios.
    await client.send("DeleteGroups", 2, groups_names=[""])


async def odd_partitions(run: Run) -> None:
    """Topics and partitions that are not there, and metadata that is too long."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    group = await run.group()
    unknown = Topic(run.name("unknown"), bytes(15) + b"\xee")
    for version in versions_of("OffsetCommit"):
        odd = committed(topic, 1, 2, 3)
        await client.send(
            *("OffsetCommit", version),
            note="some unknown",
            group_id=group,
            topics=[odd, committed(unknown, 1)],
        )
        await client.send(
            *("OffsetCommit", version),
            note="only unknown",
            group_id=group,
            topics=[committed(unknown, 1)],
        )
        await client.send("OffsetCommit", version, note="nothing", group_id=group, topics=[])
    for length in (4096, 4097):
        topics = [committed(topic, 7, committed_metadata="m" * length)]
        await client.send(
            "OffsetCommit", 9, note=f"metadata of {length}", group_id=group, topics=topics
        )
    topics = [committed(topic, 8, -5, committed_metadata=None, committed_leader_epoch=5)]
    await client.send("OffsetCommit", 9, note="odd offsets", group_id=group, topics=topics)
    for version in versions_of("OffsetFetch"):
        await client.send(
            *("OffsetFetch", version), note="unknown", **fetch_body(version, group, topic, unknown)
        )
    topics = [{**unknown.both, "partition_indexes": [0]}]
    for version in (8, 10):
        groups = [
            {"group_id": group, "topics": topics},
            {"group_id": "", "topics": topics},
            {"group_id": run.name("other"), "topics": None},
        ]
        await client.send("OffsetFetch", version, note="several groups", groups=groups)
    await client.send(
        "OffsetFetch", 9, note="no topics", groups=[{"group_id": group, "topics": []}]
    )
    await client.send("OffsetFetch", 9, note="no groups", groups=[])


async def members(run: Run) -> None:
    """Commits by members of a classic group in its states."""
    topic = await run.topic(partitions=2)
    group = await run.group()
    client = await run.client()

    async def commit(
        note: str, generation: int, member: str, version: int = 9, **more: Any
    ) -> None:
        await client.send(
            *("OffsetCommit", version),
            note=note,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[committed(topic, 4)],
            **more,
        )

    member = await joined(run, group, "a")
    await commit("completing", 1, member.id)
    await commit("completing, unknown member", 1, "nobody")
    await commit("completing, no member", -1, "")
    await commit("completing, another generation", 2, member.id)
    sync = {"group_id": group, "generation_id": 1, "member_id": member.id}
    await member.client.send("SyncGroup", 4, **sync)
    for version in versions_of("OffsetCommit"):
        await commit("stable", 1, member.id, version)
        await commit("another generation", 2, member.id, version)
        await commit("an older generation", 0, member.id, version)
        await commit("unknown member", 1, "nobody", version)
        await commit("no member", -1, "", version)
        await commit("no generation", -1, member.id, version)
    await commit("an instance of nobody", 1, member.id, group_instance_id="i")
    other = await run.client("b")
    asked = await other.send("JoinGroup", 9, **join_body(group))
    await commit("pending member", 1, asked.member_id)
    waiting = await other.post("JoinGroup", 9, **join_body(group, asked.member_id))
    await client.until(
        *("Heartbeat", 4, lambda r: r.error_code != 0),
        group_id=group,
        generation_id=1,
        member_id=member.id,
    )
    await commit("preparing", 1, member.id)
    await commit("preparing, joining member", 1, asked.member_id)
    await member.client.send("LeaveGroup", 5, group_id=group, members=[{"member_id": member.id}])
    await waiting.answer()
    await commit("after leaving", 1, member.id)
    for version in versions_of("OffsetFetch"):
        more = {"member_id": "nobody", "member_epoch": 77} if version >= 9 else {}
        await client.send(
            *("OffsetFetch", version),
            note="by anybody",
            **fetch_body(version, group, topic, **more),
        )


async def deleting(run: Run) -> None:
    """OffsetDelete and DeleteGroups take offsets away."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    group = await run.group()
    await client.send("OffsetCommit", 9, group_id=group, topics=[committed(topic, 1, 2)])
    topics = [{"name": topic.name, "partitions": [{"partition_index": 1}]}]
    await client.send("OffsetDelete", 0, group_id=group, topics=topics)
    await client.send("OffsetDelete", 0, note="again", group_id=group, topics=topics)
    await client.send("OffsetDelete", 0, note="nothing", group_id=group, topics=[])
    await client.send("OffsetFetch", 9, **fetch_body(9, group))
    await client.send("DeleteGroups", 2, groups_names=[group])
    await client.send("DeleteGroups", 2, note="again", groups_names=[group])
    await client.send("OffsetFetch", 9, note="deleted", **fetch_body(9, group))
    await client.send("OffsetCommit", 9, note="anew", group_id=group, topics=[committed(topic, 1)])
    await client.send("DeleteTopics", 6, topics=[{"name": topic.name}], timeout_ms=30_000)
    await client.until(
        *("OffsetFetch", 9, lambda r: not r.groups[0].topics),
        note="the topic is gone",
        **fetch_body(9, group),
    )


async def a_stable_static_member_commits(run: Run) -> None:
    """Commits by an instance id."""
    topic = await run.topic()
    group = await run.group()
    member = await stable(run, group, group_instance_id="one")
    body: dict[str, Any] = {"group_id": group, "topics": [committed(topic, 4)]}
    about: dict[str, Any] = {"generation_id_or_member_epoch": 1, "member_id": member.id}
    for instance in ("one", "two", None):
        await member.client.send(
            *("OffsetCommit", 9), note=str(instance), **body, **about, group_instance_id=instance
        )
    about["member_id"] = "nobody"
    for instance in ("one", "two", None):
        await member.client.send(
            "OffsetCommit",
            9,
            note=f"{instance} of nobody",
            **body,
            **about,
            group_instance_id=instance,
        )
