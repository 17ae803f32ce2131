"""A node with a remote tier, in the simulator, that dies again and again (T15a, T27)."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from random import Random

import pytest

from dohle.client import Beginning, Cluster, Consumer, ConsumerConfig, Producer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.testing.simulation.disk_faults import Operation
from dohle.tiering.segments import METADATA_TOPIC, SegmentState, SegmentUpdate
from tests.server.tier.tiered_world import COUNT, KEY, TieredWorld


@pytest.mark.parametrize("seed", range(12))
def test_all_that_was_acknowledged_is_read_after_kills_at_any_moment(seed: int) -> None:
    """T27.1-2: while segments are copied, told of, and deleted here."""
    tiered, rng = TieredWorld(seed), Random(seed)
    try:
        tiered.produce()
        for _ in range(5):
            tiered.world.run_for(rng.expovariate(4))
            tiered.kill()
        tiered.wait_until_only_remote()
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


@pytest.mark.parametrize("step", range(1, 90, 6))
def test_a_copy_that_dies_at_any_disk_operation_is_made_again(step: int) -> None:
    """T15a, T27.1-2: killed at this operation of the disk, which the store is on as well."""
    tiered = TieredWorld(7)
    try:
        tiered.produce()
        tiered.machine.files.cut_after_operations(step)
        life = tiered.machine.life
        tiered.world.run_for(3)
        assert tiered.machine.life > life or step > 60
        tiered.machine.files.cut_never()
        tiered.wait_until_only_remote()
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


@pytest.mark.parametrize("seed", range(6))
def test_what_expires_is_gone_for_good_however_the_node_dies(seed: int) -> None:
    """T7, T27.3, T27.6: the log start does not fall, and no object is left that nobody knows."""
    tiered, rng = TieredWorld(seed, retention_bytes="2000"), Random(seed)
    try:
        tiered.produce()
        highest = 0
        for _ in range(4):
            tiered.world.run_for(rng.expovariate(3))
            highest = max(highest, tiered.log.log_start_offset)
            tiered.kill()
        tiered.world.run_until(lambda: tiered.log.log_start_offset > COUNT // 2, 60)
        tiered.world.run_for(5)
        start = tiered.log.log_start_offset
        assert start >= highest
        wanted = {offset: text for offset, text in tiered.acknowledged.items() if offset >= start}
        assert tiered.read() == wanted
        tiered.check_tier()
    finally:
        tiered.close()


def test_segments_that_were_not_on_the_disk_when_the_node_died_become_remote_all_the_same() -> None:
    """T3: though nothing is appended after the recovery."""
    tiered = TieredWorld(5)
    try:
        tiered.machine.disk.work_mean_ns *= 100
        tiered.produce()
        tiered.kill()
        tiered.machine.disk.work_mean_ns //= 100
        tiered.wait_until_only_remote()
        assert tiered.read() == tiered.acknowledged
    finally:
        tiered.close()


def test_a_segment_without_a_producer_snapshot_and_all_behind_it_stay_on_the_disk() -> None:
    """T3.6, T27.2: it cannot be copied, and is not taken for remote because later ones are."""
    tiered = TieredWorld(6)
    try:
        tiered.machine.disk.work_mean_ns *= 100
        tiered.produce()
        snapshots = tiered.log.producer_state.snapshots
        bases = tiered.log.segments.base_offsets
        tiered.machine.disk.work_mean_ns //= 100
        lost = next(base for base in bases[1:] if base > tiered.log.highest_remote_offset + 1)
        snapshots.remove(lost)
        tiered.world.run_for(10)
        assert tiered.log.highest_remote_offset < lost
        assert tiered.log.segments.first.base_offset < lost
        assert tiered.read() == tiered.acknowledged
    finally:
        tiered.close()


def test_leader_epochs_that_are_lost_with_their_file_come_back_from_the_store() -> None:
    """T15a: without them nothing of the remote part could be found, nor told from leftovers."""
    tiered = TieredWorld(3)
    try:
        tiered.produce()
        tiered.kill()
        tiered.produce(10)
        tiered.wait_until_only_remote()
        known = tiered.log.leader_epochs.entries
        tiered.machine.kill()
        tiered.machine.files.put("/data/t-0/leader-epoch-checkpoint", b"damaged")
        tiered.start()
        tiered.world.run_until(lambda: tiered.log.leader_epochs.entries[:1] == known[:1], 30)
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


def test_the_log_begins_behind_what_a_leader_of_before_has_deleted() -> None:
    """T3.1, T27.3: it did not know yet that it leads no more; its records come all the same."""
    tiered = TieredWorld(9)
    try:
        tiered.produce()
        tiered.wait_until_only_remote()
        tier = tiered.node.broker.tier
        assert tier is not None
        cache = tier.feed.cache(tier.led[0].key)
        assert cache is not None
        gone = min(cache, key=lambda each: each.start_offset)

        async def program(cluster: Cluster) -> None:
            async with Producer(cluster) as producer:
                for state in (
                    SegmentState.DELETE_SEGMENT_STARTED,
                    SegmentState.DELETE_SEGMENT_FINISHED,
                ):
                    update = SegmentUpdate(gone.segment_id, state, 7, 0)
                    await producer.send(METADATA_TOPIC, update.encode(), partition=0)

        tiered.run(program)
        tiered.world.run_for(2)
        start = gone.end_offset + 1
        assert tiered.log.log_start_offset == start
        assert tiered.read() == {o: v for o, v in tiered.acknowledged.items() if o >= start}
    finally:
        tiered.close()


def test_a_consumer_does_not_ask_without_pause_while_it_is_not_known_what_is_remote() -> None:
    """T12, T27.8: it is answered nothing, after remote.fetch.max.wait.ms."""
    tiered = TieredWorld(10)
    try:
        tiered.produce()
        tiered.wait_until_only_remote()
        broker = tiered.node.broker
        assert broker.tier is not None
        fetches = broker.requests.of("FetchConsumer")
        broker.tier.feed.unassign(broker.tier.led[0].key)

        async def program(cluster: Cluster) -> None:
            async with Consumer(cluster, ConsumerConfig()) as consumer:
                await consumer.assign({KEY: Beginning()})
                with suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await anext(aiter(consumer))

        before = fetches.by_version.total()
        tiered.run(program)
        # Of which one or two a second are the broker's own, for the metadata.
        assert fetches.by_version.total() - before < 40
    finally:
        tiered.close()


def test_metadata_that_has_lost_its_end_is_read_again() -> None:
    """T9, T27.1: after an unclean election new records come at offsets that were read before."""
    tiered = TieredWorld(11)
    try:
        tiered.produce()
        tiered.wait_until_only_remote()
        metadata = tiered.node.broker.partitions.get(METADATA_TOPIC, 0)
        assert metadata is not None
        metadata.log.truncate_to(metadata.log.log_end_offset - 6)
        tiered.node.broker.commits.note_end(metadata)
        tiered.produce()
        tiered.world.run_until(lambda: tiered.log.segments.first.base_offset > 3 * COUNT // 2, 120)
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


def test_a_follower_is_not_kept_waiting_by_a_store_that_hangs() -> None:
    """T14, T27.8: it copies other partitions meanwhile, and comes back for what is read then."""
    tiered = TieredWorld(8)
    try:
        tiered.produce()
        tiered.wait_until_only_remote()
        tier, loop = tiered.node.broker.tier, tiered.machine.loop
        partition = tiered.node.broker.partitions.get(*KEY)
        assert tier is not None
        assert partition is not None
        tiered.machine.disk.work_mean_ns *= 20_000
        for _ in range(2):
            waiting = loop.create_task(tier.state_at(partition, 0, 10))
            tiered.world.run_for(1)
            with pytest.raises(KafkaError) as refused:
                waiting.result()
            assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
        tiered.world.run_for(100)
        found = loop.create_task(tier.state_at(partition, 0, 10))
        tiered.world.run_for(1)
        offset, epochs, _ = found.result()
        assert offset > 10
        assert epochs == [(0, 0)]
    finally:
        tiered.close()


_STORE_OPERATIONS = (
    Operation.WRITE,
    Operation.SYNC,
    # The object is there, but who has put it is told that it failed: a lost answer.
    Operation.SYNC_DIR,
    Operation.RENAME,
    Operation.REMOVE,
    Operation.READ,
    Operation.OPEN,
)


@pytest.mark.parametrize("seed", range(8))
def test_a_store_that_fails_now_and_then_loses_nothing_and_keeps_no_strays(seed: int) -> None:
    """T3.7, T15a, T27.6, T27.8: errors, torn writes, answers that are lost, and a slow store."""
    tiered, rng = TieredWorld(seed), Random(seed)
    try:
        tiered.machine.disk.work_mean_ns *= 20
        for _ in range(4):
            fault = tiered.machine.files.fail(
                rng.sample(_STORE_OPERATIONS, 3),
                "/store",
                errno.EIO,
                partial_bytes=rng.randrange(100),
                skip=rng.randrange(6),
                times=rng.randrange(1, 12),
            )
            tiered.produce(COUNT // 4)
            tiered.world.run_for(rng.expovariate(1))
            tiered.machine.files.heal(fault)
        tiered.wait_until_only_remote()
        assert tiered.machine.life == 1
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


def test_segments_whose_leader_epochs_are_lost_stay_on_the_disk() -> None:
    """T3.5, T27.2: what is remote is found by its epoch, so nobody would find them there."""
    tiered = TieredWorld(4, remote_log_copy_disable="true", local_retention_ms="-2")
    try:
        tiered.produce()
        bases = tiered.log.segments.base_offsets
        tiered.world.run_until(lambda: tiered.log.recovery_point >= bases[-2], 300)
        tiered.machine.kill()
        tiered.machine.files.remove("/data/t-0/leader-epoch-checkpoint")
        tiered.start()
        tiered.alter(remote_log_copy_disable="false", local_retention_ms="1")
        tiered.world.run_for(10)
        assert not tiered.objects()
        assert tiered.read() == tiered.acknowledged
    finally:
        tiered.close()
