"""Groups by KIP-848: heartbeats, reconciliation, fencing, and classic members among them."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Client, Run, Topic
from tests.oracle.scenarios._classic_members import join_body, stable, wants
from tests.oracle.scenarios.offsets import committed, fetch_body


def _owned(topic: Topic, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": topic.id, "partitions": [*partitions]}] if partitions else []


def _body(group: str, member: str, epoch: int, *topics: str, **more: Any) -> dict[str, Any]:
    """Return a heartbeat: a full one if there are topics."""
    body: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch}
    if topics:
        body["rebalance_timeout_ms"] = 30_000
        body["subscribed_topic_names"] = [*topics]
        body["topic_partitions"] = []
    return {**body, **more}


async def _beat(client: Client, note: str, body: dict[str, Any], version: int = 1) -> Any:
    return await client.send("ConsumerGroupHeartbeat", version, note=note, **body)


async def every_version(run: Run) -> None:
    """One member: joining, staying, describing, committing, leaving."""
    client = await run.client()
    topic = await run.topic(partitions=3)
    for version in versions_of("ConsumerGroupHeartbeat"):
        group = await run.group(f"group-{version}")
        name = "member" if version else ""
        first = await _beat(client, "join", _body(group, name, 0, topic.name), version)
        member, epoch = first.member_id, first.member_epoch
        await _beat(client, "stay", _body(group, member, epoch), version)
        owned = _owned(topic, 0, 1, 2)
        await _beat(client, "owns", _body(group, member, epoch, topic_partitions=owned), version)
        full = _body(group, member, epoch, topic.name)
        await _beat(client, "full", {**full, "topic_partitions": owned}, version)
        await client.send("ConsumerGroupDescribe", version, group_ids=[group])
        about: dict[str, Any] = {
            "group_id": group,
            "member_id": member,
            "generation_id_or_member_epoch": epoch,
        }
        for commit in versions_of("OffsetCommit"):
            await client.send("OffsetCommit", commit, **about, topics=[committed(topic, 5)])
        late = {**about, "generation_id_or_member_epoch": epoch + 1}
        for commit in (8, 9, 10):
            await client.send(
                "OffsetCommit", commit, note="another epoch", **late, topics=[committed(topic, 5)]
            )
        unknown = {**about, "member_id": "nobody"}
        await client.send(
            "OffsetCommit", 9, note="unknown member", **unknown, topics=[committed(topic, 5)]
        )
        await client.send(
            "OffsetCommit", 9, note="no member", group_id=group, topics=[committed(topic, 5)]
        )
        for fetch, who, at in (
            (9, member, epoch),
            (9, member, epoch + 1),
            (10, "nobody", 1),
            (9, None, -1),
        ):
            more = {"member_id": who, "member_epoch": at}
            await client.send(
                *("OffsetFetch", fetch),
                note=f"{'member' if who == member else who} {at}",
                **fetch_body(fetch, group, topic, **more),
            )
        await client.send("DescribeGroups", 5, note="as a classic group", groups=[group])
        await client.send("DescribeGroups", 6, note="as a classic group", groups=[group])
        names = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
        await client.send("OffsetDelete", 0, note="it is read", group_id=group, topics=names)
        await client.send("DeleteGroups", 2, note="not empty", groups_names=[group])
        await _beat(client, "leave", _body(group, member, -1), version)
        await _beat(client, "after leaving", _body(group, member, epoch), version)
        await client.send("ConsumerGroupDescribe", version, note="empty", group_ids=[group])
        await client.send(
            "OffsetCommit", 9, note="after leaving", **about, topics=[committed(topic, 5)]
        )
        await client.send("DeleteGroups", 2, groups_names=[group])
        await client.send("ConsumerGroupDescribe", version, note="deleted", group_ids=[group])


async def refused(run: Run) -> None:
    """What a heartbeat is refused for."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    group = await run.group()
    full = _body(group, "m", 0, topic.name)

    def but(**more: Any) -> dict[str, Any]:
        return {**full, **more}

    for version in versions_of("ConsumerGroupHeartbeat"):
        for note, body in (
            ("no group id", but(group_id="")),
            ("blank group id", but(group_id="  ")),
            ("no member id", but(member_id="")),
            ("blank member id", but(member_id=" ")),
            ("epoch -3", but(member_epoch=-3)),
            ("no rebalance timeout", but(rebalance_timeout_ms=-1)),
            ("no partitions", but(topic_partitions=None)),
            ("owns something already", but(topic_partitions=_owned(topic, 0))),
            ("no topics", but(subscribed_topic_names=None)),
            ("odd assignor", but(server_assignor="odd")),
            ("empty instance id", but(instance_id="")),
            ("empty rack id", but(rack_id="")),
            ("leave without instance id", but(member_epoch=-2)),
            ("unknown group", _body(group, "m", 5)),
            ("leave unknown group", _body(group, "m", -1)),
            ("leave unknown group for a while", _body(group, "m", -2, instance_id="i")),
        ):
            if version == 0 and note in ("no member id", "no topics"):
                continue
            await _beat(client, note, body, version)
    await client.send("ConsumerGroupDescribe", 1, note="nothing is left", group_ids=[group])
    for regex in ("[", "(?<=a)b", "a++", ".*", ""):
        names: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": regex}
        other = await run.group(f"regex-{len(regex)}{regex[:1] == '.'}")
        body = but(group_id=other, **names)
        if regex != ".*":
            await _beat(client, f"regex {regex}", body)
    first = await _beat(client, "join", full)
    epoch = first.member_epoch
    for note, body in (
        ("unknown member", _body(group, "other", epoch)),
        ("a later epoch", _body(group, "m", epoch + 1)),
        ("an older epoch", _body(group, "m", epoch - 1)),
        (
            "an older epoch that owns",
            _body(group, "m", epoch - 1, topic_partitions=_owned(topic, 0)),
        ),
        ("owns too much", _body(group, "m", epoch, topic_partitions=_owned(topic, 0, 1, 2))),
        ("an instance id", _body(group, "m", epoch, instance_id="i")),
        ("leave for a while", _body(group, "m", -2)),
        ("join again", full),
        ("leave unknown member", _body(group, "other", -1)),
        ("assignor range", _body(group, "m", epoch, server_assignor="range")),
    ):
        await _beat(client, note, body)
    await client.send("ConsumerGroupDescribe", 1, group_ids=[group, run.name("none"), ""])


