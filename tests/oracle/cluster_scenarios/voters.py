"""The voters of the quorum change: a controller that a scenario plays joins them, and leaves.

It fetches the metadata log as an observer, and what is asked of it (its versions, before it becomes
a voter) node 2 answers, at whose address it is said to be.
"""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    METADATA_ID,
    STANDBY,
    at_leader,
    controller_endpoint,
    voter_directories,
)
from tests.oracle.layout import CLUSTER_ID, LEADER, describe_quorum
from tests.oracle.scenario import Client, Run

_VOTER = 9
_DIRECTORY = b"voter directory!"
_OTHER = b"other directory!"
_EVERYWHERE = (ACTIVE, STANDBY, "broker 1", "broker 2")


def _voter(**more: Any) -> dict[str, Any]:
    who = {"cluster_id": CLUSTER_ID, "voter_id": _VOTER, "voter_directory_id": _DIRECTORY}
    return {**who, **more}


async def additions(run: Run) -> None:
    """AddRaftVoter: each check by itself (R105)."""
    ids = await voter_directories(run)
    for at in _EVERYWHERE:
        client = await run.client(at=at)
        for version in versions_of("AddRaftVoter"):
            where = controller_endpoint(run, STANDBY)
            for note, more in (
                ("another cluster", {"cluster_id": "another"}),
                ("negative id", {"voter_id": -1}),
                ("no directory", {"voter_directory_id": bytes(16)}),
                ("no listeners", {"listeners": []}),
                ("no default listener", {"listeners": [{**where[0], "name": "OTHER"}]}),
                ("a voter", {"voter_id": 2, "voter_directory_id": ids[2]}),
                ("a voter elsewhere", {"voter_id": 2, "voter_directory_id": _OTHER}),
                ("the leader", {"voter_id": LEADER, "voter_directory_id": ids[LEADER]}),
                ("never seen", {}),
                ("never seen, no cluster", {"cluster_id": None}),
            ):
                body = {"timeout_ms": 5_000, "listeners": where, **_voter(**more)}
                await client.send("AddRaftVoter", version, note=note, **body)


async def removals(run: Run) -> None:
    """RemoveRaftVoter: each check by itself (R107)."""
    ids = await voter_directories(run)
    for at in _EVERYWHERE:
        client = await run.client(at=at)
        for note, more in (
            ("another cluster", {"cluster_id": "another"}),
            ("no cluster", {"cluster_id": None}),
            ("negative id", {"voter_id": -1}),
            ("no directory", {"voter_directory_id": bytes(16)}),
            ("no voter", {}),
            ("a voter elsewhere", {"voter_id": 2, "voter_directory_id": _OTHER}),
            ("another's directory", {"voter_id": 8, "voter_directory_id": ids[2]}),
        ):
            await client.send("RemoveRaftVoter", 0, note=note, **_voter(**more))


async def updates(run: Run) -> None:
    """UpdateRaftVoter: each check by itself (R108)."""
    ids, epoch = await voter_directories(run), run.normal.quorum_epoch
    third = {"voter_id": 3, "voter_directory_id": ids[3]}
    where = controller_endpoint(run, "controller 3")
    for at in (ACTIVE, STANDBY):
        client = await run.client(at=at)
        for note, more in (
            ("another cluster", {"cluster_id": "another"}),
            ("no cluster", {"cluster_id": None}),
            ("older epoch", {"current_leader_epoch": epoch - 1}),
            ("newer epoch", {"current_leader_epoch": epoch + 1}),
            ("negative id", {"voter_id": -1}),
            ("no directory", {"voter_directory_id": bytes(16)}),
            ("no listeners", {"listeners": []}),
            ("no default listener", {"listeners": [{**where[0], "name": "OTHER"}]}),
            ("no voter", {"voter_id": _VOTER}),
            ("a voter elsewhere", {"voter_directory_id": _OTHER}),
            ("versions upside down", {"kraft_version_feature": _levels(1, 0)}),
            ("negative versions", {"kraft_version_feature": _levels(-1, 1)}),
            ("too old", {"kraft_version_feature": _levels(0, 0)}),
            ("too new", {"kraft_version_feature": _levels(2, 3)}),
            ("as it is", {}),
        ):
            body: dict[str, Any] = {
                "cluster_id": CLUSTER_ID,
                "current_leader_epoch": epoch,
                "listeners": where,
                "kraft_version_feature": _levels(0, 1),
                **third,
                **more,
            }
            await client.send("UpdateRaftVoter", 0, note=note, **body)


