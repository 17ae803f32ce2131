"""The judge of every scenario: files are the same on all nodes, and nobody has complained.

What clients were given is judged by who ran them (``load.py``).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from dohle.records.batch import BATCH_HEADER, LOG_OVERHEAD
from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator
from tests.mixed.nodes import DEADLINE_S, MixedCluster

METADATA = "__cluster_metadata-0"


class Stored(NamedTuple):
    """A batch as it is in a file."""

    base_offset: int
    content: bytes


def stored(folder: Path, end_offset: int) -> list[Stored]:
    """Return the batches of a log whose first offset is before the end, from all its segments."""
    found = []
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        position = 0
        while position + BATCH_HEADER.size <= len(content):
            base_offset, size, *_ = BATCH_HEADER.unpack_from(content, position)
            following = position + LOG_OVERHEAD + size
            if base_offset >= end_offset or size <= 0 or following > len(content):
                break
            found.append(Stored(base_offset, content[position:following]))
            position = following
    return found


def digests(folders: dict[int, Path], end_offset: int) -> dict[int, str]:
    """Say what each node has of a log, up to this offset and from where all of them have it."""
    logs = {node: stored(folder, end_offset) for node, folder in folders.items()}
    first_offset = max(
        log[0].base_offset if log else _named_offset(folders[node]) for node, log in logs.items()
    )
    said = {}
    for node, log in logs.items():
        shared = [each for each in log if each.base_offset >= first_offset]
        digest = hashlib.sha256(b"".join(each.content for each in shared)).hexdigest()[:16]
        ends = [each.base_offset for each in shared]
        span = f"{ends[0]} to {ends[-1]}" if ends else "none"
        said[node] = f"{len(shared)} batches, {span}: {digest}"
    return said


def _named_offset(folder: Path) -> int:
    """Return where a log without batches begins, which is above 0 behind a snapshot."""
    return min((int(path.stem) for path in folder.glob("*.log")), default=0)


def await_same(what: str, folders: dict[int, Path], end_offset: int) -> None:
    """Wait until all nodes have the same bytes of a log."""
    seen: dict[int, str] = {}

    def are_same() -> bool:
        seen.update(digests(folders, end_offset))
        return len(set(seen.values())) == 1

    try:
        wait_until(are_same, DEADLINE_S / 3)
    except AssertionError:
        raise AssertionError(f"{what} differs below {end_offset}: {seen}") from None


def judge_partitions(cluster: MixedCluster, operator: Operator) -> None:
    """Below the high watermark the replicas of every partition are the same, byte for byte."""
    operator.await_in_sync()
    for topic, partitions in operator.topics().items():
        ends = operator.ends(topic)
        for index, partition in partitions.items():
            folders: dict[int, Path] = {}
            for node_id in partition.replicas:
                folder = cluster.nodes[node_id].partition_folder(f"{topic}-{index}")
                assert folder is not None, f"node {node_id} has nothing of {topic}-{index}"
                folders[node_id] = folder
            await_same(f"{topic}-{index}", folders, ends[index])


def judge_metadata(cluster: MixedCluster, operator: Operator) -> None:
    """Below what is committed all nodes have the same metadata log, byte for byte (R7)."""
    committed = operator.quorum().high_watermark
    folders = {node.id: node.directories[0] / METADATA for node in cluster.nodes.values()}
    await_same("the metadata log", folders, committed)


def judge(cluster: MixedCluster, operator: Operator) -> None:
    """See that the nodes agree, and that nobody has complained since the last time."""
    ended = [node.id for node in cluster.nodes.values() if not node.is_running]
    assert not ended, f"nodes {ended} have ended"
    judge_partitions(cluster, operator)
    judge_metadata(cluster, operator)
    complaints = [line for node in cluster.nodes.values() for line in node.new_complaints()]
    assert not complaints, "\n".join(complaints)
