"""The broker of a node: its logs, what it serves, and its life in the cluster."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable

from dohle.core.uuid import random_uuid
from dohle.metadata.broker_life import BrokerState
from dohle.metadata.delta import Delta, difference
from dohle.metadata.image import ClusterImage
from dohle.server.broker import BrokerServer
from dohle.server.broker_logs import BrokerLogs, find_previous_epoch
from dohle.server.channel import ControllerChannels, ImageSource
from dohle.server.disk_waits import close_logs
from dohle.server.lifecycle import BrokerLifecycle
from dohle.server.net.dispatch import Dispatcher
from dohle.server.net.slices import Slices
from dohle.server.partitions.log_cleaning import LogCleaning
from dohle.server.quorum.loss import LossCheck
from dohle.server.registry import all_handlers
from dohle.server.shared import Shared
from dohle.server.tier.settings import TierSettings
from dohle.server.tier.tier import Tier
from dohle.storage.directory.directory import LogDirectory


class Publisher:
    """Tells a broker of changes of the image, from the moment on when its logs are open."""

    def __init__(self, broker: BrokerServer, image: ClusterImage) -> None:
        """``image`` is the one that the logs are opened by."""
        self._broker = broker
        self._published = self._latest = image
        self._is_open = False

    async def publish(self, image: ClusterImage, delta: Delta) -> None:
        """Let a change take effect, now or later."""
        self._latest = image
        if self._is_open:
            await self._broker.publish(image, delta)

    async def catch_up(self) -> None:
        """Let the changes take effect that came while logs were opened."""
        while self._published is not self._latest:
            before, self._published = self._published, self._latest
            await self._broker.publish(self._published, difference(before, self._published))
        self._is_open = True


class BrokerRole:
    """``await start()``, then ``stop_serving()`` and ``await stop()``."""

    def __init__(
        self,
        shared: Shared,
        images: ImageSource,
        channels: ControllerChannels,
        loss: LossCheck | None,
        *,
        is_alone: bool,
        is_led: Callable[[], bool],
    ) -> None:
        """``is_alone``: its node is the whole quorum; ``is_led``: whether that has a leader."""
        self._shared = shared
        self._images = images
        self._loss = loss
        config = shared.config
        self.broker = BrokerServer(
            shared.loop,
            config,
            shared.cluster_id,
            host=shared.host,
            turns=shared.turns,
            logs=shared.logs,
            images=images,
            channels=channels,
            requests=shared.sources.requests,
            authorizer=shared.authorizer,
        )
        self.broker.check_listeners = shared.endpoints.check
        self.broker.quotas.connection_limits = shared.endpoints.limits
        self.cleaning = LogCleaning(
            shared.logs, shared.host, shared.turns, self.broker.broker_values
        )
        self.lifecycle = BrokerLifecycle(
            shared.loop,
            config,
            shared.cluster_id,
            random_uuid(shared.host.rng),
            images,
            channels.heartbeat,
            is_alone=is_alone,
            is_led=is_led,
            on_fatal=shared.on_fatal,
        )
        if (tier := TierSettings.of(config)) is not None:
            folder = shared.logs.online_directories[0].path
            self.broker.tier = Tier(self.broker, tier, shared.host.files, folder)
        self.previous_epoch = find_previous_epoch(shared)
        self._leaving: set[Task[None]] = set()

    async def start(self) -> None:
        """Return when clients are served (A50).

        Addresses are taken and the broker is registered first, so that the image is that of the
        registration or a later one when logs are opened and recovered by it.
        """
        shared = self._shared
        shared.sources.cleaner = self.broker.cleaner = self.cleaning.cleaner
        shared.sources.broker = self.broker
        BrokerLogs(shared, self._images.image).refuse_missing_directories()
        listeners = shared.config.broker_listeners
        shared.endpoints.bind(listeners)
        try:
            await self._register()
            await self._load()
            await self.lifecycle.unfence()
        except BaseException:
            self.lifecycle.abandon()
            raise
        self.broker.coordinators.start()
        shared.endpoints.serve(listeners, self._dispatcher())
        self.broker.moves.resume()
        self.cleaning.start()
        self.broker.on_reconfigured = self.cleaning.reconfigured
        if self.broker.tier is not None:
            self.broker.tier.start()

    async def _load(self) -> None:
        shared = self._shared
        image = self._images.image
        publisher = Publisher(self.broker, image)
        self._images.subscribe(publisher.publish)
        self._images.subscribe(self.lifecycle.on_image)
        logs = BrokerLogs(shared, image)
        logs.refuse_missing_directories()
        logs.refuse_tiered_topics()
        shared.sources.state = BrokerState.RECOVERY
        clock = shared.host.clock
        started_s = clock.monotonic_s()
        # Metrics are served meanwhile, and the node may be told to stop.
        await Slices(shared.turns).run(logs.load(self._loss))
        shared.sources.load_seconds = clock.monotonic_s() - started_s
        await Slices(shared.turns).run(self.broker.load(image))
        await publisher.catch_up()

    async def _register(self) -> None:
        shared = self._shared
        told = shared.endpoints.told(shared.config.advertised_listeners)
        directory_ids = [directory.directory_id for directory in shared.logs.online_directories]
        await self.lifecycle.register(told, directory_ids, self.previous_epoch)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Go on with the other directories, and let others lead what was in this one."""
        self.lifecycle.directory_failed(directory.directory_id)
        # The code that met the failure may be in the middle of something.
        task = self._shared.loop.create_task(self.broker.directory_failed(directory))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _dispatcher(self) -> Dispatcher:
        two_phase_commit = self._shared.config.get_bool("transaction.two.phase.commit.enable")
        authorizer = self._shared.authorizer
        handlers = all_handlers(two_phase_commit=two_phase_commit, authorizer=authorizer)
        if authorizer is not None:
            # The broker has read the log at least up to its own registration.
            authorizer.is_loaded = True
        return Dispatcher(self._shared.loop, self.broker, handlers)

    def stop_serving(self) -> None:
        """Write what was appended, and take no more requests: whatever else takes long."""
        self.broker.write_appends()
        if self.broker.tier is not None:
            self.broker.tier.cancel()
        self.broker.txn_markers.stop()
        self.broker.coordinators.close()
        self.broker.producer_ids.close()
        self.broker.commits.stop()

    async def leave(self) -> None:
        """End all work in the background, and tell the controller."""
        for task in self._leaving:
            task.cancel()
        await self.broker.txn_markers.close()
        await self.broker.txn_coordinators.close()
        await self.broker.replicas.stop()
        if self.broker.tier is not None:
            await self.broker.tier.stop()
        await self.broker.moves.stop()
        await self.cleaning.stop()
        await self.lifecycle.shut_down()

    async def close_logs(self) -> None:
        """Close the logs cleanly."""
        threads = self.broker.broker_values().get_int("num.recovery.threads.per.data.dir")
        await close_logs(self._shared, threads, self.lifecycle.broker_epoch)
