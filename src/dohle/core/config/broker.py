"""The configs of a broker that have an effect; Kafka's others are in ``known_configs``.

The broker's defaults for topic configs repeat the topic's row under the broker's name. Where a
row has no default and no "if not set" in its text, the option must be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dohle.core.config.coordinator import COORDINATOR_CONFIGS
from dohle.core.config.definition import ConfigKey, ConfigType, ListOf, Range, UpdateMode
from dohle.core.config.topic import TOPIC_CONFIGS

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _LIST = ConfigType.LONG, ConfigType.LIST
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_MIB: Final = 1 << 20
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS

_IDENTITY: Final = (
    ConfigKey(
        "broker.rack",
        _STRING,
        None,
        "Where this broker stands, such as a rack or a zone: replicas of a partition are spread "
        "over racks. If not set, the broker counts as being in none.",
    ),
    ConfigKey(
        "controller.listener.names",
        _LIST,
        (),
        "Which of the listeners are the controller's. A node that is alone may leave it out: "
        "nobody else talks to its controller.",
        ListOf(),
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        _LIST,
        (),
        "Where controllers can be found, as host:port,...; more than one is not possible yet.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        _LIST,
        (),
        "The members of the quorum, as id@host:port,...; more than this node is not possible yet. "
        "If not set, this node is the quorum.",
    ),
    ConfigKey(
        "node.id",
        _INT,
        None,
        "The number by which this node is known in its cluster; it must never change.",
        Range(0),
    ),
    ConfigKey(
        "process.roles",
        _LIST,
        None,
        "What this process is: for now always 'broker,controller'.",
        ListOf(("broker", "controller")),
    ),
)

_NETWORK: Final = (
    ConfigKey(
        "advertised.listeners",
        _LIST,
        None,
        "The addresses told to clients, as name://host:port,..., where they are not the ones "
        "listened on. If not set, those of listeners are told.",
        ListOf(),
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        10 * _MINUTE_MS,
        "After how much time without a request a connection is closed; a negative value never "
        "closes one.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener over which brokers talk to each other. If not set, the one named PLAINTEXT.",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as name:protocol,...; listeners can use "
        "only PLAINTEXT for now.",
    ),
    ConfigKey(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        "The addresses to listen on, as name://host:port,...; without a host on all interfaces, "
        "and with port 0 on any free port.",
        ListOf(),
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        _INT,
        50,
        "How many new connections may wait in the operating system for being accepted.",
        Range(1),
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _INT,
        100 * _MIB,
        "The largest request that is read; a connection that announces a larger one is closed.",
        Range(1),
    ),
)

_REQUESTS: Final = (
    ConfigKey(
        "auto.create.topics.enable",
        _BOOLEAN,
        True,
        "Whether a client that asks for a topic that is not there may thereby create it.",
    ),
    ConfigKey(
        "default.replication.factor",
        _INT,
        1,
        "How many replicas a partition has where the creator of its topic does not say.",
    ),
    ConfigKey(
        "delete.topic.enable",
        _BOOLEAN,
        True,
        "Whether topics can be deleted at all.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        _INT,
        55 * _MIB,
        "The most bytes of records in one answer to a fetch, whatever the client asks for.",
        Range(1024),
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "How many incremental fetch sessions are remembered; when more are wanted, idle ones make "
        "room.",
        Range(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "The most partitions described in one answer; the client asks again for the rest.",
        Range(1),
    ),
    ConfigKey(
        "num.partitions",
        _INT,
        1,
        "How many partitions a topic has where its creator does not say.",
        Range(1),
    ),
)

_LOGS: Final = (
    ConfigKey(
        "log.dir",
        _LIST,
        ("/tmp/kafka-logs",),
        "The data directory; counts only where log.dirs is not set.",
        ListOf(),
    ),
    ConfigKey(
        "log.dirs",
        _LIST,
        None,
        "The data directories, separated by commas. If not set, log.dir.",
        ListOf(),
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        _MINUTE_MS,
        "How often it is written down up to where each log is safely on disk: after a crash, logs "
        "are checked from there.",
        Range(0),
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        _LONG,
        _LONG_MAX,
        "The default of topics for flush.ms; counts only where log.flush.interval.ms is not set.",
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        _MINUTE_MS,
        "How often the start offset of each log is written down, so that deleted records do not "
        "come back after a crash.",
        Range(0),
    ),
    ConfigKey(
        "log.retention.check.interval.ms",
        _LONG,
        5 * _MINUTE_MS,
        "How often logs are searched for data that has reached its age or size limit.",
        Range(1),
    ),
    ConfigKey(
        "log.retention.hours",
        _INT,
        168,
        "The default of topics for retention.ms, in hours; counts only where neither "
        "log.retention.ms nor log.retention.minutes is set.",
    ),
    ConfigKey(
        "log.retention.minutes",
        _INT,
        None,
        "The default of topics for retention.ms, in minutes; counts only where log.retention.ms "
        "is not set. If not set, log.retention.hours counts.",
    ),
    ConfigKey(
        "log.roll.hours",
        _INT,
        168,
        "The default of topics for segment.ms, in hours; counts only where log.roll.ms is not set.",
        Range(1),
    ),
    ConfigKey(
        "log.roll.jitter.hours",
        _INT,
        0,
        "The default of topics for segment.jitter.ms, in hours; counts only where "
        "log.roll.jitter.ms is not set.",
        Range(0),
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "How often the high watermark of each partition is written down.",
    ),
)

_METADATA_LOG: Final = (
    ConfigKey(
        "metadata.log.dir",
        _STRING,
        None,
        "The directory of the metadata log. If not set, the first of log.dirs.",
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20 * _MIB,
        "After how many bytes of new metadata records a snapshot is written.",
        Range(1),
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms",
        _LONG,
        60 * _MINUTE_MS,
        "After how much time with new metadata records a snapshot is written; 0 never does it by "
        "time.",
        Range(0),
    ),
    ConfigKey(
        "metadata.log.segment.bytes",
        _INT,
        1 << 30,
        "How large a segment of the metadata log grows before a new one is begun.",
        Range(8 * _MIB),
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        _LONG,
        100 * _MIB,
        "How large the metadata log and its snapshots may grow before old ones go; the last "
        "snapshot and what follows it always stay.",
    ),
    ConfigKey(
        "metadata.max.retention.ms",
        _LONG,
        7 * _DAY_MS,
        "How long segments and snapshots of the metadata log are kept; the last snapshot and what "
        "follows it always stay.",
    ),
)

# These a running broker takes over at once when they are altered. Kafka also lets listeners and
# listener.security.protocol.map be altered, which needs sockets that can be opened while running.
_DYNAMIC: Final = (
    ConfigKey(
        "max.connections",
        _INT,
        _INT_MAX,
        "The most connections at a time over all listeners; more are closed at once.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip",
        _INT,
        _INT_MAX,
        "The most connections at a time from one address; more are closed at once.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "How many threads bring the logs of one data directory to the disk when the broker stops.",
        Range(1),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        _INT,
        _DAY_MS,
        "How long a partition remembers an idempotent producer that no longer writes.",
        Range(1),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _LONG,
        _LONG_MAX,
        "How fast a log is copied that moves from one data directory to another.",
        Range(1),
        UpdateMode.PER_BROKER,
    ),
)

_INTERNAL: Final = (
    ConfigKey(
        "log.initial.task.delay.ms",
        _LONG,
        30_000,
        "How long after the start the regular work on logs begins.",
        Range(0),
        is_internal=True,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _INT,
        10 * _MINUTE_MS,
        "How often partitions are searched for producers that can be forgotten.",
        Range(1),
        is_internal=True,
    ),
)


def _default_of_topics(topic_key: ConfigKey) -> ConfigKey:
    name, *others = topic_key.synonyms
    default, limits = topic_key.default, topic_key.validator
    doc = f"{topic_key.doc} Topics can have their own value as {topic_key.name}."
    if others:
        # The default is that of the last of the others; and Kafka sets no limits here.
        default, limits = None, None
        doc = f"{doc} If not set, {others[0]} counts."
    return ConfigKey(name, topic_key.type, default, doc, limits, UpdateMode.CLUSTER_WIDE)


def _table() -> dict[str, ConfigKey]:
    keys = [*_IDENTITY, *_NETWORK, *_REQUESTS, *_LOGS, *_METADATA_LOG, *_DYNAMIC, *_INTERNAL]
    keys += COORDINATOR_CONFIGS
    keys += map(_default_of_topics, TOPIC_CONFIGS.values())
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}


BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(_table())