async def two_members(run: Run) -> None:
    """Partitions are given up before another gets them."""
    one, two = await run.client("one"), await run.client("two")
    topic = await run.topic(partitions=4)
    group = await run.group()
    first = await _beat(one, "one joins", _body(group, "1", 0, topic.name))
    all_four = _owned(topic, 0, 1, 2, 3)
    await _beat(
        one, "one owns all", _body(group, "1", first.member_epoch, topic_partitions=all_four)
    )
    second = await _beat(two, "two joins", _body(group, "2", 0, topic.name))
    answer = await _beat(one, "one is to revoke", _body(group, "1", first.member_epoch))
    await one.send("ConsumerGroupDescribe", 1, note="revoking", group_ids=[group])
    await _beat(two, "two waits", _body(group, "2", second.member_epoch, topic_partitions=[]))
    keeps = _owned(topic, *answer.assignment.topic_partitions[0].partitions)
    answer = await _beat(
        one, "one has revoked", _body(group, "1", first.member_epoch, topic_partitions=keeps)
    )
    answer = await _beat(
        two, "two gets", _body(group, "2", second.member_epoch, topic_partitions=[])
    )
    got = [
        {"topic_id": each.topic_id, "partitions": [*each.partitions]}
        for each in answer.assignment.topic_partitions
    ]
    await _beat(two, "two owns", _body(group, "2", answer.member_epoch, topic_partitions=got))
    await one.send("ConsumerGroupDescribe", 1, note="stable", group_ids=[group])
    other = await run.topic("other")
    names = [topic.name, other.name]
    answer = await _beat(
        two, "two wants more", _body(group, "2", answer.member_epoch, subscribed_topic_names=names)
    )
    await one.send("ConsumerGroupDescribe", 1, note="wants more", group_ids=[group])
    await _beat(two, "two leaves", _body(group, "2", -1))
    answer = await _beat(one, "one gets all", _body(group, "1", first.member_epoch + 1))
    await one.send("ConsumerGroupDescribe", 1, note="alone", group_ids=[group])


