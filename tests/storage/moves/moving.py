"""What the tests of moves share: a node with two directories, and the steps of a move."""

from __future__ import annotations

from dohle.storage.config import LogConfig
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.moves.move import ReplicaMove
from dohle.storage.moves.places import ReplicaAssignment
from tests.storage.logs import BATCH_SIZE, PARTITION, TOPIC_ID, Node

SMALL = LogConfig(segment_bytes=5 * BATCH_SIZE, index_interval_bytes=100, retention_ms=-1)


def two_directories(config: LogConfig = SMALL) -> Node:
    node = Node(config, paths=("/a", "/b"))
    assert node.log.directory == "/a/orders-0"
    return node


def directory(node: Node, path: str) -> LogDirectory:
    return next(one for one in node.manager.directories if one.path == path)


def begin(node: Node, path: str = "/b") -> ReplicaMove:
    source = node.manager.directory_of(PARTITION)
    assert source is not None
    return ReplicaMove(node.log, source, directory(node, path), TOPIC_ID)


def catch_up(move: ReplicaMove, bytes_max: int = 250) -> None:
    while (job := move.next_job(bytes_max)) is not None:
        move.complete(job, job.run())


def assign(node: Node, path: str) -> None:
    """Have the metadata log say that the replica is in a directory."""
    place = ReplicaAssignment(TOPIC_ID, directory(node, path).directory_id)
    node.assignment_of = lambda _: place
