"""What handlers work with: the image, the partitions of this broker, and the requests that wait.

This is also where a change of the image takes effect (``publish``), and where the appends of a read
event become one write per partition (``write_appends``).
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Callable, Mapping, Sequence

from dohle.core.config.definition import ConfigValues
from dohle.core.config.static import BrokerConfig, effective_broker_config
from dohle.core.config.topic import effective_topic_config
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import Host
from dohle.core.ids import TopicName, TopicPartition, Uuid
from dohle.core.steps import PlainSteps
from dohle.metadata.delta import Delta, PartitionChange
from dohle.metadata.image import ClusterImage, ResourceType, TopicImage
from dohle.metadata.partition import PartitionImage
from dohle.metrics.requests import AllRequests
from dohle.protocol.messages.fetch import FetchResponse
from dohle.protocol.schema import Request, VersionRange
from dohle.replication.fetch_session_cache import FetchSessionCache
from dohle.security.authorizer import Authorizer
from dohle.server.auto_creation import AutoCreation
from dohle.server.channel import ControllerChannels, ImageSource, R
from dohle.server.client_quotas import ClientQuotas
from dohle.server.config_effects import ConfigEffects
from dohle.server.coordinators.setup import Coordinators
from dohle.server.frontend import client_of, muting
from dohle.server.net.collector import COLLECTOR
from dohle.server.net.encoded_answers import EncodedAnswers
from dohle.server.net.handler import RequestContext
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.partitions.commits import Commits
from dohle.server.partitions.fetch_pacing import FetchPacing
from dohle.server.partitions.fetch_purgatory import FetchPurgatory
from dohle.server.partitions.fetch_reader import FetchReader
from dohle.server.partitions.partitions import Partition, Partitions
from dohle.server.partitions.read_replicas import selects_by_rack
from dohle.server.partitions.replica_moves import MOVE_BYTES_PER_SECOND, ReplicaMoves
from dohle.server.partitions.topic_settings import TopicSettings
from dohle.server.replicas.replicas import Replicas
from dohle.server.replicas.throttles import Throttles
from dohle.server.security import inter_broker_security
from dohle.server.tier.tier import Tier
from dohle.server.transactions.coordinators import ClusterCoordinators
from dohle.server.transactions.markers import TxnMarkers
from dohle.server.transactions.producer_ids import ProducerIds
from dohle.server.transactions.verification import TxnVerification
from dohle.storage.cleaning.cleaner import LogCleaner
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.manager import LogManager
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.producers.entry import ProducerEntry

logger = logging.getLogger("dohle.server")

#: From this many new partitions on, the garbage collector is told of them.
_MANY_PARTITIONS = 100


class BrokerServer:
    """The state of one broker. All of it is used on the event loop only."""

    is_controller = False

    def __init__(
        self,
        loop: AbstractEventLoop,
        config: BrokerConfig,
        cluster_id: str,
        *,
        host: Host,
        turns: Turns,
        logs: LogManager,
        images: ImageSource,
        channels: ControllerChannels,
        requests: AllRequests,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.loop = loop
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.turns = turns
        self.host = host
        self.clock = host.clock
        self.rng = host.rng
        self.logs = logs
        self.images = images
        #: For what clients ask, and what this broker asks on their behalf.
        self.channel = channels.forwarding
        self.requests = requests
        #: Who decides what clients may do; None: they may do everything.
        self.authorizer = authorizer
        #: Refuses settings that a listener could not work with; set by the node.
        self.check_listeners: Callable[[Mapping[str, str]], None] = lambda texts: None
        #: How other brokers know this one.
        self.link_security = inter_broker_security(config)
        self.commits = Commits(
            loop, host.clock, self.recheck, config.get_int("replica.lag.time.max.ms")
        )
        self.partitions = Partitions(config.node_id, logs, self.commits)
        self.moves = ReplicaMoves(
            logs,
            self.partitions,
            images,
            channels.directory_assignments,
            config.node_id,
            host,
            bytes_per_second=lambda: self.broker_values().get_int(MOVE_BYTES_PER_SECOND),
        )
        self.throttles = Throttles(config)
        self.quotas = ClientQuotas(config, host.clock)
        #: The same if any are set: without quotas, nothing is measured.
        self.metering: ClientQuotas | None = None
        self.replicas = Replicas(
            loop,
            config,
            host=host,
            turns=turns,
            images=images,
            commits=self.commits,
            channel=channels.alter_partition,
            broker_values=self.broker_values,
            quota=self.throttles.follower,
            tier_state=self.tier_state,
            security=self.link_security,
        )
        self.producer_ids = ProducerIds(images, self.channel, config.node_id)
        self.fetch_sessions = FetchSessionCache(
            slots=config.get_int("max.incremental.fetch.session.cache.slots"), rng=host.rng
        )
        #: How often a partition has changed such that a fetch may see something new.
        self.change_count = 0
        self.fetch_pacing = FetchPacing(loop.time)
        self.metadata_answers = EncodedAnswers()
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.selects_by_rack = selects_by_rack(config)
        self.purgatory = FetchPurgatory(loop, host.clock)
        #: Set by the node, which drives it.
        self.cleaner: LogCleaner | None = None
        #: Set by the node: called when settings of the broker were altered.
        self.on_reconfigured: Callable[[], None] = lambda: None
        self.txn_markers = TxnMarkers(self)
        self.coordinators = Coordinators(self, act=self.txn_markers.write)
        self.auto_creation = AutoCreation(
            loop, config, self.coordinators.internal_topics, self.channel
        )
        self.groups = self.coordinators.groups
        #: How many offsets of groups were committed, also by transactions.
        self.offset_commits = 0
        self.transactions = self.coordinators.transactions
        self.txn_coordinators = ClusterCoordinators(self)
        self.txn_verification = TxnVerification(self, self.txn_coordinators)
        self._config_effects = ConfigEffects()
        self._broker_values: ConfigValues | None = None
        #: The partitions that have appends which are not written yet.
        self.unwritten: dict[Partition, None] = {}
        #: Set by the node, if there is a remote tier.
        self.tier: Tier | None = None

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record that this broker has read."""
        return self.images.image

    def topic_name(self, topic_id: Uuid) -> TopicName | None:
        """Return the name of the topic with this id."""
        topic = self.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def ask_controller(
        self, context: RequestContext, request: Request, answer: type[R]
    ) -> Awaitable[R]:
        """Have the active controller decide about the request of a client."""
        return muting(context, self.channel.forward(client_of(context), request, answer))

    def controller_range(self, api_key: int) -> VersionRange | None:
        """Return the versions of an API that the controller serves; None if that is not known."""
        return self.channel.controller_range(api_key)

    # Settings

    def broker_values(self) -> ConfigValues:
        """Return the broker settings in force, including those altered while running."""
        if self._broker_values is None:
            self._broker_values = effective_broker_config(
                self.config, self.image.broker_config(self.node_id), self.image.cluster_config()
            )
        return self._broker_values

    def topic_values(self, name: TopicName) -> ConfigValues:
        """Return a topic's settings in force."""
        image = self.image
        return effective_topic_config(
            image.topic_config(name),
            self.config,
            image.broker_config(self.node_id),
            image.cluster_config(),
        )

    # Changes of the image

    def load(self, image: ClusterImage) -> PlainSteps[None]:
        """Open all partitions of an image, at start, one in each step."""
        self._config_effects.started(self.config, image)
        self._configure_logs()
        self.throttles.configure(self.broker_values())
        yield from self._take_quotas(image)
        self.replicas.brokers_changed(image.brokers.items())
        settings: dict[TopicName, TopicSettings] = {}
        for topic in image.topics.values():
            for index in topic.partitions:
                self._add_partition(topic, index, settings, is_new=False)
                yield

    async def publish(self, image: ClusterImage, delta: Delta) -> None:
        """Let a change of the image take effect here.

        Creating many partitions takes a while. Requests are served in between, and get
        NOT_LEADER_OR_FOLLOWER for a partition that is not created yet.
        """
        slices = Slices(self.turns)
        if not self.quotas.are_those_of(image):
            await slices.run(self._take_quotas(image))
        for topic in delta.deleted_topics:
            await self._forget_topic(topic, slices)
        if delta.changed_brokers:
            self.replicas.brokers_changed((each.id, each.after) for each in delta.changed_brokers)
            self.fetch_sessions.look_at_all()
        removed = await self._take_in(image, delta.changed_partitions)
        if self.tier is not None:
            self.tier.image_changed()
        self._config_effects.changed(delta.changed_configs)
        for change in delta.changed_configs:
            resource = change.resource
            if resource.type == ResourceType.TOPIC:
                self._reconfigure({TopicName(resource.name)})
            elif resource.type == ResourceType.BROKER:
                self._broker_values = None
                self._configure_logs()
                self.throttles.configure(self.broker_values())
                self.replicas.reconfigured()
                self.on_reconfigured()
                self._reconfigure({partition.key.topic for partition in self.partitions})
        self.coordinators.publish(delta)
        self.txn_markers.publish(delta)
        self.txn_coordinators.publish(delta)
        if removed:
            # The disk comes last: coordinators neither resign nor load late because of it. The next
            # change waits for it, so that a replica that comes back finds no log of before.
            await self._delete_replicas(removed, slices)

    def _take_quotas(self, image: ClusterImage) -> PlainSteps[None]:
        yield from self.quotas.load(image)
        self.metering = self.quotas if self.quotas.rules else None

    async def _take_in(
        self, image: ClusterImage, changes: Sequence[PartitionChange]
    ) -> list[TopicPartition]:
        """Follow changes of partitions; return the replicas whose logs are to be deleted."""
        settings: dict[TopicName, TopicSettings] = {}
        here = self.node_id
        new = [
            TopicPartition(each.topic, each.partition)
            for each in changes
            if here in each.after.replicas and not (each.before and here in each.before.replicas)
        ]
        being_made, slices = self.partitions.being_made, Slices(self.turns)
        being_made.update(new)
        untold: list[TopicPartition] = []
        removed: list[TopicPartition] = []
        try:
            for change in changes:
                topic = image.topic(change.topic)
                if topic is not None:
                    # Only a replica that is new in the image is known to be on none of the disks.
                    is_new = not change.before or here not in change.before.replicas
                    key = TopicPartition(change.topic, change.partition)
                    if not self._add_partition(topic, change.partition, settings, is_new=is_new):
                        removed.append(key)
                    being_made.discard(key)
                    if self.moves.is_untold(key):
                        untold.append(key)
                await slices.give_way()
        finally:
            being_made.difference_update(new)
        if len(new) >= _MANY_PARTITIONS:
            COLLECTOR.grown()
        self.moves.assign(untold)
        return removed

    def _add_partition(
        self,
        topic: TopicImage,
        index: int,
        settings: dict[TopicName, TopicSettings],
        *,
        is_new: bool,
    ) -> bool:
        """Follow what the image says of a partition; False if its log is to be deleted."""
        image = topic.partitions[index]
        key = TopicPartition(topic.name, index)
        known = self.partitions.get(*key)
        if known is not None and (known.image.leader, known.leader_epoch) != (
            image.leader,
            image.leader_epoch,
        ):
            # Appends of the epoch that ends here are written and answered in that epoch.
            self.write_appends()
        if self.node_id not in image.replicas:
            if known is not None:
                self._remove_replica(known, image)
            return known is None
        if topic.name not in settings:
            settings[topic.name] = TopicSettings.of(topic.name, self.topic_values(topic.name))
        try:
            self.partitions.add(key, topic.id, image, settings[topic.name], is_new=is_new)
        except KafkaError as error:
            logger.error(
                "%s cannot be opened, and is not served: %s. Mend the cause and restart the"
                " broker.",
                key,
                error,
            )
        partition = self.partitions.get(*key)
        if known is not None and known is not partition:
            self.replicas.forget(known)
            if self.tier is not None:
                self.tier.forget(known)
        if partition is not None:
            self.replicas.update(partition)
            if self.tier is not None:
                self.tier.update(partition)
        if known is not None:
            self.recheck(key)
        return True

    def _remove_replica(self, partition: Partition, image: PartitionImage) -> None:
        """Let go of a replica that was reassigned to other brokers; its log is still to be deleted.

        Requests that wait for it get NOT_LEADER_OR_FOLLOWER: their clients look for the new leader.
        """
        self.write_appends()
        self.replicas.forget(partition)
        if self.tier is not None:
            self.tier.forget(partition)
        self.moves.forget([partition.key])
        self.partitions.remove(partition, image)
        self.recheck(partition.key)

    async def _delete_replicas(self, removed: Sequence[TopicPartition], slices: Slices) -> None:
        """Delete the logs of replicas that were reassigned to other brokers, as Kafka does."""
        try:
            await slices.run(self.logs.delete_in_steps(removed))
        except KafkaError as error:
            logger.error(
                "%d partitions are no longer assigned to this broker (the first is %s), but not all"
                " can be deleted from disk: %s. What is left is set aside as strays at the next"
                " start.",
                len(removed),
                removed[0],
                error,
            )

    async def directory_failed(self, directory: LogDirectory) -> None:
        """Copy nothing more to a directory that has failed, and end the waits at its partitions.

        They are answered KAFKA_STORAGE_ERROR from now on. The controller, which the heartbeats tell
        of the directory, has other replicas lead them.
        """
        slices = Slices(self.turns)
        for key, log in list(directory.logs.items()):
            partition = self.partitions.get(*key)
            if partition is not None and partition.log is log:
                self.replicas.forget(partition)
                self.commits.failed(partition)
            await slices.give_way()
        self.moves.assign(directory.logs)

    async def _forget_topic(self, topic: TopicImage, slices: Slices) -> None:
        keys = [TopicPartition(topic.name, index) for index in topic.partitions]
        self.moves.forget(keys)
        if self.tier is not None:
            self.tier.topic_deleted(topic)
        for partition in self.partitions.of_topic(topic.name).values():
            self.unwritten.pop(partition, None)
            self.replicas.forget(partition)
        deletion = self.partitions.remove_topic(topic)
        try:
            await slices.run(deletion)
        except KafkaError as error:
            logger.error(
                "topic %s was deleted, but cannot be deleted from disk: %s. What is left of it is"
                " set aside as a stray at the next start.",
                topic.name,
                error,
            )
        for key in keys:
            self.recheck(key)
            await slices.give_way()

    def _configure_logs(self) -> None:
        """Apply the broker settings that concern all logs alike."""
        values = self.broker_values()
        self.logs.set_producer_id_expiration(values.get_int("producer.id.expiration.ms"))
        self.logs.set_transaction_verification(
            enabled=values.get_bool("transaction.partition.verification.enable")
        )

    def _reconfigure(self, names: set[TopicName]) -> None:
        for name in names:
            partitions = self.partitions.of_topic(name)
            if partitions:
                settings = TopicSettings.of(name, self.topic_values(name))
                for partition in partitions.values():
                    partition.configure(settings)
                    if self.tier is not None:
                        self.tier.update(partition)

    # The remote tier

    def answer_from_tier(self, reader: FetchReader) -> Future[FetchResponse]:
        """Answer a fetch when what it wants of the remote tier is read, or its time is up."""
        return self.loop.create_task(self._answer_from_tier(reader))

    async def tier_state(
        self, partition: Partition, epoch: int, offset: int
    ) -> tuple[int, list[EpochEntry], list[ProducerEntry]]:
        """Return the state that a replica continues from behind a remote offset."""
        if self.tier is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "this broker has no remote tier")
        return await self.tier.state_at(partition, epoch, offset)

    async def _answer_from_tier(self, reader: FetchReader) -> FetchResponse:
        if self.tier is not None:
            await self.tier.reads.fill(reader)
        return await Slices(self.turns).run(reader.response())

    # Appends and the requests that wait for them

    def note_unwritten(self, partition: Partition) -> None:
        """Note that a partition has appends that are not written yet."""
        self.unwritten[partition] = None

    def write_appends(self) -> None:
        """Write what was appended since the last time: one system call for each partition."""
        if not self.unwritten:
            return
        unwritten, self.unwritten = self.unwritten, {}
        self.commits.write(unwritten)

    def recheck(self, key: TopicPartition) -> None:
        """Let the fetches that wait at a partition look at it: it has more, or has changed."""
        self.change_count += 1
        self.fetch_sessions.watches.changed(key)
        self.purgatory.recheck(key)

    def expire_delayed_at(self, deadline_ms: int) -> None:
        """Make sure that a fetch with this deadline is answered by then."""
        self.purgatory.expire_at(deadline_ms)
