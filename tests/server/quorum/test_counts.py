"""What a controller counts of itself (observability 1.1: ``kafka.controller``)."""

from __future__ import annotations

import asyncio

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.delta import Delta, PartitionChange
from dohle.metadata.image import EMPTY_IMAGE
from dohle.metadata.partition import LeaderRecoveryState, PartitionImage
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from dohle.server.quorum.counts import ControllerCounts
from tests.server.quorum.scripted import Scene, play, settle

RECOVERED, RECOVERING = LeaderRecoveryState


def partition(
    leader: int, isr: tuple[int, ...], epoch: int, state: LeaderRecoveryState = RECOVERED
) -> PartitionImage:
    return PartitionImage(
        replicas=(BrokerId(1), BrokerId(2)),
        directories=(ZERO_UUID, ZERO_UUID),
        isr=tuple(map(BrokerId, isr)),
        leader=BrokerId(leader),
        leader_epoch=epoch,
        partition_epoch=epoch,
        leader_recovery_state=state,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (partition(1, (1,), 0), partition(2, (2,), 1, RECOVERING), 1),
        (partition(-1, (1,), 1), partition(2, (2,), 2, RECOVERING), 1),
        (partition(1, (1, 2), 0), partition(2, (2,), 1), 0),
        # The last one that was in sync comes back before it has recovered.
        (partition(-1, (2,), 2, RECOVERING), partition(2, (2,), 3, RECOVERING), 0),
        # Its follower has caught up.
        (partition(2, (2,), 2, RECOVERING), partition(2, (2, 1), 2, RECOVERING), 0),
        (None, partition(1, (1, 2), 0), 0),
    ],
    ids=["at once", "later", "clean", "come back", "caught up", "new"],
)
def test_an_election_is_unclean_if_the_leader_was_not_in_sync(
    before: PartitionImage | None, after: PartitionImage, expected: int
) -> None:
    """Alert "unclean elections > 0"; KIP-704: such a leader is recovering."""
    counts = ControllerCounts()
    change = PartitionChange(TopicName("t"), ZERO_UUID, 0, before, after)
    asyncio.run(counts.on_image(EMPTY_IMAGE, Delta(changed_partitions=(change,))))
    assert counts.unclean_elections == expected


def test_elections_of_controllers_are_counted_once_each_also_those_of_others() -> None:
    """NewActiveControllersCount: that nobody leads is no election."""

    async def scenario(scene: Scene) -> None:
        counts = scene.controller.counts
        await scene.lead()
        await scene.quorum.elect(None)
        await scene.quorum.elect(BrokerId(9))
        await scene.controller.on_leader_change(scene.quorum.leader)
        assert counts.new_active_controllers == 2

    play(scenario)


def test_commands_are_timed_and_late_heartbeats_are_counted() -> None:
    """EventQueueTimeMs, EventQueueProcessingTimeMs, TimedOutBrokerHeartbeatCount."""

    async def scenario(scene: Scene) -> None:
        counts = scene.controller.counts
        await scene.lead()
        epoch = await scene.start_broker(2)
        before = counts.command_count
        scene.create("t")
        await settle()
        await scene.quorum.commit()
        assert counts.command_count == before + 1
        waited, took, _ = counts.commands.columns()
        assert len(waited) == len(took) == counts.command_count
        async with scene.controller._turn:
            beat = scene.begin(scene.beat(2, epoch), BrokerHeartbeatResponse)
            await asyncio.sleep(1.2)
            assert beat.result().error_code == ErrorCode.REQUEST_TIMED_OUT
        assert counts.timed_out_heartbeats == 1
        assert counts.command_count == before + 1

    play(scenario)
