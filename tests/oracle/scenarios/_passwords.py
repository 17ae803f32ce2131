"""Passwords of users, as AlterUserScramCredentials sets them."""

from __future__ import annotations

from typing import Any

from tests.oracle.scenario import Run

SHA_256, SHA_512 = 1, 2


def password_of(name: str, mechanism: int = SHA_256, **changed: Any) -> dict[str, Any]:
    """Return an upsertion of AlterUserScramCredentials that nothing is wrong with, but for this."""
    keys = {"salt": b"salt", "salted_password": b"p" * 32}
    return {"name": name, "mechanism": mechanism, "iterations": 4096, **keys, **changed}


async def keep_passwords(run: Run, at: str, seen_at: str) -> None:
    """Set, change and delete passwords at one node, and look at them at another."""
    client, viewer = await run.client(at=at), await run.client(at=seen_at)
    ann, bob, eve = map(run.name, ("ann", "bob", "eve"))

    async def alter(note: str, *upsertions: Any, deletions: Any = ()) -> None:
        changes = {"deletions": list(deletions), "upsertions": list(upsertions)}
        await client.send("AlterUserScramCredentials", 0, note=note, **changes)

    async def see(note: str, expected: dict[str, set[tuple[int, int]]]) -> None:
        def is_seen(response: Any) -> bool:
            found = {
                each.user: {(info.mechanism, info.iterations) for info in each.credential_infos}
                for each in response.results
            }
            return found == expected

        users = [{"name": name} for name in expected]
        await viewer.until("DescribeUserScramCredentials", 0, is_seen, note=note, users=users)

    def without(name: str, mechanism: int) -> dict[str, Any]:
        return {"name": name, "mechanism": mechanism}

    await alter("set", password_of(ann), password_of(bob, SHA_512, iterations=16_384))
    await see("set", {ann: {(SHA_256, 4096)}, bob: {(SHA_512, 16_384)}})
    await alter("a second mechanism", password_of(ann, SHA_512))
    await see("a second mechanism", {ann: {(SHA_256, 4096), (SHA_512, 4096)}})
    await alter("changed", password_of(ann, iterations=5000, salt=b""))
    await see("changed", {ann: {(SHA_256, 5000), (SHA_512, 4096)}})
    await alter("another mechanism deleted", deletions=[without(bob, SHA_256)])
    await alter("deleted twice", deletions=[without(ann, SHA_256), without(ann, SHA_512)])
    await alter("deleted and set", password_of(ann), deletions=[without(ann, SHA_256)])
    await alter("good and bad", password_of(bob, 3), password_of(eve))
    await see("good and bad", {eve: {(SHA_256, 4096)}, bob: {(SHA_512, 16_384)}})
    gone = [without(ann, SHA_256), without(bob, SHA_512), without(eve, SHA_256)]
    await alter("deleted", deletions=gone)
    await see("deleted", {ann: {(SHA_512, 4096)}, bob: set(), eve: set()})
    await alter("the last one deleted", deletions=[without(ann, SHA_512)])
    await see("the last one deleted", {ann: set()})
    await alter("deleted again", deletions=[without(ann, SHA_512)])
