"""The broker configs of Apache Kafka 4.2 that have no effect here, and why.

A ``server.properties`` written for Kafka works as it is, and so does a tool that mentions one of
them: the value is checked, kept and told as Kafka does it, and the operator gets a notice. A row
leaves for :mod:`dohle.core.config.broker` when it gets an effect.
"""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, ListOf, NotEmpty, Range, UpdateMode
from dohle.core.config.known_security import SECURITY_CONFIGS
from dohle.core.config.without_effect import because, row

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_DOUBLE = ConfigType.DOUBLE
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_SHORT = ConfigType.SHORT
_STRING = ConfigType.STRING
_READ_ONLY = UpdateMode.READ_ONLY
_PER_BROKER = UpdateMode.PER_BROKER
_CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_ANY_LIST: Final = ListOf(may_be_empty=True)

CONFIGS_WITHOUT_EFFECT: Final[tuple[ConfigKey, ...]] = (
    *SECURITY_CONFIGS,
    *because(
        "the remote tier has no plugins and no quotas here",
        row(
            "remote.log.manager.copy.max.bytes.per.second",
            _LONG,
            _LONG_MAX,
            Range(1),
            _CLUSTER_WIDE,
        ),
        row("remote.log.manager.copy.quota.window.num", _INT, 11, Range(1)),
        row("remote.log.manager.copy.quota.window.size.seconds", _INT, 1, Range(1)),
        row("remote.log.manager.expiration.thread.pool.size", _INT, 10, Range(1), _CLUSTER_WIDE),
        row(
            "remote.log.manager.fetch.max.bytes.per.second",
            _LONG,
            _LONG_MAX,
            Range(1),
            _CLUSTER_WIDE,
        ),
        row("remote.log.manager.fetch.quota.window.num", _INT, 11, Range(1)),
        row("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1, Range(1)),
        row("remote.log.manager.follower.thread.pool.size", _INT, 2, Range(1), _CLUSTER_WIDE),
        row(
            "remote.log.manager.task.retry.backoff.max.ms",
            _LONG,
            30_000,
            Range(1),
            _READ_ONLY,
            is_internal=True,
        ),
        row(
            "remote.log.manager.task.retry.backoff.ms",
            _LONG,
            500,
            Range(1),
            _READ_ONLY,
            is_internal=True,
        ),
        row(
            "remote.log.manager.task.retry.jitter",
            _DOUBLE,
            0.2,
            Range(0, 0.5),
            _READ_ONLY,
            is_internal=True,
        ),
        row("remote.log.manager.thread.pool.size", _INT, 2, Range(1)),
        row("remote.log.metadata.custom.metadata.max.bytes", _INT, 128, Range(0)),
        row(
            "remote.log.metadata.manager.class.name",
            _STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            NotEmpty(),
        ),
        row("remote.log.metadata.manager.class.path", _STRING, None),
        row("remote.log.metadata.manager.listener.name", _STRING, None, NotEmpty()),
        row("remote.log.storage.manager.class.name", _STRING, None, NotEmpty()),
        row("remote.log.storage.manager.class.path", _STRING, None),
    ),
    *because(
        "moves between directories have one rate, and there are no plugins for quotas",
        row("alter.log.dirs.replication.quota.window.num", _INT, 11, Range(1)),
        row("alter.log.dirs.replication.quota.window.size.seconds", _INT, 1, Range(1)),
        row("client.quota.callback.class", _CLASS, None),
    ),
    *because(
        "share groups and streams groups are not served yet",
        row("group.share.assignors", _LIST, ("simple",), ListOf()),
        row("group.share.delivery.count.limit", _INT, 5, Range(2, 10)),
        row("group.share.enable", _BOOLEAN, False, None, _READ_ONLY, is_internal=True),
        row("group.share.heartbeat.interval.ms", _INT, 5000, Range(1)),
        row(
            "group.share.initialize.retry.interval.ms",
            _INT,
            30_000,
            Range(1),
            _READ_ONLY,
            is_internal=True,
        ),
        row("group.share.max.heartbeat.interval.ms", _INT, 15_000, Range(1)),
        row("group.share.max.record.lock.duration.ms", _INT, 60_000, Range(30000, 3600000)),
        row("group.share.max.session.timeout.ms", _INT, 60_000, Range(1)),
        row("group.share.max.share.sessions", _INT, 2000, Range(1)),
        row("group.share.max.size", _INT, 200, Range(1, 1000)),
        row("group.share.min.heartbeat.interval.ms", _INT, 5000, Range(1)),
        row("group.share.min.record.lock.duration.ms", _INT, 15_000, Range(1000, 30000)),
        row("group.share.min.session.timeout.ms", _INT, 45_000, Range(1)),
        row("group.share.partition.max.record.locks", _INT, 2000, Range(100, 10000)),
        row(
            "group.share.persister.class.name",
            _STRING,
            "org.apache.kafka.server.share.persister.DefaultStatePersister",
            None,
            _READ_ONLY,
            is_internal=True,
        ),
        row("group.share.record.lock.duration.ms", _INT, 30_000, Range(1000, 3600000)),
        row("group.share.session.timeout.ms", _INT, 45_000, Range(1)),
        row("group.streams.heartbeat.interval.ms", _INT, 5000, Range(1)),
        row("group.streams.initial.rebalance.delay.ms", _INT, 3000, Range(0)),
        row("group.streams.max.heartbeat.interval.ms", _INT, 15_000, Range(1)),
        row("group.streams.max.session.timeout.ms", _INT, 60_000, Range(1)),
        row("group.streams.max.size", _INT, _INT_MAX, Range(1)),
        row("group.streams.max.standby.replicas", _INT, 2, Range(0)),
        row("group.streams.min.heartbeat.interval.ms", _INT, 5000, Range(1)),
        row("group.streams.min.session.timeout.ms", _INT, 45_000, Range(1)),
        row("group.streams.num.standby.replicas", _INT, 0, Range(0)),
        row("group.streams.session.timeout.ms", _INT, 45_000, Range(1)),
        row("share.coordinator.append.linger.ms", _INT, -1, Range(-1)),
        row(
            "share.coordinator.cold.partition.snapshot.interval.ms",
            _INT,
            300_000,
            Range(1),
            _READ_ONLY,
            is_internal=True,
        ),
        row("share.coordinator.load.buffer.size", _INT, 5_242_880, Range(1)),
        row("share.coordinator.snapshot.update.records.per.snapshot", _INT, 500, Range(0)),
        row("share.coordinator.state.topic.compression.codec", _INT, 0),
        row("share.coordinator.state.topic.min.isr", _SHORT, 2, Range(1)),
        row("share.coordinator.state.topic.num.partitions", _INT, 50, Range(1)),
        row(
            "share.coordinator.state.topic.prune.interval.ms",
            _INT,
            300_000,
            Range(1),
            _READ_ONLY,
            is_internal=True,
        ),
        row("share.coordinator.state.topic.replication.factor", _SHORT, 3, Range(1)),
        row("share.coordinator.state.topic.segment.bytes", _INT, 104_857_600, Range(1)),
        row("share.coordinator.threads", _INT, 1, Range(1)),
        row("share.coordinator.write.timeout.ms", _INT, 5000, Range(1)),
        row("share.fetch.purgatory.purge.interval.requests", _INT, 1000),
    ),
    *because(
        "dohle has no such limit, or does without",
        row("early.start.listeners", _LIST, None, _ANY_LIST),
        row("log.dir.failure.timeout.ms", _LONG, 30_000, Range(1)),
        row("replica.socket.receive.buffer.bytes", _INT, 65_536),
        row("socket.connection.setup.timeout.max.ms", _LONG, 30_000),
    ),
    *because(
        "classes of Java are not loaded",
        row("alter.config.policy.class.name", _CLASS, None),
        row("config.providers", _LIST, (), _ANY_LIST, _CLUSTER_WIDE),
        row("create.topic.policy.class.name", _CLASS, None),
        row("kafka.metrics.polling.interval.secs", _INT, 10, Range(1)),
        row("kafka.metrics.reporters", _LIST, (), _ANY_LIST),
        row(
            "metric.reporters",
            _LIST,
            ("org.apache.kafka.common.metrics.JmxReporter",),
            _ANY_LIST,
            _CLUSTER_WIDE,
        ),
    ),
    *because(
        "dohle shares its work among threads and processes by itself",
        row("background.threads", _INT, 10, Range(1), _CLUSTER_WIDE),
        row("group.coordinator.threads", _INT, 4, Range(1)),
        row("num.io.threads", _INT, 8, Range(1), _CLUSTER_WIDE),
        row("num.network.threads", _INT, 3, Range(1), _CLUSTER_WIDE),
        row("num.replica.alter.log.dirs.threads", _INT, None),
    ),
    *because(
        "requests leave the purgatory when they are done",
        row("delete.records.purgatory.purge.interval.requests", _INT, 1),
        row("fetch.purgatory.purge.interval.requests", _INT, 1000),
        row("producer.purgatory.purge.interval.requests", _INT, 1000),
    ),
    *because(
        "metrics are not sampled as Kafka's are",
        row(
            "controller.performance.always.log.threshold.ms",
            _LONG,
            2000,
            Range(0),
            _READ_ONLY,
            is_internal=True,
        ),
        row(
            "controller.performance.sample.period.ms",
            _LONG,
            60_000,
            Range(100),
            _READ_ONLY,
            is_internal=True,
        ),
        row("metrics.num.samples", _INT, 2, Range(1)),
        row("metrics.recording.level", _STRING, "INFO"),
        row("metrics.sample.window.ms", _LONG, 30_000, Range(1)),
        row("telemetry.max.bytes", _INT, 1_048_576, Range(1)),
    ),
    *because(
        "the operating system's sizes are used",
        row("socket.receive.buffer.bytes", _INT, 102_400),
        row("socket.send.buffer.bytes", _INT, 102_400),
    ),
    *because(
        "this limit is not enforced yet",
        row("max.connection.creation.rate", _INT, _INT_MAX, Range(0), _CLUSTER_WIDE),
        row("max.connections.per.ip.overrides", _STRING, "", None, _CLUSTER_WIDE),
    ),
    *because(
        "the metadata log needs no such setting here",
        row(
            "internal.metadata.delete.delay.millis",
            _LONG,
            60_000,
            None,
            _READ_ONLY,
            is_internal=True,
        ),
        row("internal.metadata.log.segment.bytes", _INT, None, None, _READ_ONLY, is_internal=True),
        row(
            "internal.metadata.max.batch.size.in.bytes",
            _INT,
            8_388_608,
            None,
            _READ_ONLY,
            is_internal=True,
        ),
        row(
            "internal.metadata.max.fetch.size.in.bytes",
            _INT,
            8_388_608,
            None,
            _READ_ONLY,
            is_internal=True,
        ),
        row("metadata.log.segment.ms", _LONG, 604_800_000),
    ),
    *because(
        "there is nothing here that it would change",
        row("group.coordinator.append.linger.ms", _INT, -1, Range(-1)),
        row("server.max.startup.time.ms", _LONG, _LONG_MAX, Range(0), _READ_ONLY, is_internal=True),
        row("unstable.api.versions.enable", _BOOLEAN, False, None, _READ_ONLY, is_internal=True),
        row(
            "unstable.feature.versions.enable", _BOOLEAN, False, None, _READ_ONLY, is_internal=True
        ),
    ),
)
