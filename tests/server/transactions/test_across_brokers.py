"""Transactions whose coordinator, partitions and groups are on different brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from dohle.client import (
    Admin,
    Cluster,
    Consumer,
    ConsumerConfig,
    OffsetAndMetadata,
    Producer,
    UpgradeType,
)
from dohle.client.group.membership import GroupMetadata
from dohle.client.net.connection import Connection
from dohle.coordination.partitioning import partition_for
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TransactionalId
from dohle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.server.transactions.brokers_stage import (
    PARTITIONS,
    TOPIC,
    WITHIN_S,
    BrokersStage,
    Gate,
    on_brokers,
    send_to_all,
    transactional,
    where,
)


def values(name: bytes) -> set[bytes]:
    return {b"%s-%d" % (name, number) for number in range(PARTITIONS)}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_over_partitions_of_all_brokers_is_seen_whole_or_not_at_all(
    version: int,
) -> None:
    """H6, H7: each broker leads one partition; partitions are added by the leaders (2) or by the
    producer, and then verified by the leaders.
    """

    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, transactional("tx")) as producer:
            await producer.init_transactions()
            for number, commit in enumerate((True, False, True)):
                producer.begin_transaction()
                await send_to_all(producer, b"%d" % number)
                await (producer.commit_transaction() if commit else producer.abort_transaction())

    with on_brokers() as stage:
        if version < 2:
            downgrade = {"transaction.version": version}
            stage.run(
                lambda cluster: Admin(cluster).update_features(
                    downgrade, upgrade_type=UpgradeType.SAFE_DOWNGRADE
                )
            )
        stage.run(work)
        stage.await_read(values(b"0") | values(b"2"))
        for node in stage.cluster.nodes.values():
            assert len(node.broker.txn_markers) == 0


def test_an_open_transaction_holds_readers_back_at_the_next_leader_too() -> None:
    """LSO on followers: their producers' state is made of the batches that they copy."""
    gate = Gate()

    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, transactional("tx")) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await send_to_all(producer, b"x")
            await gate.passed()
            await producer.commit_transaction()

    with on_brokers() as stage:
        finish = stage.begin(work)
        stage.world.run_until(lambda: gate.is_reached, WITHIN_S)
        coordinator = stage.leader(TRANSACTION_STATE, partition_for("tx", 3))
        old = next(each for each in stage.cluster.machines if each != coordinator)
        index = stage.partition_at(old)
        stage.cluster.kill(old)
        stage.await_leader_but(TOPIC, index, old)
        log = stage.led(TOPIC, index).log
        stage.world.run_until(lambda: log.high_watermark == log.log_end_offset == 1, WITHIN_S)
        assert log.last_stable_offset == 0
        gate.is_open = True
        finish()
        stage.await_read(values(b"x"))
        assert log.last_stable_offset == log.log_end_offset == 2


class Decided(NamedTuple):
    """A transaction that is to be committed, and whose coordinator cannot reach a leader."""

    transactional_id: str
    shard: int
    #: The partition that has no marker yet.
    partition: int
    #: Waits for the producer.
    finish: Callable[[], Any]


def decided_but_not_marked(stage: BrokersStage) -> Decided:
    coordinator, leader = stage.others
    transactional_id = stage.name_at(TRANSACTION_STATE, coordinator, "tx")
    index = stage.partition_at(leader)
    gate = Gate()

    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, transactional(transactional_id)) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await send_to_all(producer, b"x", index)
            await gate.passed()
            await producer.commit_transaction()

    finish = stage.begin(work)
    stage.world.run_until(lambda: gate.is_reached, WITHIN_S)
    stage.cut(coordinator, leader)
    gate.is_open = True
    markers = stage.cluster.nodes[coordinator].broker.txn_markers
    stage.world.run_until(lambda: len(markers) == 1, WITHIN_S)
    stage.world.run_for(1)
    log = stage.led(TOPIC, index).log
    assert (len(markers), log.last_stable_offset, log.log_end_offset) == (1, 0, 1)
    return Decided(transactional_id, partition_for(transactional_id, 3), index, finish)


def test_the_next_coordinator_writes_the_markers_that_are_missing() -> None:
    """H3: it loads the decision and goes on, with its own epoch."""
    with on_brokers() as stage:
        _, shard, index, finish = decided_but_not_marked(stage)
        old = stage.leader(TRANSACTION_STATE, shard)
        stage.cluster.kill(old)
        stage.world.network.mend()
        stage.await_leader_but(TRANSACTION_STATE, shard, old)
        finish()
        stage.await_read({b"x-%d" % index})
        (entry,) = stage.led(TOPIC, index).log.producer_state.producers.values()
        assert entry.coordinator_epoch == stage.led(TRANSACTION_STATE, shard).leader_epoch > 0


def test_markers_go_to_whoever_leads_the_partition_next() -> None:
    """H6: 6 and silence: again to the leader that is then known."""
    with on_brokers() as stage:
        _, _, index, finish = decided_but_not_marked(stage)
        old = stage.leader(TOPIC, index)
        stage.cluster.kill(old)
        stage.await_leader_but(TOPIC, index, old)
        finish()
        stage.await_read({b"x-%d" % index})


