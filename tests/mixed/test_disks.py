"""Disks of brokers of both kinds: replicas move between them, and one of them fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dohle.client import Admin, PartitionReplica
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.core.uuid import uuid_from_text
from tests.cluster.images import image_at
from tests.interop.waiting import wait_until
from tests.jvm.tools import directory_id
from tests.mixed.administration import Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.load import traffic
from tests.mixed.nodes import DEADLINE_S, MixedCluster, Node

pytestmark = pytest.mark.timeout(400)


class Placement:
    """Where the replicas of a topic's first partition are, in truth and by the controller."""

    def __init__(self, cluster: MixedCluster, operator: Operator, topic: TopicName) -> None:
        self._cluster, self._operator = cluster, operator
        self._topic = topic
        self._name = f"{topic}-0"

    def directory(self, node: Node) -> Path:
        folder = node.partition_folder(self._name)
        assert folder is not None
        return folder.parent

    def other_directory(self, node: Node) -> Path:
        (other,) = [each for each in node.directories if each != self.directory(node)]
        return other

    def move(self, targets: Mapping[int, Path]) -> None:
        """Move replicas, and wait until nodes and controller agree that they are there."""
        key = TopicPartition(self._topic, 0)
        places = {PartitionReplica(key, BrokerId(id)): str(path) for id, path in targets.items()}

        async def alter(admin: Admin) -> None:
            (await admin.alter_replica_log_dirs(places)).ok()

        def is_moved() -> bool:
            known = self._known()
            return all(
                (path / self._name).exists() and known.get(id) == uuid_from_text(directory_id(path))
                for id, path in targets.items()
            )

        self._operator.ask(alter)
        wait_until(is_moved, DEADLINE_S)

    def _known(self) -> Mapping[int, Uuid]:
        """Return what the metadata log says; nothing while that changes."""
        controller = self._cluster.controllers[0]
        image = image_at(controller.directories[0], self._operator.quorum().high_watermark)
        if image is None:
            return {}
        topics = image.topics.values()
        (partition,) = [each.partitions[0] for each in topics if each.name == self._topic]
        return dict(zip(partition.replicas, partition.directories, strict=True))


def test_both_kinds_move_replicas_between_their_disks_and_say_where_they_are(
    cluster: MixedCluster, operator: Operator
) -> None:
    """AssignReplicasToDirs: the controller knows the directory of each replica."""
    with traffic(cluster, operator) as flowing:
        flowing.flow()
        placement = Placement(cluster, operator, flowing.topic)
        placement.move({node.id: placement.other_directory(node) for node in cluster.brokers})
        flowing.flow()
    judge(cluster, operator)


@pytest.mark.usefixtures("one_controller")
def test_a_leader_of_either_kind_whose_disk_fails_hands_over_and_goes_on_with_the_other(
    cluster: MixedCluster, operator: Operator
) -> None:
    """W5: a heartbeat tells what is offline, and somebody else leads it; mended, it is in sync."""
    with traffic(cluster, operator) as flowing:
        placement = Placement(cluster, operator, flowing.topic)
        for node in one_of_each(cluster):
            # The first has the metadata log, without which a node cannot go on.
            bad = node.directories[1]
            if placement.directory(node) != bad:
                placement.move({node.id: bad})
            operator.let_lead(flowing.topic, node)
            flowing.flow()
            bad.rename(away := bad.with_name("away"))
            await_without(operator, flowing.topic, node)
            flowing.flow()
            assert node.is_running
            node.stop()
            away.rename(bad)
            node.start()
            operator.await_in_sync()
            flowing.flow()
            see_complaints(cluster, bad)
    judge(cluster, operator)


def see_complaints(cluster: MixedCluster, bad: Path) -> None:
    """See that brokers have complained of a disk, and those that copy from it, and of nothing else.

    Its partitions are answered with KAFKA_STORAGE_ERROR until somebody else leads them.
    """
    complaints = [line for node in cluster.nodes.values() for line in node.new_complaints()]
    assert any(str(bad) in line for line in complaints)
    others = [line for line in complaints if str(bad) not in line]
    assert [line for line in others if "KafkaStorageException: Disk error" not in line] == []


def await_without(operator: Operator, topic: TopicName, node: Node) -> None:
    """Wait until a broker is not in the ISR of the first partition, and leads others still."""

    def is_without() -> bool:
        found = operator.partitions(topic)
        return node.id not in found[0].isr and found[0].leader_id not in (node.id, -1)

    wait_until(is_without, DEADLINE_S)
