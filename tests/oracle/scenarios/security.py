"""What is said about security on a plaintext listener without an authorizer."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run
from tests.oracle.scenarios._passwords import SHA_256, SHA_512, keep_passwords, password_of

_ANY, _TOPIC, _LITERAL, _MATCH, _READ, _ALLOW = 1, 2, 3, 2, 3, 3


async def acls(run: Run) -> None:
    """DescribeAcls, CreateAcls and DeleteAcls."""
    client = await run.client()
    wanted = {
        "resource_type_filter": _ANY,
        "resource_name_filter": None,
        "pattern_type_filter": _ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    one = {**wanted, "resource_type_filter": _TOPIC, "resource_name_filter": "t"}
    for version in versions_of("DescribeAcls"):
        await client.send("DescribeAcls", version, note="all", **wanted)
        await client.send("DescribeAcls", version, note="one", **one)
    acl = {
        "resource_type": _TOPIC,
        "resource_name": "t",
        "resource_pattern_type": _LITERAL,
        "principal": "User:somebody",
        "host": "*",
        "operation": _READ,
        "permission_type": _ALLOW,
    }
    for version in versions_of("CreateAcls"):
        await client.send("CreateAcls", version, note="two", creations=[acl, acl])
        await client.send("CreateAcls", version, note="none", creations=[])
    for version in versions_of("DeleteAcls"):
        await client.send("DeleteAcls", version, note="two", filters=[wanted, one])
        await client.send("DeleteAcls", version, note="none", filters=[])


async def sasl(run: Run) -> None:
    """SaslHandshake and SaslAuthenticate where nobody has to authenticate."""
    client = await run.client()
    for version in versions_of("SaslHandshake"):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "odd"):
            await client.send("SaslHandshake", version, note=mechanism, mechanism=mechanism)
    for version in versions_of("SaslAuthenticate"):
        await client.send("SaslAuthenticate", version, auth_bytes=b"\0somebody\0secret")


async def delegation_tokens(run: Run) -> None:
    """Delegation tokens for somebody who has not authenticated."""
    client = await run.client()
    somebody = {"principal_type": "User", "principal_name": "somebody"}
    for version in versions_of("CreateDelegationToken"):
        for note, owner in (("own", None), ("of somebody", "somebody")):
            await client.send(
                "CreateDelegationToken",
                version,
                note=note,
                owner_principal_type=None if owner is None else "User",
                owner_principal_name=owner,
                renewers=[somebody],
                max_lifetime_ms=-1,
            )
    for version in versions_of("RenewDelegationToken"):
        await client.send("RenewDelegationToken", version, hmac=b"x", renew_period_ms=1000)
    for version in versions_of("ExpireDelegationToken"):
        await client.send("ExpireDelegationToken", version, hmac=b"x", expiry_time_period_ms=1000)
    for version in versions_of("DescribeDelegationToken"):
        for note, owners in (("all", None), ("none", []), ("one", [somebody])):
            await client.send("DescribeDelegationToken", version, note=note, owners=owners)


async def passwords(run: Run) -> None:
    """DescribeUserScramCredentials where nobody has any."""
    client = await run.client()

    async def ask(note: str, *names: str, **more: Any) -> None:
        users = [{"name": run.name(name)} for name in names]
        await client.send("DescribeUserScramCredentials", 0, note=note, **{"users": users, **more})

    await ask("all", users=None)
    await ask("none")
    await ask("one", "somebody")
    await ask("the same twice", "somebody", "somebody")


async def refused_passwords(run: Run) -> None:
    """AlterUserScramCredentials: what is wrong, so that nothing is kept."""
    client = await run.client()
    ann, bob = run.name("ann"), run.name("bob")
    gone, odd = {"name": ann, "mechanism": SHA_256}, {"name": ann, "mechanism": 3}
    good, poor = password_of(ann), password_of(ann, iterations=1)
    for note, deletions, upsertions in (
        ("nothing", [], []),
        ("no mechanism", [], [password_of(ann, 0)]),
        ("odd mechanism", [], [password_of(ann, 3)]),
        ("negative mechanism", [], [password_of(ann, -1)]),
        ("too few iterations", [], [password_of(ann, iterations=4095)]),
        ("too few iterations, SHA-512", [], [password_of(ann, SHA_512, iterations=4095)]),
        ("negative iterations", [], [password_of(ann, iterations=-1)]),
        ("too many iterations", [], [password_of(ann, iterations=16_385)]),
        ("no name", [], [password_of("")]),
        ("no name and no mechanism", [], [password_of("", 0)]),
        ("no mechanism and too few iterations", [], [password_of(ann, 0, iterations=1)]),
        ("no salted password", [], [password_of(ann, salted_password=b"")]),
        ("unknown deleted", [gone], []),
        ("odd mechanism deleted", [odd], []),
        ("no name deleted", [{**gone, "name": ""}], []),
        ("twice", [], [good, good]),
        ("three times", [], [good, good, good]),
        ("two mechanisms", [], [good, password_of(ann, SHA_512)]),
        ("unknown deleted twice", [gone, gone], []),
        ("deleted and set", [gone], [good]),
        ("poor and good", [], [poor, good]),
        ("good and poor", [], [good, poor]),
        ("two users", [gone], [password_of(bob, 0)]),
    ):
        await client.send(
            *("AlterUserScramCredentials", 0),
            note=note,
            deletions=deletions,
            upsertions=upsertions,
        )


async def kept_passwords(run: Run) -> None:
    """AlterUserScramCredentials: set, changed and deleted, as DescribeUserScramCredentials sees."""
    await keep_passwords(run, run.here, run.here)


async def quotas(run: Run) -> None:
    """DescribeClientQuotas where there are none."""
    client = await run.client()
    exact, default, specified = range(3)
    for version in versions_of("DescribeClientQuotas"):
        for note, *components in (
            ("all",),
            ("a user", ("user", exact, "somebody")),
            ("the default", ("user", default, None)),
            ("all users", ("user", specified, None)),
            ("user and client", ("user", exact, "u"), ("client-id", exact, "c")),
            ("user and address", ("user", exact, "u"), ("ip", exact, "127.0.0.1")),
            ("user twice", ("user", exact, "u"), ("user", exact, "v")),
            ("odd kind", ("group", exact, "g")),
            ("no kind", ("", exact, "g")),
            ("no name", ("user", exact, None)),
            ("a name for all", ("user", specified, "u")),
            ("a name for the default", ("user", default, "u")),
            ("odd match", ("user", 9, "u")),
        ):
            await client.send(
                "DescribeClientQuotas",
                version,
                note=note,
                strict=note == "a user",
                components=[
                    {"entity_type": kind, "match_type": match, "match": name}
                    for kind, match, name in components
                ],
            )
