"""A quorum whose voters are in the configuration of its nodes, until they are put into the log."""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    METADATA_TOPIC,
    STANDBY,
    controller_endpoint,
)
from tests.oracle.layout import CLUSTER_ID
from tests.oracle.scenario import Client, Run

STATIC_VOTERS = True

_EVERYWHERE = ("broker 1", ACTIVE, STANDBY)
_DIRECTORY = b"voter directory!"
_UPGRADE, _SAFE, _UNSAFE = 1, 2, 3


async def upgrade(run: Run) -> None:
    """The voters cannot be changed, then the quorum is upgraded, and they can (R100, R112)."""
    active = await run.client(at=ACTIVE)
    await _describe(run, "static")
    await _change_voters(run, "static")
    await _update_voter(run, active, "static")
    # Every voter must have told the leader what it supports.
    await active.until_quietly(
        *("UpdateFeatures", 1, lambda r: r.error_code != ErrorCode.INVALID_UPDATE_VERSION),
        **_level(1),
        validate_only=True,
    )
    for version in versions_of("UpdateFeatures"):
        if version:
            for note, level, kind in (
                ("checked", 1, _UPGRADE),
                ("as it is", 0, _UPGRADE),
                ("lowered", 0, _SAFE),
                ("too high", 2, _UPGRADE),
                ("as a downgrade", 1, _SAFE),
            ):
                body = {**_level(level, kind), "validate_only": True}
                await active.send("UpdateFeatures", version, note=note, **body)
    await active.send("UpdateFeatures", 1, note="upgraded", **_level(1))
    await active.send("UpdateFeatures", 1, note="again", **_level(1))
    await active.send("UpdateFeatures", 1, note="back", **_level(0, _SAFE))
    await active.send("UpdateFeatures", 1, note="back, unsafely", **_level(0, _UNSAFE))
    await _describe(run, "dynamic")
    await _change_voters(run, "dynamic")
    await _update_voter(run, active, "dynamic")


def _level(level: int, kind: int = _UPGRADE) -> dict[str, Any]:
    update = {"feature": "kraft.version", "max_version_level": level, "upgrade_type": kind}
    return {"timeout_ms": 10_000, "feature_updates": [update]}


async def _describe(run: Run, note: str) -> None:
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
    for at in _EVERYWHERE:
        client = await run.client(at=at)
        for version in versions_of("DescribeQuorum"):
            await client.send("DescribeQuorum", version, note=note, topics=topics)


async def _change_voters(run: Run, note: str) -> None:
    """Add a voter that nobody has seen, and remove one that there is not."""
    voter = {"cluster_id": CLUSTER_ID, "voter_id": 9, "voter_directory_id": _DIRECTORY}
    where = controller_endpoint(run, STANDBY)
    for at in _EVERYWHERE:
        client = await run.client(at=at)
        for version in versions_of("AddRaftVoter"):
            body = {"timeout_ms": 5_000, "listeners": where, **voter}
            await client.send("AddRaftVoter", version, note=note, **body)
        await client.send("RemoveRaftVoter", 0, note=note, **voter)


async def _update_voter(run: Run, client: Client, note: str) -> None:
    """Update a voter that there is not, and one with versions that it cannot have."""
    for what, voter_id, levels in (("no voter", 9, (0, 1)), ("upside down", 3, (1, 0))):
        await client.send(
            *("UpdateRaftVoter", 0),
            note=f"{note}: {what}",
            cluster_id=CLUSTER_ID,
            current_leader_epoch=run.normal.quorum_epoch,
            voter_id=voter_id,
            voter_directory_id=_DIRECTORY,
            listeners=controller_endpoint(run, "controller 3"),
            kraft_version_feature={
                "min_supported_version": levels[0],
                "max_supported_version": levels[1],
            },
        )
