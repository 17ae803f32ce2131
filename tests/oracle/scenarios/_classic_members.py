"""Members of classic groups, as several areas need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dohle.protocol.consumer_framing import write_subscription
from tests.oracle.scenario import Client, Run


def wants(topic: str = "topic", protocol: str = "range") -> dict[str, Any]:
    """Return a protocol of a member that wants a topic.

    Metadata that is no subscription would not do: it is the end of Kafka's timers.
    """
    return {"name": protocol, "metadata": write_subscription([topic])}


def join_body(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    """Return a JoinGroup that most groups accept."""
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [wants()],
        **more,
    }


@dataclass
class Member:
    """A member that has been told its id."""

    client: Client
    id: str
    generation: int


async def joined(run: Run, group: str, name: str = "a", **more: Any) -> Member:
    """Make the first and only member of a group, by two steps."""
    client = await run.client(name)
    asked = await client.send("JoinGroup", 9, **join_body(group, **more))
    member_id = asked.member_id
    if asked.error_code:
        answer = await client.send("JoinGroup", 9, **join_body(group, member_id, **more))
        return Member(client, member_id, answer.generation_id)
    return Member(client, member_id, asked.generation_id)


async def stable(run: Run, group: str, name: str = "a", **more: Any) -> Member:
    """Make a group of one member that is Stable, by three steps."""
    member = await joined(run, group, name, **more)
    await member.client.send(
        *("SyncGroup", 5),
        group_id=group,
        generation_id=member.generation,
        member_id=member.id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member.id, "assignment": b"all"}],
    )
    return member