async def static_members(run: Run) -> None:
    """Instance ids: leaving for a while, coming back, being fenced."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    group = await run.group()
    full = _body(group, "a", 0, topic.name, instance_id="i")
    first = await _beat(client, "join", full)
    await _beat(client, "in use", {**full, "member_id": "b"})
    await _beat(client, "leave for a while", _body(group, "a", -2, instance_id="i"))
    await client.send("ConsumerGroupDescribe", 1, note="away", group_ids=[group])
    await _beat(client, "away", _body(group, "a", first.member_epoch, instance_id="i"))
    again = await _beat(client, "come back", {**full, "member_id": "b"})
    await _beat(client, "the old one", _body(group, "a", first.member_epoch, instance_id="i"))
    await _beat(client, "the new one", _body(group, "b", again.member_epoch, instance_id="i"))
    await _beat(client, "another's id", _body(group, "b", again.member_epoch, instance_id="j"))
    await _beat(client, "leave of another", _body(group, "b", -1, instance_id="j"))
    await client.send("ConsumerGroupDescribe", 1, note="back", group_ids=[group])
    await _beat(client, "leave", _body(group, "b", -1, instance_id="i"))
    await client.send("ConsumerGroupDescribe", 1, note="empty", group_ids=[group])


async def classic_and_consumer(run: Run) -> None:
    """Requests of one protocol to groups of the other."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    group = await run.group()
    first = await _beat(client, "join", _body(group, "m", 0, topic.name))
    await client.send(
        "JoinGroup",
        9,
        note="no common protocol",
        **join_body(group, protocols=[wants(protocol="x")]),
    )
    await client.send(
        "JoinGroup", 9, note="another type", **join_body(group, protocol_type="connect")
    )
    await client.send("JoinGroup", 9, note="unknown member", **join_body(group, "nobody"))
    classic = await run.client("classic")
    about: dict[str, Any] = {"group_id": group, "generation_id": first.member_epoch}
    await classic.send("Heartbeat", 4, note="of a consumer member", **about, member_id="m")
    await classic.send("SyncGroup", 4, note="of a consumer member", **about, member_id="m")
    await classic.send("Heartbeat", 4, note="unknown", **about, member_id="nobody")
    await classic.send(
        "LeaveGroup", 5, note="unknown", group_id=group, members=[{"member_id": "nobody"}]
    )
    body = join_body(group, protocols=[wants(topic.name)])
    asked = await classic.send("JoinGroup", 9, note="a classic member", **body)
    joined = await classic.send(
        "JoinGroup", 9, note="again", **{**body, "member_id": asked.member_id}
    )
    about = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
    }
    kind: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": joined.protocol_name}
    await classic.send("SyncGroup", 5, **about, **kind)
    await classic.send("Heartbeat", 4, **about)
    await client.send("ConsumerGroupDescribe", 1, note="both", group_ids=[group])
    await classic.send("LeaveGroup", 5, group_id=group, members=[{"member_id": joined.member_id}])
    await _beat(client, "leave", _body(group, "m", -1))
    await client.send("ConsumerGroupDescribe", 1, note="empty", group_ids=[group])
    await client.send("DescribeGroups", 6, note="empty", groups=[group])

    def mine(response: Any) -> Any:
        groups = tuple(each for each in response.groups if run.is_mine(each.group_id))
        return response.replace(groups=groups)

    await client.send("ListGroups", 5, show=mine)
    await client.send("ListGroups", 5, note="consumer", show=mine, types_filter=["consumer"])


async def empty_groups_change_their_kind(run: Run) -> None:
    """An empty group of one kind becomes one of the other."""
    topic = await run.topic(partitions=2)
    group = await run.group()
    member = await stable(run, group, "a", protocols=[wants(topic.name)])
    client = member.client
    await client.send("ConsumerGroupDescribe", 1, note="a classic group", group_ids=[group])
    await client.send("LeaveGroup", 5, group_id=group, members=[{"member_id": member.id}])
    await _beat(client, "joins an empty classic group", _body(group, "m", 0, topic.name))
    await client.send("ConsumerGroupDescribe", 1, group_ids=[group])
    await _beat(client, "leaves", _body(group, "m", -1))
    await stable(run, group, "b", protocols=[wants(topic.name)])
    await client.send("DescribeGroups", 6, note="classic again", groups=[group])


async def upgrading(run: Run) -> None:
    """A consumer member joins a classic group that has members."""
    topic = await run.topic(partitions=2)
    group = await run.group()
    member = await stable(run, group, "a", protocols=[wants(topic.name)])
    client = await run.client("b")
    answer = await _beat(client, "joins a classic group", _body(group, "m", 0, topic.name))
    await client.send("ConsumerGroupDescribe", 1, group_ids=[group])
    about: dict[str, Any] = {"group_id": group, "generation_id": 1, "member_id": member.id}
    await member.client.send("Heartbeat", 4, note="classic member", **about)
    body = join_body(group, member.id, protocols=[wants(topic.name)])
    joined = await member.client.send("JoinGroup", 9, note="classic member again", **body)
    about["generation_id"] = joined.generation_id
    kind: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    await member.client.send("SyncGroup", 5, **about, **kind)
    await _beat(client, "goes on", _body(group, "m", answer.member_epoch, topic_partitions=[]))
    await _beat(client, "leaves", _body(group, "m", -1))
    await client.send("DescribeGroups", 6, note="after the downgrade", groups=[group])


async def regexes(run: Run) -> None:
    """Subscriptions by a pattern."""
    client = await run.client()
    topic = await run.topic("abc", partitions=2)
    await run.topic("xyz")
    group = await run.group()
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{topic.name}.*"}
    first = await _beat(client, "join", {**_body(group, "m", 0, "x"), **regex})

    def is_resolved(response: Any) -> bool:
        return bool(response.groups[0].group_epoch > first.member_epoch)

    def has_got(response: Any) -> bool:
        return bool(response.assignment and response.assignment.topic_partitions)

    await client.until("ConsumerGroupDescribe", 1, is_resolved, group_ids=[group])
    body = _body(group, "m", first.member_epoch)
    await client.until("ConsumerGroupHeartbeat", 1, has_got, note="gets them", **body)


async def silent_members(run: Run) -> None:
    """A session that times out."""
    client = await run.client()
    topic = await run.topic()
    group = await run.group()
    first = await _beat(client, "join", _body(group, "m", 0, topic.name))
    await client.until(
        *("ConsumerGroupDescribe", 1, lambda r: r.groups[0].group_state == "Empty"),
        group_ids=[group],
    )
    await _beat(client, "too late", _body(group, "m", first.member_epoch))
