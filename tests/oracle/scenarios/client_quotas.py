"""AlterClientQuotas and DescribeClientQuotas: users, client ids and pairs of them."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run
from tests.oracle.scenarios._quotas import (
    CONNECT,
    FETCH,
    MUTATE,
    PRODUCE,
    TIME,
    entry,
    keep_quotas,
    op,
)


async def refused_quotas(run: Run) -> None:
    """What is no quota."""
    client = await run.client()
    ann, bob = run.name("ann"), run.name("bob")
    user = {"user": ann}
    good: Any = entry({"user": bob}, op(PRODUCE, None))
    for version in versions_of("AlterClientQuotas"):
        for note, entries in (
            ("nothing", []),
            ("no change", [entry(user)]),
            ("no entity", [entry({}, op(PRODUCE, 1))]),
            ("odd kind", [entry({"group": ann}, op(PRODUCE, 1))]),
            ("no kind", [entry({"": ann}, op(PRODUCE, 1))]),
            ("no name", [entry({"user": ""}, op(PRODUCE, 1))]),
            ("no client id", [entry({"client-id": ""}, op(PRODUCE, 1))]),
            ("a rate of an address", [entry({"ip": "127.0.0.1"}, op(PRODUCE, 1))]),
            ("odd key", [entry(user, op("odd", 1))]),
            ("no key", [entry(user, op("", 1))]),
            ("zero", [entry(user, op(PRODUCE, 0))]),
            ("negative", [entry(user, op(PRODUCE, -1))]),
            ("fraction", [entry(user, op(PRODUCE, 1.5))]),
            ("too large", [entry(user, op(PRODUCE, 1e19))]),
            ("a rate of connections of a user", [entry(user, op(CONNECT, 1))]),
            ("no address", [entry({"ip": ""}, op(CONNECT, 1))]),
            ("half a connection", [entry({"ip": "127.0.0.1"}, op(CONNECT, 0.5))]),
            ("too many connections", [entry({"ip": "127.0.0.1"}, op(CONNECT, 2.0**31))]),
            ("no connections", [entry({"ip": None}, op(CONNECT, 0))]),
            ("no time", [entry(user, op(TIME, 0))]),
            ("negative mutations", [entry(user, op(MUTATE, -0.5))]),
            ("good and bad", [entry(user, op(PRODUCE, 1), op(FETCH, -1))]),
            ("key twice", [entry(user, op(PRODUCE, 1), op(PRODUCE, 2))]),
            ("entity twice", [entry(user, op(PRODUCE, None)), entry(user, op(PRODUCE, None))]),
            ("not there", [entry(user, op(PRODUCE, None))]),
            ("odd key, not there", [entry(user, op("odd", None))]),
            ("bad and good", [entry(user, op(PRODUCE, -1)), good]),
        ):
            await client.send("AlterClientQuotas", version, note=note, entries=entries)
    for name in ("127.0.0.1", None):
        mixed = [entry({"ip": name, "user": ann}, op(PRODUCE, 1))]
        await client.send("AlterClientQuotas", 1, note=f"an address {name}", entries=mixed)


async def kept_quotas(run: Run) -> None:
    """Set, changed and removed, as DescribeClientQuotas sees."""
    await keep_quotas(run, run.here, run.here)
