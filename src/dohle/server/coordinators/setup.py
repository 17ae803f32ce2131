"""The coordinators of a broker: built from its settings, and kept in step with the image."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import TopicName, Uuid
from dohle.groups.context import GroupContext, ShardTurns
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.settings import GroupSettings
from dohle.metadata.delta import Delta
from dohle.protocol.apis import Coordinator
from dohle.records.compression.codecs import Codec
from dohle.server.coordinators.runtime import CoordinatorRuntime
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, InternalTopics
from dohle.txn.context import TransactionContext
from dohle.txn.coordinator import TransactionCoordinator
from dohle.txn.settings import TransactionSettings

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

_TRANSACTION_VERSION = "transaction.version"


class ImageTopics:
    """What the group coordinator sees of the newest image."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker

    def id_of(self, name: str) -> Uuid | None:
        """Return a topic's id."""
        topic = self._broker.image.topic(TopicName(name))
        return None if topic is None else topic.id

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        """Return a topic's name."""
        return self._broker.topic_name(topic_id)

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has."""
        topic = self._broker.image.topic(TopicName(name))
        return 0 if topic is None else len(topic.partitions)

    def racks(self, name: str, partition: int) -> list[str]:
        """Return the racks of a partition's replicas, without replicas that have none."""
        image = self._broker.image
        found = image.partition(TopicName(name), partition)
        brokers = [] if found is None else [image.broker(replica) for replica in found.replicas]
        return [broker.rack for broker in brokers if broker and broker.rack is not None]

    def names(self) -> Collection[TopicName]:
        """Return the names of all topics."""
        return self._broker.image.topics.keys()

    def version(self) -> int:
        """Return the offset of the image."""
        return self._broker.image.offset


class Coordinators:
    """The runtimes of both coordinators, and the topics that hold their state."""

    def __init__(self, broker: BrokerServer, act: Callable[[int, int, object], None]) -> None:
        """Prepare; ``act`` carries out the actions of the transaction coordinator."""
        self._broker = broker
        config = broker.config
        self.internal_topics = InternalTopics(broker.loop, config, broker.images, broker.channel)
        self.group_settings = _group_settings(broker)
        self._transaction_settings: TransactionSettings | None = None
        self._topics = ImageTopics(broker)
        self._turns = ShardTurns()
        self.groups = CoordinatorRuntime[GroupCoordinator](
            broker.loop,
            broker,
            Coordinator.GROUP,
            CONSUMER_OFFSETS,
            self._make_group_machine,
            read_bytes=config.get_int("offsets.load.buffer.size"),
            timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            codec=Codec(config.get_int("offsets.topic.compression.codec")),
        )
        self.transactions = CoordinatorRuntime[TransactionCoordinator](
            broker.loop,
            broker,
            Coordinator.TRANSACTION,
            TRANSACTION_STATE,
            self._make_transaction_machine,
            read_bytes=config.get_int("transaction.state.log.load.buffer.size"),
            timeout_ms=config.get_int("request.timeout.ms"),
            act=act,
        )
        self._runtimes: dict[TopicName, CoordinatorRuntime[Any]] = {
            CONSUMER_OFFSETS: self.groups,
            TRANSACTION_STATE: self.transactions,
        }
        self._is_started = False

    def _make_group_machine(self, _: int) -> GroupCoordinator:
        broker = self._broker
        return GroupCoordinator(
            GroupContext(
                broker.clock,
                broker.rng,
                lambda: self.group_settings,
                self._topics,
                lambda group_id: broker.image.group_config(group_id),
                turns=self._turns,
            )
        )

    def _make_transaction_machine(self, _: int) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionContext(self._broker.clock, self._transaction_settings_in_force)
        )

    def _transaction_settings_in_force(self) -> TransactionSettings:
        """Return the current settings, cached: every step asks for them, and they seldom change."""
        version = self._broker.image.features.get(_TRANSACTION_VERSION, 0)
        settings = self._transaction_settings
        if settings is None or settings.transaction_version != version:
            settings = _transaction_settings(self._broker.config, version)
            self._transaction_settings = settings
        return settings

    def start(self) -> None:
        """Begin to coordinate, now that the broker has its place in the image."""
        self._is_started = True
        for runtime in self._runtimes.values():
            for partition in list(self._broker.partitions.of_topic(runtime.topic).values()):
                runtime.follow(partition)

    def publish(self, delta: Delta) -> None:
        """Take in a change of the image: partitions to coordinate, topics that groups read."""
        if not self._is_started:
            return
        for topic in delta.deleted_topics:
            runtime = self._runtimes.get(topic.name)
            if runtime is not None:
                for index in topic.partitions:
                    runtime.resign(index)
        for change in delta.changed_partitions:
            runtime = self._runtimes.get(change.topic)
            partition = self._broker.partitions.get(change.topic, change.partition)
            if runtime is None:
                continue
            if partition is not None:
                runtime.follow(partition)
            else:
                runtime.resign(change.partition)
        # Groups depend on the number of partitions, not on who leads them.
        changed = {change.topic for change in delta.changed_partitions if change.before is None}
        created = {topic.name for topic in delta.created_topics}
        deleted = {topic.name for topic in delta.deleted_topics}
        if changed or deleted:
            self.groups.post(lambda machine: machine.on_topics_changed(changed, deleted, created))

    def close(self) -> None:
        """Close everything; clients that wait are told to look for another coordinator."""
        self._is_started = False
        for runtime in self._runtimes.values():
            runtime.close()


def _group_settings(broker: BrokerServer) -> GroupSettings:
    config = broker.config
    return GroupSettings(
        group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        group_max_size=config.get_int("group.max.size"),
        group_coordinator_rebalance_protocols=config.get_list(
            "group.coordinator.rebalance.protocols"
        ),
        group_consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        group_consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        group_consumer_max_size=config.get_int("group.consumer.max.size"),
        group_consumer_assignors=config.get_list("group.consumer.assignors"),
        group_consumer_migration_policy=config.get_str("group.consumer.migration.policy").lower(),
        group_consumer_regex_refresh_interval_ms=config.get_int(
            "group.consumer.regex.refresh.interval.ms"
        ),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_minutes=config.get_int("offsets.retention.minutes"),
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
    )


def _transaction_settings(config: BrokerConfig, transaction_version: int) -> TransactionSettings:
    return TransactionSettings(
        transaction_max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        transaction_remove_expired_transaction_cleanup_interval_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
        transaction_two_phase_commit_enable=config.get_bool("transaction.two.phase.commit.enable"),
        transaction_version=transaction_version,
    )
