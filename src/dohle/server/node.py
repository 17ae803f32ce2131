"""Starting and stopping a node: a broker, a controller, or both, in one process on one event loop.

It locks its directories, then starts as a controller (metadata log, quorum, controller listeners)
and as a broker (logs, registration, listeners for clients), as far as it has these roles. A stop
goes the other way round, and leaves the files so that the next start needs no recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from dohle.core.config.definition import ConfigValues
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import KafkaError
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.metadata.broker_life import BrokerState
from dohle.metadata.delta import Delta
from dohle.metadata.image import BrokerRegistration, ClusterImage, ResourceType, ScramKey
from dohle.raft.values import LeaderAndEpoch
from dohle.security.scram import ScramCredential, ScramMechanism
from dohle.server.authorizing import AclFeed, make_authorizer
from dohle.server.broker import BrokerServer
from dohle.server.broker_role import BrokerRole
from dohle.server.channel import ControllerChannel, ControllerChannels, ControllerEndpoint
from dohle.server.controller_registration import ControllerRegistration
from dohle.server.controller_role import ControllerRole
from dohle.server.endpoints import Endpoints
from dohle.server.host import NodeHost, SystemNodeHost
from dohle.server.metrics.http_server import MetricsServer
from dohle.server.metrics.loop_probe import LoopProbe
from dohle.server.metrics.sources import Sources
from dohle.server.net.listener import ListeningSocket
from dohle.server.net.turns import Turns
from dohle.server.partitions.log_cleaning import LogCleaning
from dohle.server.quorum.controller import Controller
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.loss import LossCheck
from dohle.server.quorum.member import QuorumMember
from dohle.server.quorum.metadata_log import METADATA_PARTITION, MetadataBatch
from dohle.server.quorum.snapshots import SnapshotId
from dohle.server.security import Entrances
from dohle.server.shared import Shared, data_paths, metadata_path
from dohle.server.upkeep import Upkeep
from dohle.storage.backup import CapturedLog
from dohle.storage.config import LogManagerConfig
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.directory.meta_properties import InvalidMetaProperties, load_ensemble
from dohle.storage.open_files import OpenFiles

if TYPE_CHECKING:
    from dohle.server.channels.setup import RemoteChannels

logger = logging.getLogger("dohle.server")

#: Two heartbeats and a moment: a broker that needs longer to hand over is not waited for.
_OTHERS_STOP_S = 5.0
_ANSWERS_S = 0.2


class Node:
    """A running node. ``await start()``, then ``await stop()``."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        host: NodeHost | None = None,
        on_fatal: Callable[[str], None] | None = None,
        accept_metadata_loss: bool = False,
    ) -> None:
        self.config = config
        self._host: NodeHost = host or SystemNodeHost()
        self._on_fatal = on_fatal or (lambda reason: logger.critical("stopping: %s", reason))
        self._accept_metadata_loss = accept_metadata_loss
        self._member: QuorumMember | None = None
        self._controller_role: ControllerRole | None = None
        self._broker_role: BrokerRole | None = None
        self._remote: RemoteChannels | None = None
        self._registration: ControllerRegistration | None = None
        #: Where metrics are served, if they are.
        self.metrics: MetricsServer | None = None

    # Start

    async def start(self) -> None:
        """Return when clients are served; whatever fails before that leaves nothing open."""
        self._shared = self._share()
        self._serve_metrics()
        logs = self.logs
        logs.on_flushed = self.sources.flushed
        try:
            identity = Identity(self.cluster_id, self.config.node_id)
            logs.attach(data_paths(self.config), identity, metadata_path(self.config))
            await self._shared.endpoints.prepare(self.config.listeners)
            await self._start_roles()
        except BaseException:
            self._shared.endpoints.stop_accepting()
            self._shared.endpoints.close()
            await self._abandon_quorum()
            logs.release()
            self._stop_metrics()
            raise
        self.sources.capture = self._capture
        self.sources.state = BrokerState.RUNNING
        self._upkeep.start()
        logger.info(
            "node %d of cluster %s serves %s", self.config.node_id, self.cluster_id, self.bootstrap
        )

    def _share(self) -> Shared:
        loop, host, config = asyncio.get_running_loop(), self._host, self.config
        turns = Turns(loop, host, config.get_int("queued.max.requests"))
        cluster_id = self._find_cluster_id()
        entrances = Entrances(loop, host, config, self._texts, self._credential)
        endpoints = Endpoints(loop, config, host, turns, self._values, entrances)
        logs = LogManager(
            host.files,
            clock=host.clock,
            rng=host.rng,
            config=_log_manager_config(config),
            open_files=OpenFiles.within(host.open_files_max()),
        )
        logs.on_directory_failed = self._directory_failed
        sources = Sources(
            host,
            config.node_id,
            cluster_id,
            LoopProbe(loop, host),
            per_partition=config.get_bool("metrics.per.partition"),
            paths=list(dict.fromkeys([*data_paths(config), metadata_path(config)])),
            listeners=endpoints.sockets,
        )
        authorizer = make_authorizer(config)
        return Shared(
            *(loop, config, cluster_id, host, turns, logs, endpoints, sources, self._on_fatal),
            authorizer,
        )

    async def _start_roles(self) -> None:
        shared, placement = self._shared, self.config.placement
        loss = self._loss_check() if placement.is_alone else None
        if loss is not None:
            loss.before_opening()
        self._member = member = QuorumMember(
            shared.loop,
            shared.host,
            shared.metadata_directory,
            self.config,
            self.cluster_id,
            turns=shared.turns,
            is_new=shared.metadata_directory in self.logs.new_directories,
        )
        self._upkeep = Upkeep(shared, member.snapshotter.write_if_due)
        await member.load()
        self._feed_authorizer(member)
        if not member.is_only_voter:
            # Whatever is missing, others have it.
            loss = None
        if loss is not None:
            with shared.metadata_directory.disk.guarding("reading the metadata log"):
                loss.after_loading(member.images.image)
        shared.sources.images, shared.sources.quorum = member.images, member.quorum
        member.images.subscribe(self._renew_listeners)
        if placement.is_controller:
            self._controller_role = ControllerRole(shared, member)
            await self._controller_role.start()
        else:
            await member.start((), (_Observer(shared.on_fatal),))
        channels = self._channels()
        if self._remote is not None and placement.is_controller:
            self._register_controller(self._remote.registration)
        if placement.is_broker:
            self._broker_role = BrokerRole(
                *(shared, member.images, channels, loss),
                is_alone=self._remote is None,
                is_led=lambda: not member.quorum.leaderless_ms,
            )
            await self._broker_role.start()

    def _feed_authorizer(self, member: QuorumMember) -> None:
        authorizer = self._shared.authorizer
        if authorizer is not None:
            log = member.log.log
            image, turns = member.images.image, self._shared.turns
            feed = AclFeed(authorizer, image, turns, lambda: log.high_watermark)
            member.images.subscribe(feed.on_image)

    async def _abandon_quorum(self) -> None:
        """Let others go on without this node, after a start that failed."""
        if self._registration is not None:
            self._registration.stop()
        if self._remote is not None:
            await self._remote.close()
            with suppress(KafkaError):
                await self._leave_quorum()

    def _register_controller(self, channel: ControllerChannel) -> None:
        shared, config = self._shared, self.config
        incarnation_id = random_uuid(self._host.rng)
        self._registration = ControllerRegistration(
            shared.loop, self.images, channel, config.node_id, incarnation_id
        )
        listeners = config.placement.advertised_controller_listeners
        self._registration.start(shared.endpoints.told(listeners))

    def _channels(self) -> ControllerChannels:
        """Return the ways to the active controller: the own one, if there can be no other."""
        role, shared, config = self._controller_role, self._shared, self.config
        if role is not None and config.placement.is_alone and not config.controller_listeners:
            return ControllerChannels.to(role.controller, role.guard)
        # A node that is alone starts without all that a client needs.
        from dohle.server.channels.setup import RemoteChannels

        self._remote = RemoteChannels(
            shared.loop,
            shared.host,
            config,
            shared.turns,
            self._find_controller,
            None if role is None else role.controller,
            None if role is None else role.guard,
        )
        return self._remote.channels

    def _find_controller(self) -> ControllerEndpoint | None:
        assert self._member is not None, "it takes part in the quorum"
        found = self._member.quorum.leader_node
        return None if found is None else ControllerEndpoint(*found)

    def _loss_check(self) -> LossCheck:
        """Make the checks of a node whose metadata log nobody else has."""
        directory = self._shared.metadata_directory
        with directory.disk.guarding("reading the metadata log"):
            return LossCheck(
                self._host.files,
                directory.folders.live_path(METADATA_PARTITION),
                [each.path for each in self.logs.directories],
                self.config.node_id,
                accept=self._accept_metadata_loss,
            )

    def _serve_metrics(self) -> None:
        """Serve metrics from the very start on; a node without them is better than none."""
        address = self.config.metrics_listener
        if address is None:
            return
        try:
            self.metrics = MetricsServer(self._shared.loop, self._host, address, self.sources)
        except OSError as error:
            logger.warning(
                "metrics are not served: cannot listen on %s:%d (%s); choose another address with"
                " metrics.listener",
                *address,
                error.strerror or error,
            )
        else:
            self.metrics.start()

    def _stop_metrics(self) -> None:
        self.sources.state = BrokerState.NOT_RUNNING
        if self.metrics is not None:
            self.metrics.stop()

    def _find_cluster_id(self) -> str:
        paths = dict.fromkeys([*self.config.log_dirs, metadata_path(self.config)])
        found = load_ensemble(self._host.files, paths).cluster_id
        if found is None and not self.config.placement.is_alone:
            raise InvalidMetaProperties(
                f"{', '.join(paths)}: not formatted. All nodes of a cluster have its id: format "
                "the directories of each with dohle storage format --cluster-id"
            )
        return found or uuid_to_text(random_uuid(self._host.rng))

    def _directory_failed(self, directory: LogDirectory) -> None:
        if directory.path == metadata_path(self.config):
            self._on_fatal(f"the metadata log's directory {directory.path} has failed")
        elif not self.logs.online_directories:
            self._on_fatal("every log directory has failed")
        elif self._broker_role is not None:
            self._broker_role.directory_failed(directory)

    def _values(self) -> ConfigValues:
        """Return the settings in force."""
        role = self._broker_role
        return self.config.values if role is None else role.broker.broker_values()

    async def _renew_listeners(self, image: ClusterImage, delta: Delta) -> None:
        if any(each.resource.type == ResourceType.BROKER for each in delta.changed_configs):
            self._shared.endpoints.renew()

    def _texts(self) -> Mapping[str, str]:
        """Return the settings of this node as they were given, in the file and while it runs."""
        if self._member is None:
            return self.config.texts
        return {**self.config.texts, **self.images.image.broker_config(self.config.node_id)}

    def _credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return what the metadata log has of a user."""
        found = self.images.image.scram_credentials.get(ScramKey(mechanism, user))
        if found is None:
            return None
        return ScramCredential(found.salt, found.stored_key, found.server_key, found.iterations)

    def _capture(self) -> list[CapturedLog]:
        """Tell how far all logs have come, all at the same moment."""
        if self._broker_role is not None:
            self._broker_role.broker.write_appends()
        online = [log for log in self.logs if log.disk.failure is None]
        return [CapturedLog.of(log) for log in [*online, self.member.log.log]]

    # What there is to see

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._shared.cluster_id

    @property
    def logs(self) -> LogManager:
        """All logs but that of the metadata."""
        return self._shared.logs

    @property
    def sources(self) -> Sources:
        """What the metrics tell of."""
        return self._shared.sources

    @property
    def listeners(self) -> list[ListeningSocket]:
        """The sockets that it listens on."""
        return self._shared.endpoints.sockets

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as ``host:port``, comma-separated; tools, to a controller."""
        advertised = self.config.advertised_listeners
        if not self.config.placement.is_broker:
            advertised = self.config.placement.advertised_controller_listeners
        told = self._shared.endpoints.told(advertised)
        return ",".join(f"{listener.host}:{listener.port}" for listener in told)

    @property
    def member(self) -> QuorumMember:
        """The node as a part of the quorum."""
        assert self._member is not None, "it has started"
        return self._member

    @property
    def controller(self) -> Controller:
        """The controller of this node, which must have that role."""
        assert self._controller_role is not None, "process.roles has it"
        return self._controller_role.controller

    @property
    def images(self) -> ImageLoader:
        """The cluster as this node knows it."""
        return self.member.images

    @property
    def broker_role(self) -> BrokerRole:
        """The node as a broker, which it must be."""
        assert self._broker_role is not None, "process.roles has it"
        return self._broker_role

    @property
    def broker(self) -> BrokerServer:
        """What handlers of its requests work with."""
        return self.broker_role.broker

    @property
    def cleaning(self) -> LogCleaning:
        """Compaction."""
        return self.broker_role.cleaning

    # Stop

    async def stop(self) -> None:
        """Stop serving, then close everything cleanly: the broker, then the controller (A54)."""
        if self._broker_role is not None and self._remote is not None:
            # Others take over what this broker leads while it still serves.
            self.sources.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._broker_role.lifecycle.shut_down()
        if self._controller_role is not None and self._remote is not None:
            await self._let_others_stop()
        self.sources.state = BrokerState.SHUTTING_DOWN
        self.sources.capture = None
        self._stop_serving()
        await self._upkeep.stop()
        try:
            if self._broker_role is not None:
                await self._broker_role.leave()
            if self._registration is not None:
                self._registration.stop()
            if self._remote is not None:
                await self._remote.close()
            await self._leave_quorum()
        except KafkaError as error:
            logger.error(
                "the metadata log could not be closed cleanly: %s. The next start recovers it.",
                error,
            )
        finally:
            if self._broker_role is not None:
                await self._broker_role.close_logs()
            else:
                self.logs.release()
            self._stop_metrics()
        logger.info("node %d has stopped", self.config.node_id)

    async def _let_others_stop(self) -> None:
        """Stay in the quorum while other brokers are about to stop, for a while.

        All nodes of a cluster may be told to stop at once. If most of the controllers had gone, the
        last brokers would wait in vain for one that lets them go.
        """
        changed = asyncio.Event()

        async def on_image(_: ClusterImage, delta: Delta) -> None:
            if delta.changed_brokers:
                changed.set()

        def others() -> list[BrokerRegistration]:
            brokers = self.images.image.brokers.values()
            return [each for each in brokers if each.id != self.config.node_id]

        self.images.subscribe(on_image)
        with suppress(TimeoutError):
            async with asyncio.timeout(_OTHERS_STOP_S):
                while any(each.in_controlled_shutdown and not each.fenced for each in others()):
                    changed.clear()
                    await changed.wait()
        if any(each.fenced for each in others()):
            # The answer that lets one go may be on its way yet.
            await asyncio.sleep(_ANSWERS_S)

    async def _leave_quorum(self) -> None:
        if self._controller_role is not None:
            await self._controller_role.stop()
        elif self._member is not None:
            await self._member.stop()

    def _stop_serving(self) -> None:
        """Take no more requests: whatever else takes long."""
        self._shared.endpoints.stop_accepting()
        self._upkeep.cancel()
        if self._broker_role is not None:
            self._broker_role.stop_serving()
        self._shared.endpoints.close()


