"""Whether a controller may vote with the voters that it is configured for.

``quorum-state`` tells who had a vote when the node ran last (R10), as long as the log does not. One
that is started without its configuration takes itself for the only voter: it would commit what the
others do not know, and lose it as soon as it meets them again. So it does not start. Apache Kafka
refused other voters likewise ("Configured voter set ... is different from the voter set read from
the state file ... wipe out the local state file if necessary") until the log could have them.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.server.quorum.quorum_state import QUORUM_STATE, QuorumState, read_quorum_state
from dohle.storage.files import FileSystem, join

_NOBODY = BrokerId(-1)


def refuse_other_voters(
    fs: FileSystem, folder: str, node_id: BrokerId, configured: Sequence[BrokerId]
) -> None:
    """Refuse static voters that are not those of the file in the metadata log's folder.

    A node that was formatted but never ran has none to compare.
    """
    state = read_quorum_state(fs, folder)
    said = None if state is None else _contradiction(state, node_id, configured)
    if state is None or said is None:
        return
    path = join(folder, QUORUM_STATE)
    configured_text = f"the voter{'s' if len(configured) > 1 else ''} {_listed(configured)}"
    known = state.voter_ids or (node_id,)
    raise KafkaError(
        ErrorCode.INVALID_CONFIG,
        f"{path} says that {said}, but the configuration has {configured_text}, whose decisions "
        f"the others would not know: {what_to_do(fs, os.path.dirname(folder), known)}; or, to "
        "change the voters for good, stop all nodes, give each the new controller.quorum.voters, "
        "and remove this file from each",
    )


def what_to_do(fs: FileSystem, data: str, voters: Iterable[int]) -> str:
    """Return how a node is started as a part of its cluster."""
    config = join(data, "server.properties")
    shown = config if fs.exists(config) else "FILE, its server.properties"
    advice = f"start this node with --config {shown}"
    parent, ids = os.path.dirname(data), sorted(set(voters))
    # As `dohle start --nodes` places them.
    if ids == list(range(1, len(ids) + 1)) and all(
        fs.exists(join(parent, f"{each}/meta.properties")) for each in ids
    ):
        advice += f", or all with --nodes {len(ids)} --data {parent or '.'}"
    return advice


def _contradiction(
    state: QuorumState, node_id: BrokerId, configured: Sequence[BrokerId]
) -> str | None:
    if state.voter_ids:
        if set(state.voter_ids) == set(configured):
            return None
        return f"the voters of the quorum are {_listed(state.voter_ids)}"
    # With the voters in the log, which may be lost or not have come yet.
    others = {state.leader_id, state.voted_id} - {_NOBODY, *configured}
    if others:
        return f"node {_listed(others)} was to lead the quorum of node {node_id}"
    return None


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
