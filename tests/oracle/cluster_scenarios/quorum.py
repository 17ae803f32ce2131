"""What the nodes of the quorum ask of each other; nothing here changes who leads.

Node 1 leads, nodes 2 and 3 follow. The scenario asks in the name of a controller that is none of
the voters, or of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    FAR,
    METADATA_ID,
    METADATA_TOPIC,
    STANDBY,
    at_leader,
    voter_directories,
)
from tests.oracle.layout import CLUSTER_ID, LEADER
from tests.oracle.scenario import Client, Run

_STRANGER = 9
_DIRECTORY = b"strange director"
_OTHER_DIRECTORY = b"other directory!"


def _one(name: str, index: int, partition: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"topic_name": name, "partitions": [{"partition_index": index, **partition}]}]


def _wrong_places(body: dict[str, Any], partition: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield requests that are not about the metadata log of this cluster."""
    yield (
        "another cluster",
        {**body, "cluster_id": "another", "topics": _one(METADATA_TOPIC, 0, partition)},
    )
    yield "no topic", {**body, "topics": []}
    yield "another topic", {**body, "topics": _one("other", 0, partition)}
    yield "another partition", {**body, "topics": _one(METADATA_TOPIC, 1, partition)}
    both = _one(METADATA_TOPIC, 0, partition) + _one("other", 0, partition)
    yield "two topics", {**body, "topics": both}
    twice = [{**_one(METADATA_TOPIC, 0, partition)[0], "partitions": [partition, partition]}]
    yield "two partitions", {**body, "topics": twice}


async def votes(run: Run) -> None:
    """Vote: nobody gets one in the epoch that has a leader (R42)."""
    ids, epoch = await voter_directories(run), run.normal.quorum_epoch
    for at, node in ((ACTIVE, LEADER), (STANDBY, 2)):
        client = await run.client(at=at)
        for version in versions_of("Vote"):
            partition = {
                "replica_epoch": epoch,
                "replica_id": _STRANGER,
                "replica_directory_id": _DIRECTORY,
                "voter_directory_id": ids[node],
                "last_offset_epoch": epoch - 1,
                "last_offset": FAR,
            }
            body = {"cluster_id": CLUSTER_ID, "voter_id": node}
            for note, wrong in _wrong_places(body, partition):
                await client.send("Vote", version, note=note, **wrong)
            for note, changed in (
                ("up to date", {}),
                ("as a pre-vote", {"pre_vote": version >= 2}),
                ("behind", {"last_offset": 0, "last_offset_epoch": 0}),
                ("behind, as a pre-vote", {"last_offset": 0, "pre_vote": version >= 2}),
                ("by another voter", {"replica_id": 3, "replica_directory_id": ids[3]}),
                ("by itself", {"replica_id": node, "replica_directory_id": ids[node]}),
                ("older epoch", {"replica_epoch": epoch - 1, "last_offset_epoch": 0}),
                ("negative epoch", {"replica_epoch": -1}),
                ("negative replica", {"replica_id": -1}),
                ("negative offset", {"last_offset": -1}),
                ("negative last epoch", {"last_offset_epoch": -1}),
                ("last epoch is this one", {"last_offset_epoch": epoch}),
                (
                    "last epoch is this one, as a pre-vote",
                    {"last_offset_epoch": epoch, "pre_vote": version >= 2},
                ),
                ("last epoch is newer", {"last_offset_epoch": epoch + 1}),
                ("another directory", {"voter_directory_id": _OTHER_DIRECTORY}),
                ("no directory", {"voter_directory_id": bytes(16)}),
            ):
                topics = _one(METADATA_TOPIC, 0, {**partition, **changed})
                await client.send("Vote", version, note=note, **body, topics=topics)
            for note, more in (
                ("no cluster", {"cluster_id": None}),
                ("meant for another", {"voter_id": 8}),
                ("meant for nobody", {"voter_id": -1}),
            ):
                topics = _one(METADATA_TOPIC, 0, partition)
                await client.send("Vote", version, note=note, **{**body, **more}, topics=topics)