def test_a_deleted_partition_needs_no_marker() -> None:
    """H6: topic gone: the partition is dropped, and the transaction complete."""
    with on_brokers() as stage:
        transactional_id, shard, _, finish = decided_but_not_marked(stage)
        stage.run(lambda cluster: Admin(cluster).delete_topics([TOPIC]))
        coordinator = stage.leader(TRANSACTION_STATE, shard)
        markers = stage.cluster.nodes[coordinator].broker.txn_markers
        stage.world.run_until(lambda: len(markers) == 0, WITHIN_S)
        finish()
        found = stage.run(lambda cluster: Admin(cluster).describe_transactions([transactional_id]))
        assert found.ok()[transactional_id].state == "CompleteCommit"


def test_a_producer_tries_again_until_the_coordinator_can_be_asked() -> None:
    """H7: 13 becomes 19, which producers retry; each record is there once."""
    with on_brokers() as stage:
        coordinator, leader = stage.others
        transactional_id = stage.name_at(TRANSACTION_STATE, coordinator, "tx")
        index = stage.partition_at(leader)
        gate = Gate()

        async def work(cluster: Cluster) -> None:
            async with Producer(cluster, transactional(transactional_id)) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await gate.passed()
                await send_to_all(producer, b"x", index)
                await producer.commit_transaction()

        finish = stage.begin(work)
        stage.world.run_until(lambda: gate.is_reached, WITHIN_S)
        stage.cut(coordinator, leader)
        gate.is_open = True
        stage.world.run_for(8)
        log = stage.led(TOPIC, index).log
        assert log.log_end_offset == 0, "nothing is taken of a transaction that nobody knows of"
        stage.world.network.mend()
        finish()
        stage.await_read({b"x-%d" % index})
        assert log.log_end_offset == 2


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("dies", ["nobody", "group coordinator", "transaction coordinator"])
def test_h20_offsets_of_a_group_are_committed_with_the_transaction(commit: bool, dies: str) -> None:
    """H1-H3, H6: the group's coordinator holds them back until it has the marker."""
    gate = Gate()
    with on_brokers() as stage:
        coordinator, groups = stage.others
        transactional_id = stage.name_at(TRANSACTION_STATE, coordinator, "tx")
        group = GroupId(stage.name_at(CONSUMER_OFFSETS, groups, "g"))

        async def work(cluster: Cluster) -> None:
            async with Producer(cluster, transactional(transactional_id)) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await send_to_all(producer, b"x")
                await producer.send_offsets_to_transaction(
                    {where(0): OffsetAndMetadata(42)}, GroupMetadata(group)
                )
                await gate.passed()
                await (producer.commit_transaction() if commit else producer.abort_transaction())

        async def committed(cluster: Cluster) -> int | None:
            config = ConsumerConfig(group_id=group, enable_auto_commit=False)
            async with Consumer(cluster, config) as consumer:
                found = (await consumer.committed([where(0)])).get(where(0))
                return None if found is None else found.offset

        finish = stage.begin(work)
        stage.world.run_until(lambda: gate.is_reached, WITHIN_S)
        asked = stage.begin(committed)
        stage.world.run_for(2)
        if dies != "nobody":
            stage.cluster.kill(groups if dies == "group coordinator" else coordinator)
        gate.is_open = True
        finish()
        # Asked before it was decided, it waits for the decision (88).
        assert asked() == stage.run(committed) == (42 if commit else None)
        stage.await_read(values(b"x") if commit else set())


def test_every_broker_names_the_same_coordinators_and_gives_out_ids_of_its_own() -> None:
    """H2: who is not the coordinator says so (16). H4: internal topics by the controller, with
    their replication factor. H5: each broker has its own block of producer ids.
    """

    def found(connection: Connection) -> Awaitable[Any]:
        request = FindCoordinatorRequest(coordinator_keys=("tx",), key_type=1)
        return connection.request(request, FindCoordinatorResponse)

    def init(
        transactional_id: TransactionalId | None,
    ) -> Callable[[Connection], Awaitable[Any]]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        return lambda connection: connection.request(request, InitProducerIdResponse)

    with on_brokers() as stage:
        coordinator = stage.leader(TRANSACTION_STATE, partition_for("tx", 3))
        blocks = set()
        for node_id in stage.cluster.machines:
            (named,) = stage.ask(node_id, found).coordinators
            assert (named.error_code, named.node_id) == (ErrorCode.NONE, coordinator)
            blocks.add(stage.ask(node_id, init(None)).producer_id // 1000)
            answer = stage.ask(node_id, init(TransactionalId("tx")))
            expected = ErrorCode.NONE if node_id == coordinator else ErrorCode.NOT_COORDINATOR
            assert answer.error_code == expected
        assert len(blocks) == 3
        for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            image = stage.cluster.image(topic, 0)
            assert image is not None
            assert len(image.replicas) == 3
