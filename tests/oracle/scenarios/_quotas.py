"""Quotas of clients, as AlterClientQuotas sets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracle.scenario import Run

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
TIME, MUTATE, CONNECT = (
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_EXACT, _DEFAULT, _SPECIFIED = range(3)


def op(key: str, value: float | None) -> dict[str, Any]:
    """Return a change: a quota that is set, or removed."""
    return {"key": key, "value": float(value or 0), "remove": value is None}


def entry(names: Mapping[str, str | None], *ops: dict[str, Any]) -> dict[str, Any]:
    """Return changes of the quotas of an entity."""
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in names.items()]
    return {"entity": entity, "ops": list(ops)}


async def keep_quotas(run: Run, at: str, seen_at: str) -> None:
    """Set, change and remove quotas at one node, and look at them at another."""
    client, viewer = await run.client(at=at), await run.client(at=seen_at)
    ann, app = run.name("ann"), run.name("app")
    user, pair = {"user": ann}, {"user": ann, "client-id": app}
    of_default = {"user": ann, "client-id": None}

    async def alter(note: str, *entries: dict[str, Any], **more: Any) -> None:
        await client.send("AlterClientQuotas", 1, note=note, entries=list(entries), **more)

    async def see(
        note: str,
        expected: set[tuple[str | None, str, float]],
        *components: tuple[str, int, str | None],
        strict: bool = False,
    ) -> None:
        """Look until these are seen: the client id ("" for none), the key and the value of each."""

        def is_seen(response: Any) -> bool:
            found = set()
            for each in response.entries or ():
                names = {part.entity_type: part.entity_name for part in each.entity}
                client_id = names.get("client-id", "")
                found |= {(client_id, value.key, value.value) for value in each.values}
            return found == expected

        asked = [
            {"entity_type": kind, "match_type": match, "match": name}
            for kind, match, name in components
        ]
        await viewer.until(
            *("DescribeClientQuotas", 1, is_seen), note=note, components=asked, strict=strict
        )

    of_ann = ("user", _EXACT, ann)
    await alter("validated", entry(user, op(PRODUCE, 1000)), validate_only=True)
    await alter("set", entry(user, op(PRODUCE, 1000)), entry(pair, op(FETCH, 3000)))
    everything: set[tuple[str | None, str, float]]
    fractions: set[tuple[str | None, str, float]]
    everything = {("", PRODUCE, 1000.0), (app, FETCH, 3000.0)}
    await see("set", everything, of_ann)
    await see("set, strict", {("", PRODUCE, 1000.0)}, of_ann, strict=True)
    await see("set, any client id", {(app, FETCH, 3000.0)}, of_ann, ("client-id", _SPECIFIED, None))
    await see("set, the default client id", set(), of_ann, ("client-id", _DEFAULT, None))
    await alter("the same again", entry(user, op(PRODUCE, 1000)))
    await alter("changed", entry(user, op(PRODUCE, 5000)), entry(of_default, op(PRODUCE, 7)))
    await see("changed", {("", PRODUCE, 5000.0)}, of_ann, strict=True)
    await see("changed, default", {(None, PRODUCE, 7.0)}, of_ann, ("client-id", _DEFAULT, None))
    await alter("one bad", entry(user, op(PRODUCE, 9), op(FETCH, 0.5)))
    await see("one bad", {("", PRODUCE, 5000.0)}, of_ann, strict=True)
    await alter("twice", entry(user, op(PRODUCE, 8)), entry(user, op(PRODUCE, 9)))
    await see("twice", {("", PRODUCE, 8.0)}, of_ann, strict=True)
    await alter("fractions", entry(user, op(TIME, 0.5), op(MUTATE, 1.5)))
    fractions = {("", PRODUCE, 8.0), ("", TIME, 0.5), ("", MUTATE, 1.5)}
    await see("fractions", fractions, of_ann, strict=True)
    address: Any = {"ip": "10.1.2.3"}
    await alter("an address", entry(address, op(CONNECT, 100)))
    await see("an address", {("", CONNECT, 100.0)}, ("ip", _EXACT, "10.1.2.3"))
    await alter("no address any more", entry(address, op(CONNECT, None)))
    await see("no address any more", set(), ("ip", _EXACT, "10.1.2.3"))
    await alter("no fractions any more", entry(user, op(TIME, None), op(MUTATE, None)))
    gone = [entry(user, op(PRODUCE, None), op(FETCH, None)), entry(pair, op(FETCH, None))]
    await alter("removed", *gone, entry(of_default, op(PRODUCE, None)))
    await see("removed", set(), of_ann)