async def beginning_of_epochs(run: Run) -> None:
    """BeginQuorumEpoch: a follower hears again of the leader that it has (R43b)."""
    ids, epoch = await voter_directories(run), run.normal.quorum_epoch
    for at, node in ((ACTIVE, LEADER), (STANDBY, 2)):
        client = await run.client(at=at)
        for version in versions_of("BeginQuorumEpoch"):
            partition = {
                "leader_id": LEADER,
                "leader_epoch": epoch,
                "voter_directory_id": ids[node],
            }
            body = {"cluster_id": CLUSTER_ID, "voter_id": node, "leader_endpoints": at_leader(run)}
            for note, wrong in _wrong_places(body, partition):
                await client.send("BeginQuorumEpoch", version, note=note, **wrong)
            for note, changed, more in (
                ("known leader", {}, {}),
                ("no endpoints", {}, {"leader_endpoints": []}),
                ("no cluster", {}, {"cluster_id": None}),
                ("older epoch", {"leader_epoch": epoch - 1}, {}),
                ("older epoch of another", {"leader_epoch": epoch - 1, "leader_id": 8}, {}),
                ("negative epoch", {"leader_epoch": -1}, {}),
                ("negative leader", {"leader_id": -1}, {}),
                ("another directory", {"voter_directory_id": _OTHER_DIRECTORY}, {}),
                ("no directory", {"voter_directory_id": bytes(16)}, {}),
                ("meant for another", {}, {"voter_id": 8}),
                ("meant for nobody", {}, {"voter_id": -1}),
            ):
                topics = _one(METADATA_TOPIC, 0, {**partition, **changed})
                full = {**body, **more, "topics": topics}
                await client.send("BeginQuorumEpoch", version, note=note, **full)


async def end_of_epochs(run: Run) -> None:
    """EndQuorumEpoch: of epochs that are over already, and to the leader itself (R44)."""
    ids, epoch = await voter_directories(run), run.normal.quorum_epoch
    for at in (ACTIVE, STANDBY):
        client = await run.client(at=at)
        for version in versions_of("EndQuorumEpoch"):
            partition = {
                "leader_id": LEADER,
                "leader_epoch": epoch - 1,
                "preferred_successors": [3, 2],
                "preferred_candidates": [
                    {"candidate_id": each, "candidate_directory_id": ids[each]} for each in (3, 2)
                ],
            }
            body = {"cluster_id": CLUSTER_ID, "leader_endpoints": at_leader(run)}
            for note, wrong in _wrong_places(body, partition):
                await client.send("EndQuorumEpoch", version, note=note, **wrong)
            for note, changed, more in (
                ("older epoch", {}, {}),
                ("older epoch of another", {"leader_id": 8}, {}),
                ("no successors", {"preferred_successors": [], "preferred_candidates": []}, {}),
                ("no cluster", {}, {"cluster_id": None}),
                ("negative epoch", {"leader_epoch": -1}, {}),
                ("negative leader", {"leader_epoch": epoch, "leader_id": -1}, {}),
            ):
                topics = _one(METADATA_TOPIC, 0, {**partition, **changed})
                full = {**body, **more, "topics": topics}
                await client.send("EndQuorumEpoch", version, note=note, **full)


def _fetch(epoch: int, **more: Any) -> dict[str, Any]:
    """Return a Fetch of the metadata log by one who is no voter, from far beyond its end."""
    partition = {
        "partition": more.pop("partition", 0),
        "current_leader_epoch": epoch,
        "fetch_offset": FAR,
        "last_fetched_epoch": epoch,
        "partition_max_bytes": 1 << 20,
        "replica_directory_id": _DIRECTORY,
        "high_watermark": -1,
        **{key: more.pop(key) for key in [*more] if key in _OF_PARTITION},
    }
    topic = {
        "topic": METADATA_TOPIC,
        "topic_id": more.pop("topic_id", METADATA_ID),
        "partitions": [partition],
    }
    replica = more.pop("replica_id", _STRANGER)
    return {
        "cluster_id": CLUSTER_ID,
        "replica_id": replica,
        "replica_state": {"replica_id": replica},
        "max_wait_ms": 0,
        "topics": [topic],
        **more,
    }


_OF_PARTITION = {
    "current_leader_epoch",
    "fetch_offset",
    "last_fetched_epoch",
    "replica_directory_id",
}


