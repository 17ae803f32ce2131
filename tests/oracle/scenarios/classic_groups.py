"""Classic groups: joining, syncing, fencing, leaving, and what can be seen of them."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run
from tests.oracle.scenarios._classic_members import join_body, joined, stable, wants


async def every_version(run: Run) -> None:
    """Join, sync, heartbeat and leave."""
    client = await run.client("a")
    for version in versions_of("JoinGroup"):
        group = await run.group(f"join-{version}")
        answer = await client.send("JoinGroup", version, **join_body(group))
        member_id, generation = answer.member_id, answer.generation_id
        if answer.error_code:
            answer = await client.send("JoinGroup", version, **join_body(group, member_id))
            generation = answer.generation_id
        member: dict[str, Any] = {
            "group_id": group,
            "member_id": member_id,
            "generation_id": generation,
        }
        assignments = [{"member_id": member_id, "assignment": b"all of it"}]
        sync = min(version, 5)
        kind: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
        await client.send("SyncGroup", sync, **member, **kind, assignments=assignments)
        await client.send("SyncGroup", sync, note="again", **member, **kind)
        await client.send("Heartbeat", min(version, 4), **member)
        await client.send("DescribeGroups", min(version, 6), groups=[group])
        leave = min(version, 5)
        body: dict[str, Any] = (
            {"member_id": member_id} if leave < 3 else {"members": [{"member_id": member_id}]}
        )
        await client.send("LeaveGroup", leave, group_id=group, **body)
        await client.send("Heartbeat", min(version, 4), note="after leaving", **member)
        await client.send("DescribeGroups", min(version, 6), note="empty", groups=[group])
        await client.send("DeleteGroups", min(version, 2), groups_names=[group])
        await client.send("DescribeGroups", min(version, 6), note="deleted", groups=[group])


async def join_errors(run: Run) -> None:
    """What a JoinGroup is refused for."""
    group = await run.group()
    client = await run.client("a")

    async def join(note: str, version: int = 9, group: str = group, **more: Any) -> Any:
        return await client.send("JoinGroup", version, note=note, **join_body(group, **more))

    await join("no group id", group="")
    await join("no group id and a bad session timeout", group="", session_timeout_ms=1)
    await join("session timeout too short", session_timeout_ms=499)
    await join("session timeout too long", session_timeout_ms=1_800_001)
    await join("no protocol type", protocol_type="")
    await join("no protocols", protocols=[])
    await join("no protocols and no type", protocol_type="", protocols=[])
    for version in (0, 1, 4, 5, 9):
        await join("unknown member", version, member_id="nobody")
    await join("unknown static member", member_id="nobody", group_instance_id="i")
    await join("unknown member and no protocols", member_id="nobody", protocols=[])
    member = await stable(run, group, "b")
    await join("another protocol type", protocol_type="connect")
    await join("no common protocol", protocols=[wants(protocol="other")])
    await join("unknown member in a group", member_id="nobody")
    await join("no protocols in a group", protocols=[])
    await join("no protocol type in a group", protocol_type="")
    await join("session timeout in a group", session_timeout_ms=1)
    for version in (4, 5, 7, 9):
        await join("pending", version)
    await join("known member, another type", member_id=member.id, protocol_type="connect")
    for odd in ("not/allowed", "x" * 250):
        group = await run.group(f"odd-{len(odd)}")
        await join("an odd instance id", group=group, group_instance_id=odd)


async def sync_errors(run: Run) -> None:
    """What a SyncGroup is refused for."""
    group = await run.group()
    client = await run.client("a")

    async def sync(note: str, version: int = 5, **more: Any) -> Any:
        body: dict[str, Any] = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
        kind: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
        return await client.send("SyncGroup", version, note=note, **{**body, **kind, **more})

    await sync("unknown group")
    await sync("unknown group, old", 0)
    await sync("no group id", group_id="")
    await sync("no protocol type", protocol_type=None)
    await sync("no protocol name", protocol_name=None)
    member = await joined(run, group, "b")
    known: dict[str, Any] = {"member_id": member.id}
    await sync("unknown member")
    await sync("another generation", **known, generation_id=member.generation + 1)
    await sync("an older generation", **known, generation_id=member.generation - 1)
    await sync("another type", **known, protocol_type="connect")
    await sync("another protocol", **known, protocol_name="roundrobin")
    await sync("an instance id of nobody", **known, group_instance_id="i")
    await sync(
        "an assignment of nobody",
        **known,
        assignments=[
            {"member_id": "nobody", "assignment": b"x"},
            {"member_id": member.id, "assignment": b"mine"},
        ],
    )
    await sync("stable", **known)
    await sync("stable, version 4", 4, **known)
    await sync("stable, another generation", **known, generation_id=7)
    await sync("stable, another protocol", **known, protocol_name="roundrobin")
    await sync("stable, unknown member")
    leave = {"members": [{"member_id": member.id}]}
    await client.send("LeaveGroup", 5, group_id=group, **leave)
    await sync("empty", **known)


async def heartbeat_errors(run: Run) -> None:
    """What a Heartbeat is refused for."""
    group = await run.group()
    client = await run.client("a")

    async def beat(note: str, version: int = 4, **more: Any) -> Any:
        body: dict[str, Any] = {
            "group_id": group,
            "generation_id": 1,
            "member_id": "nobody",
            **more,
        }
        return await client.send("Heartbeat", version, note=note, **body)

    await beat("unknown group")
    await beat("no group id", group_id="")
    member = await joined(run, group, "b")
    known: dict[str, Any] = {"member_id": member.id}
    await beat("completing", **known)
    await beat("completing, unknown member")
    await beat("completing, another generation", **known, generation_id=2)
    await beat("an instance id of nobody", **known, group_instance_id="i")
    await member.client.send(
        *("SyncGroup", 3), group_id=group, generation_id=member.generation, member_id=member.id
    )
    await beat("stable", **known)
    await beat("stable, old version", 0, **known)
    await beat("stable, unknown member")
    await beat("stable, another generation", **known, generation_id=2)
    await beat("no member id", member_id="")
    other = await run.client("c")
    asked = await other.send("JoinGroup", 9, **join_body(group))
    await beat("pending member", member_id=asked.member_id)
    waiting = await other.post("JoinGroup", 9, **join_body(group, asked.member_id))
    await client.until(
        *("Heartbeat", 4, lambda r: r.error_code != 0),
        note="preparing",
        group_id=group,
        generation_id=1,
        member_id=member.id,
    )
    await beat("preparing, another generation", **known, generation_id=2)
    await member.client.send("JoinGroup", 9, note="rejoin", **join_body(group, member.id))
    await waiting.answer()


async def two_members(run: Run) -> None:
    """A rebalance by a second member, followers and leaders that join again."""
    group = await run.group()
    first = await stable(run, group, "a")
    client = await run.client("b")
    asked = await client.send("JoinGroup", 9, **join_body(group))
    protocols = [wants(protocol="sticky"), wants("second")]
    second = join_body(group, asked.member_id, protocols=protocols)
    waiting = await client.post("JoinGroup", 9, note="second member", **second)
    watcher = await run.client("watcher")
    await watcher.until(
        *("DescribeGroups", 6, lambda r: r.groups[0].group_state == "PreparingRebalance"),
        groups=[group],
    )
    await first.client.send("JoinGroup", 9, note="leader again", **join_body(group, first.id))
    answer = await waiting.answer()
    generation = answer.generation_id
    about: dict[str, Any] = {"group_id": group, "generation_id": generation}
    kind: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    await watcher.send("DescribeGroups", 6, note="completing", groups=[group])
    await client.send("JoinGroup", 9, note="follower again, completing", **second)
    follower = await client.post(
        "SyncGroup", 5, note="follower", **about, **kind, member_id=answer.member_id
    )
    assignments = [
        {"member_id": first.id, "assignment": b"one"},
        {"member_id": answer.member_id, "assignment": b"two"},
    ]
    leader = {"member_id": first.id, "assignments": assignments}
    await first.client.send("SyncGroup", 5, note="leader", **about, **kind, **leader)
    await follower.answer()
    await watcher.send("DescribeGroups", 6, note="stable", groups=[group])
    await client.send("JoinGroup", 9, note="follower again, stable", **second)
    await client.send("JoinGroup", 8, note="follower again, stable", **second)
    changed = {**second, "protocols": [wants("changed")]}
    waiting = await client.post("JoinGroup", 9, note="changed follower", **changed)
    await first.client.until(
        *("Heartbeat", 4, lambda r: r.error_code != 0), **about, member_id=first.id
    )
    members = [{"member_id": first.id}, {"member_id": "nobody"}]
    await watcher.send("LeaveGroup", 5, note="the leader", group_id=group, members=members)
    await waiting.answer()
    await watcher.send("DeleteGroups", 2, note="not empty", groups_names=[group, run.name("none")])
    await watcher.send("DescribeGroups", 6, note="one left", groups=[group])


async def leader_alone_joins_again(run: Run) -> None:
    """A leader that joins again makes a new generation."""
    group = await run.group()
    leader = await stable(run, group)
    for version in versions_of("JoinGroup"):
        await leader.client.send("JoinGroup", version, **join_body(group, leader.id))
        await leader.client.send("DescribeGroups", 6, groups=[group])


async def static_members(run: Run) -> None:
    """Instance ids: replaced, fenced, kept without a rebalance."""
    group = await run.group()
    first = await stable(run, group, "a", group_instance_id="one")
    client = await run.client("b")
    again = join_body(group, group_instance_id="one")
    answer = await client.send("JoinGroup", 9, note="replaces a stable leader", **again)
    known: dict[str, Any] = {"group_id": group, "generation_id": answer.generation_id}
    old = {**known, "member_id": first.id, "group_instance_id": "one"}
    kind: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    await client.send("Heartbeat", 4, note="fenced", **old)
    await client.send("SyncGroup", 5, note="fenced", **old, **kind)
    await client.send(
        *("JoinGroup", 9), note="fenced", **join_body(group, first.id, group_instance_id="one")
    )
    await client.send(
        "Heartbeat", 4, note="without its instance id", **{**old, "group_instance_id": None}
    )
    topic = await run.topic()
    offsets = [{"name": topic.name, "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
    commit = {**old, "generation_id_or_member_epoch": answer.generation_id, "topics": offsets}
    del commit["generation_id"]
    await client.send("OffsetCommit", 9, note="fenced", **commit)
    answer = await client.send("JoinGroup", 8, note="replaces a stable leader", **again)
    new = {**known, "member_id": answer.member_id, "group_instance_id": "one"}
    await client.send("SyncGroup", 5, note="its assignment", **new, **kind)
    await client.send("Heartbeat", 4, note="stable", **new)
    await client.send("DescribeGroups", 6, groups=[group])
    changed = {**again, "protocols": [wants("changed")]}
    answer = await client.send("JoinGroup", 9, note="replaces with another subscription", **changed)
    await client.send("DescribeGroups", 6, note="after it", groups=[group])
    members = [
        {"member_id": "", "group_instance_id": "one"},
        {"member_id": "", "group_instance_id": "two"},
        {"member_id": first.id, "group_instance_id": "one"},
        {"member_id": "", "group_instance_id": None},
    ]
    await client.send("LeaveGroup", 5, group_id=group, members=members[2:])
    await client.send("LeaveGroup", 5, group_id=group, members=members[:2], note="by instance")
    await client.send("DescribeGroups", 6, note="empty", groups=[group])


async def leave_errors(run: Run) -> None:
    """What a LeaveGroup is refused for."""
    group = await run.group()
    client = await run.client("a")
    for version in versions_of("LeaveGroup"):
        body: dict[str, Any] = {"member_id": "nobody"}
        if version >= 3:
            body = {"members": [{"member_id": "nobody"}]}
        await client.send("LeaveGroup", version, note="unknown group", group_id=group, **body)
        await client.send("LeaveGroup", version, note="no group id", group_id="", **body)
    member = await joined(run, group, "b")
    await client.send("LeaveGroup", 0, note="unknown member", group_id=group, member_id="nobody")
    await client.send("LeaveGroup", 5, note="no members", group_id=group, members=[])
    asked = await (await run.client("c")).send("JoinGroup", 9, **join_body(group))
    members = [{"member_id": asked.member_id}, {"member_id": member.id, "reason": "why not"}]
    await client.send("LeaveGroup", 5, note="a pending one too", group_id=group, members=members)
    await client.send("LeaveGroup", 5, note="twice", group_id=group, members=members)


async def listing(run: Run) -> None:
    """ListGroups with its filters."""
    client = await run.client("a")
    group = await run.group()
    member = await stable(run, group, "b")
    other = await run.group("connectors")
    await joined(run, other, "c", protocol_type="connect")

    def mine(response: Any) -> Any:
        groups = tuple(each for each in response.groups if run.is_mine(each.group_id))
        return response.replace(groups=groups)

    for version in versions_of("ListGroups"):
        await client.send("ListGroups", version, show=mine)
    for states in (["Stable"], ["stable"], ["STABLE", "CompletingRebalance"], ["Empty"], ["odd"]):
        await client.send("ListGroups", 5, note=" ".join(states), show=mine, states_filter=states)
    for types in (["classic"], ["Classic"], ["consumer"], ["odd"]):
        await client.send("ListGroups", 5, note=" ".join(types), show=mine, types_filter=types)
    members = [{"member_id": member.id}]
    await client.send("LeaveGroup", 5, group_id=group, members=members)
    await client.send("ListGroups", 5, note="one is empty", show=mine)
    groups = [group, run.name("unknown"), ""]
    for version in versions_of("DescribeGroups"):
        await client.send(
            *("DescribeGroups", version), groups=groups, include_authorized_operations=True
        )
    for version in versions_of("DeleteGroups"):
        await client.send("DeleteGroups", version, groups_names=[other, run.name("unknown"), ""])


async def subscriptions_guard_offsets(run: Run) -> None:
    """OffsetDelete of what a group reads."""
    group = await run.group()
    topic, other = await run.topic(), await run.topic("other")
    client = await run.client("a")
    asked = [
        {"name": each, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}
        for each in (topic.name, other.name, run.name("unknown"))
    ]
    await client.send("OffsetDelete", 0, note="unknown group", group_id=group, topics=asked)
    member = await stable(run, group, "b", protocols=[wants(topic.name)])
    offsets = [
        {"name": each, "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        for each in (topic.name, other.name)
    ]
    about: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": 1,
        "member_id": member.id,
    }
    await client.send("OffsetCommit", 9, **about, topics=offsets)
    await client.send("OffsetDelete", 0, note="one is read", group_id=group, topics=asked)
    fetch = {"groups": [{"group_id": group, "topics": None}]}
    await client.send("OffsetFetch", 9, **fetch)
    await client.send("LeaveGroup", 5, group_id=group, members=[{"member_id": member.id}])
    await client.send("OffsetDelete", 0, note="empty group", group_id=group, topics=asked)
    await client.send("OffsetFetch", 9, note="after all", **fetch)
    await client.send("OffsetDelete", 0, note="no group id", group_id="", topics=asked)


async def a_member_that_is_silent(run: Run) -> None:
    """A session that times out."""
    group = await run.group()
    member = await stable(run, group, session_timeout_ms=1500)
    await member.client.until(
        *("DescribeGroups", 6, lambda r: r.groups[0].group_state == "Empty"), groups=[group]
    )
    about: dict[str, Any] = {
        "group_id": group,
        "member_id": member.id,
        "generation_id": member.generation,
    }
    await member.client.send("Heartbeat", 4, **about)
    await member.client.send("JoinGroup", 9, **join_body(group, member.id))
    await member.client.send("JoinGroup", 9, note="anew", **join_body(group))
