"""The replicas of a broker's partitions: those it copies, and those that copy from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dohle.core.config.definition import ConfigValues
from dohle.core.config.static import BrokerConfig
from dohle.core.host import Host
from dohle.core.ids import BrokerId
from dohle.metadata.image import BrokerRegistration
from dohle.replication.follower_fetches import FetchLimits
from dohle.replication.throttle import ReplicationQuota
from dohle.security.client import ClientSecurity
from dohle.server.channel import ControllerChannel, ImageSource
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.partitions.commits import Commits
from dohle.server.partitions.partitions import Partition
from dohle.server.replicas.context import FetcherContext, FetcherSettings, TierState
from dohle.server.replicas.fetchers import Fetchers
from dohle.server.replicas.isr_changes import IsrChanges

_FETCHERS = "num.replica.fetchers"


class Replicas:
    """Kept in step with the image by the broker; a partition with one replica costs nothing."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        *,
        host: Host,
        turns: Turns,
        images: ImageSource,
        commits: Commits,
        channel: ControllerChannel,
        broker_values: Callable[[], ConfigValues],
        quota: ReplicationQuota,
        tier_state: TierState,
        security: ClientSecurity,
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._commits = commits
        self._broker_values = broker_values
        context = FetcherContext(
            loop,
            host,
            turns,
            config.node_id,
            config.placement.inter_broker_listener_name,
            images,
            commits,
            _settings(config),
            quota,
            tier_state,
            security,
        )
        self.fetchers = Fetchers(context, config.get_int(_FETCHERS))
        self._isr_changes = IsrChanges(
            loop, channel, commits, config.node_id, lambda: context.broker_epoch
        )
        commits.on_wanted_isr = self._isr_changes.ask
        #: The partitions with followers that this broker leads.
        self._led: dict[Partition, None] = {}
        self._checking: asyncio.Task[None] | None = None

    # What the image says

    def brokers_changed(
        self, changed: Iterable[tuple[BrokerId, BrokerRegistration | None]]
    ) -> None:
        """Take in which brokers may be in an ISR."""
        brokers = self._commits.brokers
        for broker_id, broker in changed:
            if broker is not None and broker.is_active:
                brokers[broker_id] = broker.epoch
            else:
                brokers.pop(broker_id, None)

    def update(self, partition: Partition) -> None:
        """Take in who leads a partition, and where its replicas are."""
        is_only = len(partition.image.replicas) == 1 and partition.is_led
        if is_only or not partition.log.disk.is_online():
            self.forget(partition)
            return
        if partition.is_led:
            self._led[partition] = None
            self._check_lag_now_and_then()
        else:
            self._led.pop(partition, None)
        self.fetchers.update(partition)

    def forget(self, partition: Partition) -> None:
        """Take in that a partition is not here any more, cannot be used, or is the only replica."""
        self._led.pop(partition, None)
        self.fetchers.forget(partition)

    def reconfigured(self) -> None:
        """Let changed settings of the broker take effect."""
        self.fetchers.resize(self._broker_values().get_int(_FETCHERS))

    # Followers that fall behind

    def _check_lag_now_and_then(self) -> None:
        if self._checking is None:
            self._checking = self._loop.create_task(self._check_lag())

    async def _check_lag(self) -> None:
        while True:
            await asyncio.sleep(self._commits.lag_ms_max / 2 / 1000)
            slices = Slices(self._turns)
            for partition in list(self._led):
                if partition in self._led:
                    self._commits.check_lag(partition)
                await slices.give_way()

    async def stop(self) -> None:
        """Copy nothing more, and ask for nothing more."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        await self._isr_changes.stop()
        await self.fetchers.stop()


def _settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        FetchLimits(
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
        ),
        partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
        backoff_ms=config.get_int("replica.fetch.backoff.ms"),
        request_timeout_ms=config.get_int("replica.socket.timeout.ms"),
        connection_setup_timeout_ms=config.get_int("socket.connection.setup.timeout.ms"),
    )
