"""Groups of both protocols whose coordinator is of one kind and then of the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from dohle.client import Admin
from dohle.core.ids import TopicName
from tests.interop.waiting import wait_until
from tests.mixed.administration import OFFSETS, Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.nodes import DEADLINE_S, MixedCluster

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
RECORDS = 60


class Group:
    """Two members that read a topic and commit what they have read."""

    def __init__(self, cluster: MixedCluster, topic: TopicName, protocol: str) -> None:
        self.name = f"{protocol}-of-{topic}"
        self._cluster, self._topic, self._protocol = cluster, topic, protocol
        self.seen: dict[bytes, int] = defaultdict(int)
        self.members = [self._member() for _ in range(2)]

    def _member(self) -> Any:
        member = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": self.name,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                # When the coordinator moves, librdkafka asks for it on a connection where a fetch
                # may be waiting, and tries a refused commit again meanwhile. The new address fails
                # what is queued for the old one, and a commit that is queued again by then makes it
                # forget the coordinator that it has just found: for ever, if answers take longer
                # than the back-off. So they do not.
                "fetch.wait.max.ms": 50,
                "retry.backoff.ms": 500,
                # Of the newer protocol the broker says it.
                **({} if self._protocol == "consumer" else {"heartbeat.interval.ms": 200}),
            }
        )
        member.subscribe([self._topic])
        return member

    def poll(self) -> None:
        """Let each member read a bit, and commit it."""
        for member in self.members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                self.seen[message.value()] += 1
                self._commit(member, message)

    def _commit(self, member: Any, message: Any) -> None:
        try:
            member.commit(message, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            # A coordinator that has just come to be still loads, or is not found yet.
            if not error.args[0].retriable():
                raise

    @property
    def is_shared(self) -> bool:
        """Whether both have partitions, and every partition has one member."""
        shares = [{each.partition for each in member.assignment()} for member in self.members]
        return all(shares) and sorted(n for share in shares for n in share) == [0, 1, 2]

    def committed(self) -> list[int]:
        """Return the offset of each partition."""
        keys = [confluent_kafka.TopicPartition(self._topic, index) for index in range(PARTITIONS)]
        found = self.members[0].committed(keys, timeout=DEADLINE_S)
        return [each.offset for each in found]


@contextmanager
def groups(cluster: MixedCluster, topic: TopicName) -> Iterator[list[Group]]:
    made = [Group(cluster, topic, protocol) for protocol in ("classic", "consumer")]
    try:
        yield made
    finally:
        for group in made:
            for member in group.members:
                member.close()


def write(cluster: MixedCluster, topic: TopicName, name: str) -> list[bytes]:
    values = [b"%s %d" % (name.encode(), number) for number in range(RECORDS)]
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    return values


def test_groups_go_on_when_their_coordinator_is_of_the_other_kind(
    cluster: MixedCluster, operator: Operator
) -> None:
    """H1, H2: the next coordinator knows members and offsets from what the last one has written."""
    kafka, dohle = one_of_each(cluster)
    topic = operator.create("groups", PARTITIONS)
    written: list[bytes] = []
    operator.let_lead(OFFSETS, kafka)
    with groups(cluster, topic) as both:

        def all_seen() -> bool:
            for group in both:
                group.poll()
            return all(group.is_shared and group.seen.keys() == set(written) for group in both)

        for coordinator in (kafka, dohle, kafka):
            operator.let_lead(OFFSETS, coordinator)
            written += write(cluster, topic, f"{coordinator.kind.value} {len(written)}")
            wait_until(all_seen, DEADLINE_S)
            for group in both:
                assert coordinator_of(operator, group) == coordinator.id
                assert [value for value, times in group.seen.items() if times > 1] == []
                wait_until(
                    lambda group=group: (  # type: ignore[misc]
                        group.committed() == list(operator.ends(topic).values())
                    ),
                    DEADLINE_S,
                )
    judge(cluster, operator)


def coordinator_of(operator: Operator, group: Group) -> int:
    async def describe(admin: Admin) -> int:
        return (await admin.describe_groups([group.name])).ok()[group.name].coordinator_id

    return operator.ask(describe)
