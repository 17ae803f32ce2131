"""Classic groups whose members are late, leave, or want different things."""

from __future__ import annotations

from typing import Any

from tests.oracle.scenario import Client, Posted, Run
from tests.oracle.scenarios._classic_members import join_body, joined, stable, wants


async def _asked(client: Client, group: str, **more: Any) -> str:
    answer = await client.send("JoinGroup", 9, note="asks for an id", **join_body(group, **more))
    return str(answer.member_id)


async def _is(run: Run, group: str, state: str) -> None:
    watcher = await run.client("watcher")
    await watcher.until(
        *("DescribeGroups", 6, lambda r: r.groups[0].group_state == state),
        note=state,
        groups=[group],
    )


async def _waiting(run: Run, group: str, name: str, **more: Any) -> tuple[Posted, str]:
    """Let a member join a group that has another: it waits."""
    client = await run.client(name)
    member_id = await _asked(client, group, **more)
    body = join_body(group, member_id, **more)
    return await client.post("JoinGroup", 9, note=f"{name} joins", **body), member_id


async def late_members_are_removed(run: Run) -> None:
    """A dynamic member that does not join again in time."""
    group = await run.group()
    first = await stable(run, group, "a", rebalance_timeout_ms=1500)
    waiting, _ = await _waiting(run, group, "b", rebalance_timeout_ms=1500)
    await waiting.answer()
    about = {"group_id": group, "generation_id": 1, "member_id": first.id}
    await first.client.send("Heartbeat", 4, note="removed", **about)
    await _is(run, group, "CompletingRebalance")


async def late_static_members_stay(run: Run) -> None:
    """A static member that does not join again in time keeps its place."""
    group = await run.group()
    await stable(run, group, "a", rebalance_timeout_ms=1500, group_instance_id="one")
    waiting, _ = await _waiting(run, group, "b", rebalance_timeout_ms=1500)
    await waiting.answer()
    await _is(run, group, "CompletingRebalance")


async def members_that_do_not_sync(run: Run) -> None:
    """A leader that joins and is not heard of again."""
    group = await run.group()
    first = await joined(run, group, "a", rebalance_timeout_ms=1500)
    await _is(run, group, "Empty")
    about = {"group_id": group, "generation_id": 1, "member_id": first.id}
    await first.client.send("Heartbeat", 4, note="removed", **about)
    await first.client.send("SyncGroup", 4, note="removed", **about)


async def pending_members_are_forgotten(run: Run) -> None:
    """An id that is not used within the session timeout."""
    group = await run.group()
    await stable(run, group, "a")
    client = await run.client("b")
    member_id = await _asked(client, group, session_timeout_ms=1000)
    clock = await run.group("clock")
    await stable(run, clock, "c", session_timeout_ms=1500)
    await _is(run, clock, "Empty")
    await client.send("JoinGroup", 9, note="too late", **join_body(group, member_id))


async def the_leader_leaves(run: Run) -> None:
    """Another member leads the next generation."""
    group = await run.group()
    first = await stable(run, group, "a")
    waiting, second = await _waiting(run, group, "b")
    await _is(run, group, "PreparingRebalance")
    await first.client.send("JoinGroup", 9, note="a again", **join_body(group, first.id))
    answer = await waiting.answer()
    two = await run.client("b")
    sync = {"group_id": group, "generation_id": answer.generation_id}
    follower = await two.post("SyncGroup", 4, note="b", **sync, member_id=second)
    leave = {"group_id": group, "members": [{"member_id": first.id, "reason": "enough"}]}
    await first.client.send("LeaveGroup", 5, **leave)
    await follower.answer()
    beat = {"generation_id": answer.generation_id, "member_id": second}
    await two.send("Heartbeat", 4, group_id=group, **beat)
    await two.send("JoinGroup", 9, note="b leads", **join_body(group, second))


async def votes(run: Run) -> None:
    """The protocol that most members want, of those that all know."""
    group = await run.group()
    protocols = [wants(protocol=each) for each in ("x", "y", "z")]
    first = await stable(run, group, "a", protocols=[protocols[0], protocols[1]])
    waiting, second = await _waiting(run, group, "b", protocols=[protocols[1], protocols[0]])
    await _is(run, group, "PreparingRebalance")
    third, _ = await _waiting(run, group, "c", protocols=[protocols[1], protocols[0], protocols[2]])
    again = join_body(group, first.id, protocols=[protocols[0], protocols[1]])
    await first.client.send("JoinGroup", 9, note="a again", **again)
    await waiting.answer()
    await third.answer()
    client = await run.client("d")
    odd = join_body(group, protocols=[protocols[2]])
    await client.send("JoinGroup", 9, note="not common", **odd)
    alone = join_body(group, second, protocols=[protocols[2]])
    await client.send("JoinGroup", 9, note="not common any more", **alone)


async def a_waiting_static_member_is_replaced(run: Run) -> None:
    """Who waits in JoinGroup is told that somebody else has its instance id now."""
    group = await run.group()
    first = await stable(run, group, "a")
    client = await run.client("b")
    body = join_body(group, group_instance_id="one")
    waiting = await client.post("JoinGroup", 9, note="b joins", **body)
    await _is(run, group, "PreparingRebalance")
    other = await run.client("c")
    again = await other.post("JoinGroup", 9, note="c replaces b", **body)
    await waiting.answer()
    await first.client.send("JoinGroup", 9, note="a again", **join_body(group, first.id))
    await again.answer()


async def groups_without_subscriptions(run: Run) -> None:
    """Groups of other types, whose metadata nobody reads."""
    group = await run.group()
    protocols = [{"name": "range", "metadata": b"\xff\xfe anything"}]
    member = await stable(run, group, "a", protocol_type="connect", protocols=protocols)
    client = member.client
    about = {"group_id": group, "generation_id": 1, "member_id": member.id}
    kind = {"protocol_type": "connect", "protocol_name": "range"}
    assignments = [{"member_id": member.id, "assignment": b"\0\1"}]
    await client.send("SyncGroup", 5, note="its own type", **about, **kind, assignments=assignments)
    await client.send("DescribeGroups", 6, groups=[group])
    topic = await run.topic()
    parts = [{"partition_index": 0, "committed_offset": 5}]
    commit = {"generation_id_or_member_epoch": 1, "member_id": member.id, "group_id": group}
    await client.send(
        "OffsetCommit", 8, **commit, topics=[{"name": topic.name, "partitions": parts}]
    )
    asked = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    await client.send("OffsetDelete", 0, group_id=group, topics=asked)