def _levels(lowest: int, highest: int) -> dict[str, int]:
    return {"min_supported_version": lowest, "max_supported_version": highest}


async def joining(run: Run) -> None:
    """A fourth voter: added, described, moved, removed (R106, R107)."""
    active = await run.client(at=ACTIVE)
    where = controller_endpoint(run, STANDBY)
    epoch = run.normal.quorum_epoch
    for version in versions_of("AddRaftVoter"):
        body = {"timeout_ms": 5_000, "listeners": where, **_voter()}
        await _catch_up(run, active)
        await active.send("AddRaftVoter", version, note="an observer", **body)
        await _describe(run, f"v{version}: added")
        await active.send("AddRaftVoter", version, note="again", **body)
        elsewhere = _voter(voter_directory_id=_OTHER)
        await active.send("AddRaftVoter", version, note="again, elsewhere", **{**body, **elsewhere})
        await active.send(
            *("UpdateRaftVoter", 0),
            note=f"v{version}: moved",
            current_leader_epoch=epoch,
            listeners=at_leader(run),
            kraft_version_feature=_levels(0, 1),
            **_voter(),
        )
        await _describe(run, f"v{version}: moved")
        for note, body in (("elsewhere", elsewhere), ("removed", _voter())):
            await active.until(
                *("RemoveRaftVoter", 0, _is_not_pending), note=f"v{version}: {note}", **body
            )
        await active.send("RemoveRaftVoter", 0, note=f"v{version}: again", **_voter())
        await _describe(run, f"v{version}: removed")


def _is_not_pending(response: Any) -> bool:
    """Tell whether the change before this one is committed."""
    return bool(response.error_code != ErrorCode.REQUEST_TIMED_OUT)


async def _catch_up(run: Run, client: Client) -> None:
    """Fetch the metadata log to its end, as an observer that the leader then knows."""
    for _ in range(50):
        seen = await _fetch(run, client)
        if seen:
            return
    raise AssertionError("the end of the metadata log is never reached")


async def _fetch(run: Run, client: Client) -> bool:
    """Fetch from the end of the log; tell whether it was the end."""
    epoch = run.normal.quorum_epoch
    quorum = await describe_quorum(await run.client("setup", "broker 1"))
    end = max(each.log_end_offset for each in quorum.current_voters)
    partition = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": end,
        "last_fetched_epoch": epoch,
        "replica_directory_id": _DIRECTORY,
    }
    answer = await client.ask(
        *("Fetch", 17),
        cluster_id=CLUSTER_ID,
        replica_state={"replica_id": _VOTER},
        topics=[{"topic_id": METADATA_ID, "partitions": [partition]}],
    )
    found = answer.responses[0].partitions[0]
    return not found.error_code and not found.records and found.diverging_epoch.end_offset < 0


async def _describe(run: Run, note: str) -> None:
    client = await run.client(at="broker 1")
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    await client.send("DescribeQuorum", 2, note=note, show=_without_progress, topics=topics)


def _without_progress(response: Any) -> Any:
    """Leave out what the voter is known to have, and when it last asked."""

    def still(state: Any) -> Any:
        if state.replica_id != _VOTER:
            return state
        return state.replace(
            log_end_offset=-1, last_fetch_timestamp=-1, last_caught_up_timestamp=-1
        )

    return response.replace(
        topics=tuple(
            topic.replace(
                partitions=tuple(
                    part.replace(
                        current_voters=tuple(map(still, part.current_voters)),
                        observers=(),
                    )
                    for part in topic.partitions
                )
            )
            for topic in response.topics
        )
    )
