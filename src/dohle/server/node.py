"""Starting and stopping a node: directories, metadata log, partitions, listeners, in this order.

A node is controller and broker in one process and on one event loop. It locks its directories,
replays the metadata log, leads its quorum of one, opens the partitions of the image, registers
itself with the addresses it listens on, and only then accepts connections. A stop goes the other
way round, and leaves the files so that the next start needs no recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from contextlib import closing
from functools import cache
from os.path import abspath
from typing import Any

from dohle.core.config.definition import ConfigValues
from dohle.core.config.listeners import Listener
from dohle.core.config.static import BrokerConfig
from dohle.core.config.topic import effective_topic_config
from dohle.core.errors import KafkaError
from dohle.core.host import ThreadPool
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.uuid import is_reserved, random_uuid, uuid_to_text
from dohle.metadata.context import ControllerContext
from dohle.raft.membership import VoterEndpoint
from dohle.server.broker import BrokerServer
from dohle.server.host import NodeHost, SystemNodeHost
from dohle.server.lifecycle import BrokerLifecycle
from dohle.server.metrics.http_server import MetricsServer
from dohle.server.metrics.loop_probe import LoopProbe
from dohle.server.metrics.sources import BrokerState, Sources
from dohle.server.net.dispatch import Dispatcher
from dohle.server.net.listener import ConnectionLimits, ListeningSocket
from dohle.server.net.request_memory import RequestMemory
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.partitions.log_cleaning import LogCleaning
from dohle.server.partitions.topic_settings import TopicSettings
from dohle.server.quorum.loss import LossCheck
from dohle.server.quorum.metadata_log import METADATA_PARTITION
from dohle.server.quorum.server import ControllerServer
from dohle.server.registry import all_handlers, controller_handlers
from dohle.storage.backup import CapturedLog
from dohle.storage.config import LogConfig, LogManagerConfig
from dohle.storage.directory.clean_shutdown import read_broker_epoch
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.directory.meta_properties import InvalidMetaProperties, load_ensemble
from dohle.storage.directory.pending_flush import PendingClose, PendingFlush
from dohle.storage.moves.places import Assignment
from dohle.storage.open_files import OpenFiles

logger = logging.getLogger("dohle.server")

_MAINTENANCE_MS_MAX = 1_000
#: How often a stop tells what it waits for.
_TOLD_EACH_S = 5.0


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
        self._fs, self._clock, self._rng = self._host.files, self._host.clock, self._host.rng
        self._on_fatal = on_fatal or (lambda reason: logger.critical("stopping: %s", reason))
        self._accept_metadata_loss = accept_metadata_loss
        self._maintenance: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._flushes: set[asyncio.Future[None]] = set()
        self.listeners: list[ListeningSocket] = []
        memory_size = config.get_int("queued.max.request.bytes")
        self._memory = RequestMemory(memory_size) if memory_size > 0 else None
        self._limits = ConnectionLimits(
            lambda: self.broker.broker_values(), self._host.open_files_max
        )
        #: Where metrics are served, if they are.
        self.metrics: MetricsServer | None = None

    # Start

    async def start(self) -> None:
        """Return when clients are served; whatever fails before that leaves nothing open."""
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(self._loop, self._host, self.config.get_int("queued.max.requests"))
        self.cluster_id = self._find_cluster_id()
        self.logs = LogManager(
            self._fs,
            clock=self._clock,
            rng=self._rng,
            config=_log_manager_config(self.config),
            open_files=OpenFiles.within(self._host.open_files_max()),
        )
        self.logs.on_directory_failed = self._directory_failed
        self._serve_metrics()
        self.logs.on_flushed = self.sources.flushed
        try:
            identity = Identity(self.cluster_id, self.config.node_id)
            self.logs.attach(self.config.log_dirs, identity, self._metadata_path())
            await self._start_controller()
            await self._start_broker()
            self._bind(self.config.broker_listeners)
            await self._register()
            self.broker.coordinators.start()
        except BaseException:
            for listener in self.listeners:
                listener.stop_accepting()
                listener.close()
            self.logs.release()
            self._stop_metrics()
            raise
        for listener in self.listeners:
            listener.start(self._service_of(listener.listener))
        self.sources.capture = self._capture
        self.sources.state = BrokerState.RUNNING
        self.broker.moves.resume()
        self.cleaning.start()
        self._maintain_later()
        logger.info(
            "node %d of cluster %s serves %s", self.config.node_id, self.cluster_id, self.bootstrap
        )

    def _serve_metrics(self) -> None:
        """Serve metrics from the very start on; a node without them is better than none."""
        self.sources = Sources(
            self._host,
            self.config.node_id,
            self.cluster_id,
            LoopProbe(self._loop, self._host),
            per_partition=self.config.get_bool("metrics.per.partition"),
            paths=list(dict.fromkeys([*self.config.log_dirs, self._metadata_path()])),
            listeners=self.listeners,
        )
        address = self.config.metrics_listener
        if address is None:
            return
        try:
            self.metrics = MetricsServer(self._loop, self._host, address, self.sources)
        except OSError as error:
            logger.warning(
                "metrics are not served: cannot listen on %s:%d (%s); choose another address with"
                " metrics.listener",
                *address,
                error.strerror or error,
            )
        else:
            self.metrics.start()

    def _capture(self) -> list[CapturedLog]:
        """Tell how far all logs have come, all at the same moment."""
        self.broker.write_appends()
        online = [log for log in self.logs if log.disk.failure is None]
        return [CapturedLog.of(log) for log in [*online, self._quorum.log.log]]

    def _stop_metrics(self) -> None:
        self.sources.state = BrokerState.NOT_RUNNING
        if self.metrics is not None:
            self.metrics.stop()

    def _find_cluster_id(self) -> str:
        paths = dict.fromkeys([*self.config.log_dirs, self._metadata_path()])
        found = load_ensemble(self._fs, paths).cluster_id
        return found or uuid_to_text(random_uuid(self._rng))

    async def _start_controller(self) -> None:
        directory = self._metadata_directory()
        with directory.disk.guarding("reading the metadata log"):
            self._loss = LossCheck(
                self._fs,
                directory.folders.live_path(METADATA_PARTITION),
                [each.path for each in self.logs.directories],
                self.config.node_id,
                accept=self._accept_metadata_loss,
            )
            self._loss.before_opening()
        self._quorum = ControllerServer(
            self._loop,
            self._fs,
            directory,
            ControllerContext(self.config, self.cluster_id, self._rng),
            self._clock,
            turns=self._turns,
            run_in_thread=self._host.run_in_thread,
            on_fatal=self._on_fatal,
        )
        await self._quorum.load()
        with directory.disk.guarding("reading the metadata log"):
            self._loss.after_loading(self._quorum.images.image)
        self._bind(self.config.controller_listeners)
        await self._quorum.lead(self._controller_endpoints())
        self.controller = self.sources.controller = self._quorum.controller
        self.images = self._quorum.images

    def _metadata_directory(self) -> LogDirectory:
        directory = self.logs.metadata_directory
        assert directory is not None, "it was attached"
        return directory

    def _metadata_path(self) -> str:
        """Return the metadata log's directory, as ``log.dirs`` spells it if it is one of them."""
        wanted = self.config.metadata_log_dir
        same = (path for path in self.config.log_dirs if abspath(path) == abspath(wanted))
        return next(same, wanted)

    def _directory_failed(self, directory: LogDirectory) -> None:
        if directory.path == self._metadata_path():
            self._on_fatal(f"the metadata log's directory {directory.path} has failed")
        elif not self.logs.online_directories:
            self._on_fatal("every log directory has failed")

    async def _start_broker(self) -> None:
        handlers = all_handlers(
            two_phase_commit=self.config.get_bool("transaction.two.phase.commit.enable")
        )
        self.broker = BrokerServer(
            self._loop,
            self.config,
            self.cluster_id,
            host=self._host,
            turns=self._turns,
            logs=self.logs,
            images=self.images,
            channel=self.controller,
        )
        self.cleaning = LogCleaning(self.logs, self._host, self._turns, self.broker.broker_values)
        self.sources.cleaner = self.cleaning.cleaner
        self.images.subscribe(self.broker.publish)
        self.sources.broker = self.broker
        self._refuse_missing_directories()
        self._previous_epoch = self._find_previous_epoch()
        self.sources.state = BrokerState.RECOVERY
        started_s = self._clock.monotonic_s()
        # Metrics are served meanwhile, and the node may be told to stop.
        loading = self.logs.load_in_steps(self._log_configs(), self._assignment_of)
        await Slices(self._turns).run(loading)
        self.sources.load_seconds = self._clock.monotonic_s() - started_s
        self._set_strays_aside()
        await Slices(self._turns).run(self.broker.load())
        self._dispatcher = Dispatcher(self._loop, self.broker, handlers)
        self._controller_dispatcher = Dispatcher(self._loop, self.broker, controller_handlers())

    def _refuse_missing_directories(self) -> None:
        """Do not mistake the empty mount point of a missing disk for a new directory.

        Logs would begin anew in it, and clients would see offsets go back.
        """
        named = {
            partition.directory_of(self.config.node_id)
            for topic in self.images.image.topics.values()
            for partition in topic.partitions.values()
            if self.config.node_id in partition.replicas
        }
        here = {directory.directory_id for directory in self.logs.directories}
        missing = [one for one in named - here if not is_reserved(one)]
        if self.logs.new_directories and len(missing) > len(self.logs.offline_directories):
            path = self.logs.new_directories[0].path
            raise InvalidMetaProperties(
                f"{path} has no meta.properties, and the directory {uuid_to_text(missing[0])}, "
                "which has partitions of this broker, is missing: mount its disk. To go on without "
                "what was on it, format the new one (dohle storage format --ignore-formatted)."
            )

    def _find_previous_epoch(self) -> int:
        """Return the last broker epoch if all directories were stopped cleanly in it, else -1."""
        if self.logs.offline_directories:
            return -1
        told = {read_broker_epoch(self._fs, directory.path) for directory in self.logs.directories}
        epoch = told.pop() if len(told) == 1 else None
        return -1 if epoch is None else epoch

    def _log_configs(self) -> Callable[[TopicPartition], LogConfig]:
        """Return what tells the settings of a log: the same for all of a topic."""
        settings = cache(lambda topic: TopicSettings.of(self._topic_values(topic)))
        return lambda partition: settings(partition.topic).log

    def _assignment_of(self, partition: TopicPartition) -> Assignment | None:
        topic = self.images.image.topic(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or found is None or self.config.node_id not in found.replicas:
            return None
        return Assignment(topic.id, found.directory_of(self.config.node_id))

    def _topic_values(self, name: TopicName) -> ConfigValues:
        image = self.images.image
        return effective_topic_config(
            image.topic_config(name),
            self.config,
            image.broker_config(self.config.node_id),
            image.cluster_config(),
        )

    def _set_strays_aside(self) -> None:
        """Keep, but do not serve, logs that the image does not assign to this broker."""
        image = self.images.image
        strays, renamed = [], []
        for log in self.logs:
            topic = image.topic(log.partition.topic)
            partition = None if topic is None else topic.partitions.get(log.partition.partition)
            if partition is None or topic is None or self.config.node_id not in partition.replicas:
                strays.append(log.partition)
            elif log.topic_id is not None and log.topic_id != topic.id:
                renamed.append((log.partition, log.topic_id))
        self._loss.stray_logs(renamed)
        for key in [*strays, *(key for key, _ in renamed)]:
            logger.warning("%s is not assigned to this broker: set aside", key)
            self.logs.mark_stray(key)

    def _service_of(self, listener: Listener) -> Dispatcher:
        is_controller = listener in self.config.controller_listeners
        return self._controller_dispatcher if is_controller else self._dispatcher

    def _bind(self, listeners: Sequence[Listener]) -> None:
        """Take ports; nobody is served before all is there."""
        for listener in listeners:
            try:
                bound = ListeningSocket(
                    self._loop,
                    self._host,
                    listener,
                    self._turns,
                    self._memory,
                    self._limits,
                    backlog=self.config.get_int("socket.listen.backlog.size"),
                    request_bytes_max=self.config.get_int("socket.request.max.bytes"),
                    idle_ms_max=self.config.get_int("connections.max.idle.ms"),
                )
            except OSError as error:
                where = f"{listener.host or '0.0.0.0'}:{listener.port}"
                raise OSError(
                    error.errno, f"cannot listen on {where} ({error.strerror}); is it in use?"
                ) from error
            self.listeners.append(bound)

    def _controller_endpoints(self) -> list[VoterEndpoint]:
        advertised = self._bound(self.config.advertised_controller_listeners)
        return [VoterEndpoint(each.name, each.host, each.port) for each in advertised]

    def _advertised(self) -> list[Listener]:
        return self._bound(self.config.advertised_listeners)

    def _bound(self, advertised: Sequence[Listener]) -> list[Listener]:
        """Return addresses for others; port 0 and an empty host become what was bound."""
        bound = {listening.listener.name: listening for listening in self.listeners}
        found = []
        for listener in advertised:
            listening = bound[listener.name]
            host = listener.host
            if host in ("", "0.0.0.0", "::"):
                host = "localhost"
            found.append(listener._replace(host=host, port=listener.port or listening.port))
        return found

    async def _register(self) -> None:
        self._lifecycle = BrokerLifecycle(
            self.config, self.cluster_id, random_uuid(self._rng), self.images, self.controller
        )
        directory_ids = [directory.directory_id for directory in self.logs.online_directories]
        await self._lifecycle.register(self._advertised(), directory_ids, self._previous_epoch)
        await self._lifecycle.unfence()

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as ``host:port``, comma-separated."""
        return ",".join(f"{listener.host}:{listener.port}" for listener in self._advertised())

    # Recurring work

    def _maintain_later(self) -> None:
        delay_ms = min(self.logs.next_due_ms() - self._clock.monotonic_ms(), _MAINTENANCE_MS_MAX)
        self._maintenance = self._loop.call_later(max(delay_ms, 10) / 1000, self._maintain)

    def _maintain(self) -> None:
        try:
            if self._round is None:
                self._round = self._loop.create_task(self._run_due())
            for flush in self.logs.due_flushes():
                task = self._loop.create_task(self._flush(flush))
                self._flushes.add(task)
                task.add_done_callback(self._flushes.discard)
            self._quorum.snapshotter.write_if_due()
        except Exception:
            # Whatever it was: flushes and snapshots must go on.
            logger.exception(
                "a round of flushes failed; the next one tries again. Please report this."
            )
        finally:
            self._maintain_later()

    async def _run_due(self) -> None:
        """Do what recurs in the logs; with many files to remove that takes long."""
        try:
            await Slices(self._turns).run(self.logs.run_due_in_steps())
        except Exception:
            # Whatever it was: retention and checkpoints must go on.
            logger.exception(
                "a round of retention and checkpoints failed; the next one tries again."
                " Please report this."
            )
        finally:
            self._round = None

    async def _flush(self, flush: PendingFlush) -> None:
        started_s = self._clock.monotonic_s()
        try:
            await self._host.run_in_thread(flush.run)
        except OSError as error:
            flush.complete(error)
        else:
            self.sources.flushed(self._clock.monotonic_s() - started_s)
            flush.complete(None)

    # Stop

    async def stop(self) -> None:
        """Stop serving, then close everything cleanly."""
        self.sources.state = BrokerState.SHUTTING_DOWN
        self.sources.capture = None
        self._stop_serving()
        if self._round is not None:
            # Files that were to be removed are removed after the next start.
            self._round.cancel()
            await asyncio.wait([self._round])
        await self._wait_for_disk("flushes", set(self._flushes))
        await self.broker.moves.stop()
        await self.cleaning.stop()
        try:
            await self._lifecycle.shut_down()
            await self._quorum.stop()
        except KafkaError as error:
            logger.error(
                "the metadata log could not be closed cleanly: %s. The next start recovers it.",
                error,
            )
        finally:
            self.controller.stop()
            await self._close_logs(self._lifecycle.broker_epoch)
            self._stop_metrics()
        logger.info("node %d has stopped", self.config.node_id)

    def _stop_serving(self) -> None:
        """Write what was appended, and take no more requests: whatever else takes long."""
        for listener in self.listeners:
            listener.stop_accepting()
        if self._maintenance is not None:
            self._maintenance.cancel()
        self.broker.write_appends()
        self.broker.txn_markers.stop()
        self.broker.coordinators.close()
        self.broker.commits.stop()
        for listener in self.listeners:
            listener.close()

    async def _close_logs(self, broker_epoch: int) -> None:
        pending = await Slices(self._turns).run(self.logs.prepare_close())
        values = self.broker.broker_values()
        threads = values.get_int("num.recovery.threads.per.data.dir")
        pool = self._host.thread_pool(threads * max(1, len(self.logs.directories)), "log-close")
        with closing(pool):
            await asyncio.gather(*(self._flush_closed(each, pool) for each in pending))
        for each in pending:
            each.complete()
        self.logs.finish_close(broker_epoch)

    async def _flush_closed(self, pending: PendingClose, pool: ThreadPool) -> None:
        for work in pending.rounds():
            running = {pool.run(part) for part in work}
            what = f"parts of the flush of {len(pending.flushes)} logs that are closed"
            await self._wait_for_disk(what, running)
            for part in running:
                part.result()

    async def _wait_for_disk(self, what: str, running: Set[asyncio.Future[Any]]) -> None:
        """Wait for threads, and tell how far they are: a disk may be slow, or stuck."""
        count, begun_s = len(running), self._clock.monotonic_s()
        while running:
            _, running = await asyncio.wait(running, timeout=_TOLD_EACH_S)
            if running:
                logger.info(
                    "no request is taken any more; waiting for the disk: %d of %d %s are done"
                    " after %.0f s",
                    count - len(running),
                    count,
                    what,
                    self._clock.monotonic_s() - begun_s,
                )


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