async def fetches(run: Run) -> None:
    """Fetch of the metadata log: what is refused, and where logs diverge (R48, R49)."""
    epoch = run.normal.quorum_epoch
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    await _await_snapshot(run)
    for version in versions_of("Fetch"):
        if version < 13:
            # The topic has no id there.
            await active.send("Fetch", version, note="by its name", **_fetch(epoch))
            continue
        for note, changed in (
            ("another cluster", {"cluster_id": "another"}),
            ("no cluster", {"cluster_id": None}),
            ("another topic", {"topic_id": b"no such topic id"}),
            ("another partition", {"partition": 1}),
            ("nothing", {"topics": []}),
            ("negative wait", {"max_wait_ms": -1}),
            ("negative offset", {"fetch_offset": -1}),
            ("negative last epoch", {"last_fetched_epoch": -1}),
            ("last epoch is newer", {"last_fetched_epoch": epoch + 1}),
            ("older epoch", {"current_leader_epoch": epoch - 1, "last_fetched_epoch": 0}),
            ("newer epoch", {"current_leader_epoch": epoch + 1}),
            ("beyond the end", {}),
            ("beyond the end of an older epoch", {"last_fetched_epoch": epoch - 1}),
            ("from the start", {"fetch_offset": 0, "last_fetched_epoch": 0}),
            ("by nobody", {"replica_id": -1}),
            ("by the leader", {"replica_id": LEADER}),
        ):
            await active.send("Fetch", version, note=note, **_fetch(epoch, **changed))
        for note, changed in (
            ("this epoch", {}),
            ("older epoch", {"current_leader_epoch": epoch - 1, "last_fetched_epoch": 0}),
            ("newer epoch", {"current_leader_epoch": epoch + 1}),
            ("another cluster", {"cluster_id": "another"}),
        ):
            await standby.send("Fetch", version, note=note, **_fetch(epoch, **changed))


async def _await_snapshot(run: Run) -> tuple[int, int]:
    """Wait until the leader has a snapshot, and return its id."""
    client = await run.client("setup", ACTIVE)
    body = _fetch(run.normal.quorum_epoch, fetch_offset=0, last_fetched_epoch=0)

    def has_snapshot(response: Any) -> bool:
        return bool(response.responses[0].partitions[0].snapshot_id.end_offset > 0)

    answer = await client.until_quietly("Fetch", 17, has_snapshot, **body)
    found = answer.responses[0].partitions[0].snapshot_id
    return found.end_offset, found.epoch


async def snapshots(run: Run) -> None:
    """FetchSnapshot: in pieces, and what is refused (R56)."""
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    epoch = run.normal.quorum_epoch
    end, end_epoch = await _await_snapshot(run)

    async def ask(client: Client, version: int, note: str, **more: Any) -> None:
        partition = {
            "partition": more.pop("partition", 0),
            "current_leader_epoch": more.pop("current_leader_epoch", epoch),
            "snapshot_id": more.pop("snapshot_id", {"end_offset": end, "epoch": end_epoch}),
            "position": more.pop("position", 0),
            "replica_directory_id": _DIRECTORY,
        }
        topics = [{"name": more.pop("name", METADATA_TOPIC), "partitions": [partition]}]
        body = {"cluster_id": CLUSTER_ID, "replica_id": _STRANGER, "topics": topics, **more}
        await client.send("FetchSnapshot", version, note=note, **body)

    for version in versions_of("FetchSnapshot"):
        for note, more in (
            ("whole", {}),
            ("the first 10 bytes", {"max_bytes": 10}),
            ("from the middle", {"position": 20, "max_bytes": 10}),
            ("negative position", {"position": -1}),
            ("behind the end", {"position": FAR}),
            ("another cluster", {"cluster_id": "another"}),
            ("no cluster", {"cluster_id": None}),
            ("another topic", {"name": "other"}),
            ("another partition", {"partition": 1}),
            ("older epoch", {"current_leader_epoch": epoch - 1}),
            ("newer epoch", {"current_leader_epoch": epoch + 1}),
            ("the one of the beginning", {"snapshot_id": {"end_offset": 0, "epoch": 0}}),
            ("none", {"snapshot_id": {"end_offset": -1, "epoch": -1}}),
            ("no such", {"snapshot_id": {"end_offset": end + FAR, "epoch": end_epoch}}),
            ("of another epoch", {"snapshot_id": {"end_offset": end, "epoch": end_epoch + 1}}),
            ("by nobody", {"replica_id": -1}),
        ):
            await ask(active, version, note, **more)
        await ask(standby, version, "this epoch")
        await ask(standby, version, "older epoch", current_leader_epoch=epoch - 1)