class _Observer:
    """Stops a broker whose metadata log cannot be used any more."""

    def __init__(self, on_fatal: Callable[[str], None]) -> None:
        self._on_fatal = on_fatal

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Whoever leads is asked then."""

    async def on_commit(self, batch: MetadataBatch) -> None:
        """The image has it."""

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        """The image has it."""

    def on_failure(self, reason: str) -> None:
        """Stop."""
        self._on_fatal(reason)


def _log_manager_config(config: BrokerConfig) -> LogManagerConfig:
    def of(name: str) -> int:
        return config.get_int(name)

    return LogManagerConfig(
        log_flush_offset_checkpoint_interval_ms=of("log.flush.offset.checkpoint.interval.ms"),
        log_flush_start_offset_checkpoint_interval_ms=of(
            "log.flush.start.offset.checkpoint.interval.ms"
        ),
        log_initial_task_delay_ms=of("log.initial.task.delay.ms"),
        log_retention_check_interval_ms=of("log.retention.check.interval.ms"),
        producer_id_expiration_check_interval_ms=of("producer.id.expiration.check.interval.ms"),
        producer_id_expiration_ms=of("producer.id.expiration.ms"),
        replica_high_watermark_checkpoint_interval_ms=of(
            "replica.high.watermark.checkpoint.interval.ms"
        ),
    )
