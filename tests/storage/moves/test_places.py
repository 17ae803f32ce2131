"""Which folder is taken for a partition's log at start, whatever moves and disks have left."""

from __future__ import annotations

import errno

from dohle.core.errors import ErrorCode
from dohle.core.ids import Uuid
from dohle.storage.config import LogConfig
from dohle.storage.directory.partition_dirs import future_dir_name, write_partition_metadata
from dohle.storage.moves.places import ReplicaAssignment
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    PARTITION,
    TOPIC_ID,
    Node,
    append,
    data,
    log_records,
    offsets,
    refuses,
)

OTHER_TOPIC = Uuid(bytes(reversed(range(16))))
UNASSIGNED = Uuid(bytes(15) + b"\x01")
FUTURE = future_dir_name(PARTITION, Uuid(bytes([7]) * 16))
LIVE = "orders-0"


def stopped_node(*, records: int = 2, clean: bool = False) -> tuple[Node, dict[str, Uuid]]:
    """A node with a log in the first of two directories, and the directories' ids."""
    node = Node(LogConfig(retention_ms=-1), paths=("/a", "/b"))
    append(node.log, *(data() for _ in range(records)))
    node.log.flush()
    ids = {one.path: one.directory_id for one in node.manager.directories}
    if clean:
        node.stop()
    else:
        node.kill()
    return node, ids


def copy(node: Node, source: str, target: str, topic_id: Uuid = TOPIC_ID) -> None:
    """Copy a partition's folder, whole and durably."""
    node.fs.make_dirs(target)
    for entry in node.fs.list_dir(source):
        node.disk.put(f"{target}/{entry.name}", node.fs.read(f"{source}/{entry.name}"))
    write_partition_metadata(node.fs, target, topic_id)
    node.disk.settle()


def start(node: Node, place: Uuid | None, topic_id: Uuid = TOPIC_ID) -> None:
    assigned = None if place is None else ReplicaAssignment(topic_id, place)
    node.assignment_of = lambda _: assigned
    node.start()


def folders(node: Node, path: str) -> list[str]:
    return [entry.name for entry in node.fs.list_dir(path) if entry.is_dir]


def test_of_two_logs_the_one_counts_that_the_metadata_names() -> None:
    for winner, loser in (("/a", "/b"), ("/b", "/a")):
        node, ids = stopped_node()
        copy(node, "/a/orders-0", "/b/orders-0")
        start(node, ids[winner])
        assert node.log.directory == f"{winner}/orders-0"
        assert offsets(log_records(node.log)) == [0, 1]
        (aside,) = folders(node, loser)
        assert aside.endswith("-stray")
        node.restart(clean=True)
        assert node.log.directory == f"{winner}/orders-0"


def test_a_log_of_another_topic_of_the_name_is_set_aside() -> None:
    node, _ = stopped_node()
    copy(node, "/a/orders-0", "/b/orders-0", OTHER_TOPIC)
    start(node, UNASSIGNED)
    assert node.log.directory == "/a/orders-0"
    assert folders(node, "/b")[0].endswith("-stray")


def test_a_log_of_another_topic_does_not_stand_in_a_future_replicas_way() -> None:
    node, ids = stopped_node()
    copy(node, "/a/orders-0", f"/b/{FUTURE}")
    write_partition_metadata(node.fs, "/a/orders-0", OTHER_TOPIC)
    start(node, ids["/b"])
    assert node.log.directory == "/b/orders-0"
    assert offsets(log_records(node.log)) == [0, 1]
    assert folders(node, "/a")[0].endswith("-stray")


def test_the_metadata_log_is_left_alone() -> None:
    node, _ = stopped_node()
    for path in ("/a", "/b"):
        copy(node, "/a/orders-0", f"{path}/__cluster_metadata-0")
    start(node, None)
    for path in ("/a", "/b"):
        assert "__cluster_metadata-0" in folders(node, path)


def test_two_logs_of_a_topic_that_is_gone_are_both_set_aside() -> None:
    node, _ = stopped_node()
    copy(node, "/a/orders-0", "/b/orders-0")
    start(node, None)
    for path in ("/a", "/b"):
        assert [name[-6:] for name in folders(node, path)] == ["-stray"]


def test_beside_its_log_a_future_replica_is_begun_anew() -> None:
    for place in ("/a", "/b"):
        node, ids = stopped_node()
        copy(node, "/a/orders-0", f"/b/{FUTURE}")
        start(node, ids[place])
        assert node.log.directory == "/a/orders-0"
        ((partition, target),) = node.manager.places.interrupted
        assert (partition, target.path) == (PARTITION, "/b")
        assert target.futures.paths == {PARTITION: f"/b/{FUTURE}"}
        folder = target.futures.begin(PARTITION, TOPIC_ID)
        node.manager.run_due()
        assert [f"/b/{name}" for name in folders(node, "/b")] == [folder]


def test_a_future_replica_takes_the_place_of_a_log_that_is_gone() -> None:
    """D5."""
    for clean in (True, False):
        node, ids = stopped_node(clean=clean)
        copy(node, "/a/orders-0", f"/b/{FUTURE}")
        node.disk.remove_tree("/a/orders-0")
        start(node, ids["/b"])
        assert node.log.directory == "/b/orders-0"
        assert offsets(log_records(node.log)) == [0, 1]
        # Whoever stopped: its indexes were not closed, so it was scanned.
        assert node.manager.directories[1].futures.promoted == {PARTITION}


def test_a_future_replica_that_the_metadata_does_not_name_is_left_alone() -> None:
    node, ids = stopped_node()
    copy(node, "/a/orders-0", f"/b/{FUTURE}")
    node.disk.remove_tree("/a/orders-0")
    start(node, ids["/a"])
    assert folders(node, "/b") == [FUTURE]


def test_a_future_replica_of_a_topic_that_is_gone_is_set_aside() -> None:
    for place, topic_id in ((None, TOPIC_ID), (UNASSIGNED, OTHER_TOPIC)):
        node, _ = stopped_node()
        copy(node, "/a/orders-0", f"/b/{FUTURE}")
        start(node, place, topic_id)
        assert folders(node, "/b")[0].endswith("-stray")


def test_what_may_be_an_old_log_is_not_served_while_the_named_directory_is_offline() -> None:
    node, ids = stopped_node()
    copy(node, "/a/orders-0", "/b/orders-0")
    fault = node.disk.fail([Operation.READ, Operation.OPEN], "/b", errno.EIO)
    start(node, ids["/b"])
    assert list(node.manager.offline_directories) == ["/b"]
    refuses(
        ErrorCode.KAFKA_STORAGE_ERROR,
        lambda: node.manager.get_or_create(PARTITION, TOPIC_ID, node.config),
    )
    node.kill()
    node.disk.heal(fault)
    start(node, ids["/b"])
    assert node.manager.get_or_create(PARTITION, TOPIC_ID, node.config).directory == "/b/orders-0"


def test_a_directory_that_fails_while_places_are_settled_goes_offline() -> None:
    node, ids = stopped_node()
    copy(node, "/a/orders-0", "/b/orders-0")
    node.disk.fail(Operation.RENAME, lambda path: path == "/b/orders-0", errno.EIO)
    start(node, ids["/a"])
    assert list(node.manager.offline_directories) == ["/b"]
    assert node.log.directory == "/a/orders-0"
