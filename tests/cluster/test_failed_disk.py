"""A directory of a real broker fails while it leads: others go on without it."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dohle.cli.local_cluster import LocalNode
from dohle.testing import Cluster
from tests.interop.waiting import wait_until

DEADLINE_S = 60.0
#: No file of the broker may become larger than this: only the log of one topic would.
FILE_BYTES_MAX = 1 << 20


class TwoDirectories(Cluster):
    """Nodes with two directories each; the metadata log is in the first."""

    def _write_config(self, node: LocalNode) -> None:
        super()._write_config(node)
        with self.config_file(node.id).open("a") as file:
            file.write(f"log.dirs={node.data},{node.data}-2\nmetadata.log.dir={node.data}\n")


@pytest.fixture
def cluster() -> Iterator[TwoDirectories]:
    config = {"min.insync.replicas": "2"}
    with TwoDirectories(nodes=3, config=config) as running:
        yield running


def leader_of(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


def test_a_leader_whose_directory_fails_hands_over_and_goes_on_with_the_other(
    cluster: TwoDirectories,
) -> None:
    """W5, with real files: writes fail with EFBIG, as on a disk that takes no more."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    # The second one goes to the other directory, which has fewer logs.
    for topic in ("small", "large"):
        (created,) = admin.create_topics([NewTopic(topic, 1, 3)]).values()
        created.result()
    wait_until(lambda: min(leader_of(admin, "small"), leader_of(admin, "large")) > 0, DEADLINE_S)
    bad = leader_of(admin, "large")
    assert [path.parent.name for path in cluster.data(bad).parent.glob("*/large-0")] == ["data-2"]
    _, hard = resource.prlimit(cluster.pid(bad), resource.RLIMIT_FSIZE)
    resource.prlimit(cluster.pid(bad), resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    failures: list[KafkaError] = []
    offsets: dict[str, list[int]] = {"small": [], "large": []}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            offsets[str(message.topic())].append(int(message.offset() or 0))

    for number in range(300):
        producer.produce("large", b"%09d" % number * 1000, partition=0, on_delivery=delivered)
        producer.produce("small", b"%09d" % number, partition=0, on_delivery=delivered)
        producer.poll(0.002)
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    assert offsets == {"small": list(range(300)), "large": list(range(300))}
    assert leader_of(admin, "large") not in (bad, -1)
    assert "goes offline" in cluster.log(bad)
    assert bad in cluster.serving
    partition = admin.list_topics("small", timeout=10).topics["small"].partitions[0]
    assert set(partition.isrs) == {1, 2, 3}
