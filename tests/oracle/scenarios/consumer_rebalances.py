"""Groups by KIP-848 whose members are late, and whose topics change."""

from __future__ import annotations

from typing import Any

from tests.oracle.scenario import Client, Run

TIMEOUT = {"timeout_ms": 30_000}


def _body(group: str, member: str, epoch: int, *topics: str, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch}
    if topics:
        body |= {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
        body["subscribed_topic_names"] = [*topics]
    return {**body, **more}


async def _beat(client: Client, note: str, body: dict[str, Any]) -> Any:
    return await client.send("ConsumerGroupHeartbeat", 1, note=note, **body)


async def _described(client: Client, note: str, group: str) -> None:
    await client.send("ConsumerGroupDescribe", 1, note=note, group_ids=[group])


async def who_does_not_revoke_is_fenced(run: Run) -> None:
    """A member that keeps its partitions beyond the rebalance timeout."""
    one, two = await run.client("one"), await run.client("two")
    topic, group = await run.topic(partitions=2), await run.group()
    quick = {"rebalance_timeout_ms": 300}
    first = await _beat(one, "one joins", _body(group, "1", 0, topic.name, **quick))
    await _beat(two, "two joins", _body(group, "2", 0, topic.name))
    await _beat(one, "one is to revoke", _body(group, "1", first.member_epoch))
    await one.until(
        *("ConsumerGroupHeartbeat", 1, lambda r: r.error_code != 0),
        note="one is fenced",
        **_body(group, "1", first.member_epoch),
    )
    await _described(two, "one is out", group)


async def topics_come_and_grow(run: Run) -> None:
    """A subscription to a topic that is made later, and gets more partitions then."""
    client = await run.client()
    group = await run.group()
    late = run.name("late")
    answer = await _beat(client, "join", _body(group, "m", 0, late))
    await _described(client, "nothing to read", group)
    topic = await run.topic("late")

    def has(count: int) -> Any:
        return lambda r: r.assignment and len(r.assignment.topic_partitions[0].partitions) == count

    body = _body(group, "m", answer.member_epoch)
    answer = await client.until("ConsumerGroupHeartbeat", 1, has(1), note="it is there", **body)
    owned = [{"topic_id": topic.id, "partitions": [0]}]
    body = _body(group, "m", answer.member_epoch, topic_partitions=owned)
    await _beat(client, "owns it", body)
    topics = [{"name": late, "count": 3, "assignments": None}]
    await client.send("CreatePartitions", 3, **TIMEOUT, topics=topics)
    body = _body(group, "m", answer.member_epoch)
    answer = await client.until("ConsumerGroupHeartbeat", 1, has(3), note="it has grown", **body)
    await _described(client, "grown", group)
    nothing = _body(group, "m", answer.member_epoch, subscribed_topic_names=[])
    await _beat(client, "wants nothing", nothing)
    await _described(client, "wants nothing", group)


async def assignors(run: Run) -> None:
    """uniform and range, by three members.

    Of two topics ``uniform`` takes the one first whose id comes first, so it gets one only.
    """
    topics = [await run.topic("a", partitions=4), await run.topic("b", partitions=4)]
    for assignor, names in (
        ("uniform", [topics[0].name]),
        ("range", [each.name for each in topics]),
    ):
        group = await run.group(assignor)
        clients = [await run.client(str(number)) for number in range(3)]
        epochs = []
        for number, client in enumerate(clients):
            body = _body(group, str(number), 0, *names, server_assignor=assignor)
            answer = await _beat(client, f"{assignor}: {number} joins", body)
            epochs.append(answer.member_epoch)
        await _described(clients[0], assignor, group)
        for _ in range(3):
            for number, client in enumerate(clients):
                body = _body(group, str(number), epochs[number])
                answer = await _beat(client, f"{assignor}: {number}", body)
                epochs[number] = answer.member_epoch
                if answer.assignment is None:
                    continue
                owned = [
                    {"topic_id": each.topic_id, "partitions": [*each.partitions]}
                    for each in answer.assignment.topic_partitions
                ]
                body = _body(group, str(number), epochs[number], topic_partitions=owned)
                answer = await _beat(client, f"{assignor}: {number} owns", body)
                epochs[number] = answer.member_epoch
        await _described(clients[0], f"{assignor}, over", group)


async def different_subscriptions(run: Run) -> None:
    """Members that want different topics."""
    one, two = await run.client("one"), await run.client("two")
    first, second = await run.topic("a", partitions=2), await run.topic("b", partitions=2)
    for assignor in ("uniform", "range"):
        group = await run.group(assignor)
        await _beat(
            one, f"{assignor}: one", _body(group, "1", 0, first.name, server_assignor=assignor)
        )
        both = _body(group, "2", 0, first.name, second.name, server_assignor=assignor)
        await _beat(two, f"{assignor}: two", both)
        await _described(one, assignor, group)


async def racks_and_clients(run: Run) -> None:
    """What is told of a member is what it has told."""
    client = await run.client("somebody")
    topic, group = await run.topic(), await run.group()
    body = _body(group, "m", 0, topic.name, rack_id="here", instance_id="i")
    answer = await _beat(client, "join", body)
    await _described(client, "with a rack", group)
    await _beat(
        client, "moves", _body(group, "m", answer.member_epoch, rack_id="there", instance_id="i")
    )
    await _described(client, "with another rack", group)
    other = await run.client("else")
    await _beat(other, "by another client", _body(group, "m", answer.member_epoch, instance_id="i"))
    await _described(client, "by another client", group)
    await client.send(
        "ConsumerGroupDescribe", 1, group_ids=[group], include_authorized_operations=True
    )


async def settings_of_a_group(run: Run) -> None:
    """A group may have a heartbeat interval of its own."""
    client = await run.client()
    topic, group = await run.topic(), await run.group()
    answer = await _beat(client, "join", _body(group, "m", 0, topic.name))
    entry = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "150"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [entry]}
    await client.send("IncrementalAlterConfigs", 1, resources=[resource])
    await client.until(
        *("ConsumerGroupHeartbeat", 1, lambda r: r.heartbeat_interval_ms == 150),
        note="altered",
        **_body(group, "m", answer.member_epoch),
    )
