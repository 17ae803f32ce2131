"""What a controller counts and times of itself: Kafka's ``kafka.controller`` MBeans ask for it."""

from __future__ import annotations

from dohle.metadata.delta import Delta, PartitionChange
from dohle.metadata.image import ClusterImage
from dohle.metadata.partition import LeaderRecoveryState
from dohle.metrics.samples import Samples


class ControllerCounts:
    """Since the process was started."""

    def __init__(self) -> None:
        #: Elections of a controller that this node has heard of.
        self.new_active_controllers = 0
        self._epoch = -1
        #: Heartbeats of brokers whose turn did not come in time.
        self.timed_out_heartbeats = 0
        #: Leaders of partitions that were not in sync when they were elected.
        self.unclean_elections = 0
        #: Commands: how many were carried out, and the seconds that each waited for its turn and
        #: took to be decided and appended, with a weight of one.
        self.command_count = 0
        self.commands = Samples()

    def carried_out(self, waited_s: float, took_s: float) -> None:
        """Take note of a command."""
        self.command_count += 1
        self.commands.add(waited_s, took_s, 1.0)

    def leads(self, epoch: int) -> None:
        """Take note that somebody leads in an epoch; nobody else ever does in the same."""
        if epoch > self._epoch:
            self._epoch = epoch
            self.new_active_controllers += 1

    async def on_image(self, image: ClusterImage, delta: Delta) -> None:
        """Count the elections that have taken effect."""
        self.unclean_elections += sum(map(is_unclean_election, delta.changed_partitions))


def is_unclean_election(change: PartitionChange) -> bool:
    """Tell whether a partition has got a leader that may lack committed records."""
    before, after = change.before, change.after
    return (
        before is not None
        and after.leader_epoch > before.leader_epoch
        and after.leader >= 0
        and after.leader not in before.isr
        and after.leader_recovery_state is LeaderRecoveryState.RECOVERING
    )
