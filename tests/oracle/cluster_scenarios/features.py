"""Features, and the versions that controllers speak."""

from __future__ import annotations

from typing import Any

from dohle.metadata.features import SUPPORTED_FEATURES
from tests.oracle.bodies import handlers_of_controllers, versions_of
from tests.oracle.cluster_scenarios._nodes import ACTIVE, STANDBY, Broker, features
from tests.oracle.scenario import Run

_UPGRADE, _SAFE, _UNSAFE = 1, 2, 3
_SOFTWARE = {"client_software_name": "oracle", "client_software_version": "1.0"}


async def updates(run: Run) -> None:
    """UpdateFeatures: what every node must support (A22)."""
    for at in ("broker 2", ACTIVE, STANDBY):
        client = await run.client(at=at)
        for version in versions_of("UpdateFeatures"):
            for note, name, level, kind in (
                ("unknown", "no.such.feature", 1, _UPGRADE),
                ("too high", "group.version", 99, _UPGRADE),
                ("the same", "group.version", 1, _UPGRADE),
                ("the same, lowered", "group.version", 1, _SAFE),
                ("lower by an upgrade", "transaction.version", 1, _UPGRADE),
                ("lower, safely", "transaction.version", 1, _SAFE),
                ("lower, unsafely", "transaction.version", 1, _UNSAFE),
                ("to nothing", "transaction.version", 0, _SAFE),
                ("odd kind", "group.version", 1, 9),
                ("negative", "group.version", -1, _UPGRADE),
                ("metadata as it is", "metadata.version", 29, _UPGRADE),
                ("metadata lower", "metadata.version", 25, _SAFE),
                ("metadata lower, unsafely", "metadata.version", 25, _UNSAFE),
                ("metadata too low", "metadata.version", 22, _SAFE),
                ("metadata too low, unsafely", "metadata.version", 22, _UNSAFE),
                ("metadata below all", "metadata.version", 1, _UNSAFE),
                ("metadata too high", "metadata.version", 30, _UPGRADE),
                ("quorum as it is", "kraft.version", 1, _UPGRADE),
                ("quorum lower", "kraft.version", 0, _SAFE),
                ("quorum lower, unsafely", "kraft.version", 0, _UNSAFE),
                ("quorum too high", "kraft.version", 2, _UPGRADE),
            ):
                if not version and kind != _UPGRADE:
                    continue
                if not version and name == "kraft.version":
                    continue
                update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
                await client.send(
                    *("UpdateFeatures", version),
                    note=note,
                    timeout_ms=5000,
                    feature_updates=[update],
                    validate_only=version > 0,
                )


async def held_back(run: Run) -> None:
    """A broker that supports less than the others keeps all of them from going on."""
    active = await run.client(at=ACTIVE)
    client = await run.client(at="broker 1")

    async def update(note: str, name: str, level: int, kind: int = _UPGRADE) -> None:
        change = {"feature": name, "max_version_level": level, "upgrade_type": kind}
        await client.send(
            *("UpdateFeatures", 2),
            note=note,
            timeout_ms=5000,
            feature_updates=[change],
        )

    async def see(note: str, level: int) -> None:
        def has_level(response: Any) -> bool:
            found = {each.name: each.max_version_level for each in response.finalized_features}
            return found.get("transaction.version") == level

        await client.until_quietly("ApiVersions", 4, has_level, **_SOFTWARE)
        await client.send("ApiVersions", 4, note=note, show=finalized, **_SOFTWARE)

    def finalized(response: Any) -> Any:
        return response.replace(api_keys=(), supported_features=())

    await update("lower", "transaction.version", 1, _SAFE)
    await see("lower", 1)
    old = Broker(active, 70)
    await old.register(features=features(transaction_version=(0, 1)))
    await update("held back", "transaction.version", 2)
    changes = [
        {"feature": "group.version", "max_version_level": 0, "upgrade_type": _SAFE},
        {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": _UPGRADE},
    ]
    for version in versions_of("UpdateFeatures"):
        if version:
            await client.send(
                *("UpdateFeatures", version),
                note="one of two is held back",
                feature_updates=changes,
                timeout_ms=5000,
            )
    await see("held back", 1)
    await active.send("UnregisterBroker", 0, broker_id=70)
    await update("free again", "transaction.version", 2)
    await see("free again", 2)


async def api_versions(run: Run) -> None:
    """ApiVersions on the listeners of controllers, and on those of brokers."""
    served = handlers_of_controllers()

    def shared(response: Any) -> Any:
        """Leave out what dohle does not serve, and its features."""
        return response.replace(
            api_keys=tuple(each for each in response.api_keys if each.api_key in served),
            supported_features=tuple(
                each for each in response.supported_features if each.name in SUPPORTED_FEATURES
            ),
        )

    for at in (ACTIVE, STANDBY):
        client = await run.client(at=at)
        for version in versions_of("ApiVersions"):
            await client.send("ApiVersions", version, show=shared, **_SOFTWARE)
