"""The broker configs: those that have an effect, and Kafka's others from ``config.known``.

The broker's default for a topic config copies the topic's row under the broker's name. A row
without a default and without "If not set" in its text is a required option.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dohle.core.config.authorizer import AUTHORIZER_CONFIGS
from dohle.core.config.cleaner import CLEANER_CONFIGS
from dohle.core.config.coordinator import COORDINATOR_CONFIGS
from dohle.core.config.definition import ConfigKey, ConfigType, ListOf, Range, UpdateMode
from dohle.core.config.known import CONFIGS_WITHOUT_EFFECT
from dohle.core.config.quorum import QUORUM_CONFIGS
from dohle.core.config.quotas import QUOTA_CONFIGS
from dohle.core.config.replication import REPLICATION_CONFIGS
from dohle.core.config.tier import TIER_CONFIGS
from dohle.core.config.tls import OAUTH_CONFIGS, SASL_CONFIGS, TLS_CONFIGS
from dohle.core.config.topic import TOPIC_CONFIGS

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _LIST = ConfigType.LONG, ConfigType.LIST
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_MIB: Final = 1 << 20
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS

#: Kafka has no place for these in a properties file, and lists them only if they are set.
DYNAMIC_ONLY: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)

_IDENTITY: Final = (
    ConfigKey(
        "broker.id",
        _INT,
        -1,
        "The name of node.id from before KRaft. If both are given, they must be the same.",
    ),
    ConfigKey(
        "broker.rack",
        _STRING,
        None,
        "The rack or zone of this broker: replicas of a partition are spread over racks. If not "
        "set, the broker is in no rack.",
    ),
    ConfigKey(
        "controller.listener.names",
        _LIST,
        (),
        "The names of the listeners that belong to controllers: tools reach them there with "
        "--bootstrap-controller, other nodes by the first. A node that is alone may leave it out.",
        ListOf(),
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        _LIST,
        (),
        "Where to find the controllers, as host:port,...; which of them have a vote is in the "
        "metadata log.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        _LIST,
        (),
        "The members of a quorum that never changes, as id@host:port,...; if not set, they are in "
        "the metadata log, or this node is the quorum.",
    ),
    ConfigKey(
        "node.id",
        _INT,
        None,
        "The id of this node in its cluster; it must never change.",
        Range(0),
    ),
    ConfigKey(
        "process.roles",
        _LIST,
        None,
        "The roles of this process: 'broker', 'controller' or 'broker,controller'.",
        ListOf(("broker", "controller")),
    ),
)

_LIFE: Final = (
    ConfigKey(
        "broker.heartbeat.interval.ms",
        _INT,
        2000,
        "How often a broker tells the controller that it is alive.",
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        _BOOLEAN,
        True,
        "Whether a broker that is told to stop asks the controller to move its leaderships first.",
    ),
    ConfigKey(
        "controller.socket.timeout.ms",
        _INT,
        30_000,
        "How long a broker waits for the answer of another node's controller before it asks again.",
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        _INT,
        _MINUTE_MS,
        "How long a broker that starts tries to be registered by a controller before it gives up.",
    ),
)

_NETWORK: Final = (
    ConfigKey(
        "advertised.listeners",
        _LIST,
        None,
        "The addresses that clients are told to connect to, as name://host:port,..., if they "
        "differ from listeners. If not set, listeners is used.",
        ListOf(),
    ),
    ConfigKey(
        "connections.login.max",
        _INT,
        2_500,
        "How many connections to a listener with TLS or SASL may be there that have not logged in "
        "yet; the one that has been so for longest is closed. Kafka has no such config.",
        Range(1),
    ),
    ConfigKey(
        "connections.login.timeout.ms",
        _INT,
        30_000,
        "How long a client may take for the handshake of TLS, and to log in. Kafka has no such "
        "config.",
        Range(1),
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        10 * _MINUTE_MS,
        "How long a connection may stay without a request before it is closed; a negative value "
        "never closes one.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener over which brokers talk to each other. If not set, the one with the name of "
        "security.inter.broker.protocol.",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as name:protocol,...; only PLAINTEXT is "
        "supported so far.",
    ),
    ConfigKey(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        "The addresses to listen on, as name://host:port,...; an empty host means all "
        "interfaces, and port 0 any free port.",
        ListOf(),
    ),
    ConfigKey(
        "metrics.listener",
        _STRING,
        None,
        "The address, as host:port, on which metrics (/metrics, for Prometheus) and the state of "
        "the node (/healthz, /readyz) are served over HTTP. If not set, or empty, they are not "
        "served; dohle start sets it to 127.0.0.1:9644. Kafka has no such config.",
    ),
    ConfigKey(
        "metrics.per.partition",
        _BOOLEAN,
        True,
        "Whether the metrics have series for single partitions: about 20 each. Kafka has no such "
        "config.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _LONG,
        -1,
        "How many bytes of requests above 2 MiB may be in the broker at the same time; further "
        "ones are not received until some are handled. -1 sets no limit; else it must be at least "
        "socket.request.max.bytes.",
    ),
    ConfigKey(
        "queued.max.requests",
        _INT,
        500,
        "How many received requests may wait to be handled; from then on no more are received.",
        Range(1),
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        _INT,
        50,
        "How many new connections may queue in the operating system until they are accepted.",
        Range(1),
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _INT,
        100 * _MIB,
        "The largest request that is accepted; a connection that announces a larger one is closed.",
        Range(1),
    ),
)

_REQUESTS: Final = (
    ConfigKey(
        "auto.create.topics.enable",
        _BOOLEAN,
        True,
        "Whether a request for the metadata of an unknown topic may create it.",
    ),
    ConfigKey(
        "default.replication.factor",
        _INT,
        1,
        "How many replicas a partition gets if the request that creates its topic does not say.",
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
        "The most bytes of records in one fetch response, whatever the client asks for.",
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
        "The most partitions in one DescribeTopicPartitions response; the client asks again for "
        "the rest.",
        Range(1),
    ),
    ConfigKey(
        "num.partitions",
        _INT,
        1,
        "How many partitions a topic gets if the request that creates it does not say.",
        Range(1),
    ),
    ConfigKey(
        "request.timeout.ms",
        _INT,
        30_000,
        "How long markers of transactions, and a transaction coordinator's records, may take to be"
        " committed before they are tried again, or who waits for them is told.",
        Range(1),
    ),
)

_LOGS: Final = (
    ConfigKey(
        "log.dir",
        _LIST,
        ("/tmp/kafka-logs",),
        "The data directory; used only if log.dirs is not set.",
        ListOf(),
    ),
    ConfigKey(
        "log.dirs",
        _LIST,
        None,
        "The data directories, separated by commas. If not set, log.dir is used.",
        ListOf(),
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        _MINUTE_MS,
        "How often the recovery points are written: the offset up to which each log is safely "
        "on disk, from where it is checked after a crash.",
        Range(0),
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        _LONG,
        _LONG_MAX,
        "The default of topics for flush.ms; used only if log.flush.interval.ms is not set.",
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        _MINUTE_MS,
        "How often the start offset of each log is written, so that deleted records do not come "
        "back after a crash.",
        Range(0),
    ),
    ConfigKey(
        "log.retention.check.interval.ms",
        _LONG,
        5 * _MINUTE_MS,
        "How often logs are checked for data that has reached its retention time or size.",
        Range(1),
    ),
    ConfigKey(
        "log.retention.hours",
        _INT,
        168,
        "The default of topics for retention.ms, in hours; used only if neither "
        "log.retention.ms nor log.retention.minutes is set.",
    ),
    ConfigKey(
        "log.retention.minutes",
        _INT,
        None,
        "The default of topics for retention.ms, in minutes; used only if log.retention.ms is "
        "not set. If not set, log.retention.hours is used.",
    ),
    ConfigKey(
        "log.roll.hours",
        _INT,
        168,
        "The default of topics for segment.ms, in hours; used only if log.roll.ms is not set.",
        Range(1),
    ),
    ConfigKey(
        "log.roll.jitter.hours",
        _INT,
        0,
        "The default of topics for segment.jitter.ms, in hours; used only if log.roll.jitter.ms "
        "is not set.",
        Range(0),
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "How often the high watermark of each partition is written.",
    ),
)

_METADATA_LOG: Final = (
    ConfigKey(
        "metadata.log.dir",
        _STRING,
        None,
        "The directory of the metadata log. If not set, the first of log.dirs is used.",
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20 * _MIB,
        "The number of bytes of new metadata records after which a snapshot is written.",
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
        "How large a segment of the metadata log grows before a new one is started.",
        Range(8 * _MIB),
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        _LONG,
        100 * _MIB,
        "How large the metadata log and its snapshots may grow before old ones are deleted; the "
        "last snapshot and what follows it are always kept.",
    ),
    ConfigKey(
        "metadata.max.retention.ms",
        _LONG,
        7 * _DAY_MS,
        "How long segments and snapshots of the metadata log are kept; the last snapshot and "
        "what follows it are always kept.",
    ),
)

# A running broker applies a change of these at once. Kafka can also change listeners and
# listener.security.protocol.map, which needs sockets that can be opened while running.
_DYNAMIC: Final = (
    ConfigKey(
        "max.connections",
        _INT,
        _INT_MAX,
        "The most connections over all listeners; more are closed at once.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip",
        _INT,
        _INT_MAX,
        "The most connections from one address; more are closed at once.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "How many threads for each data directory flush its logs when the broker stops.",
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
        "How many bytes per second are copied when replicas move between data directories.",
        Range(1),
        UpdateMode.CLUSTER_WIDE,
        is_internal=True,
    ),
)

_INTERNAL: Final = (
    ConfigKey(
        "log.initial.task.delay.ms",
        _LONG,
        30_000,
        "How long after the start the background work on logs begins.",
        Range(0),
        is_internal=True,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _INT,
        10 * _MINUTE_MS,
        "How often partitions are checked for producers whose state has expired.",
        Range(1),
        is_internal=True,
    ),
)


def _default_of_topics(topic_key: ConfigKey) -> ConfigKey:
    name, *others = topic_key.synonyms
    default, limits = topic_key.default, topic_key.validator
    doc = f"{topic_key.doc} Topics can have their own value as {topic_key.name}."
    if others:
        # Its default is that of the last synonym, and like Kafka it has no limits.
        default, limits = None, None
        doc = f"{doc} If not set, {others[0]} is used."
    return ConfigKey(
        *(name, topic_key.type, default, doc, limits, UpdateMode.CLUSTER_WIDE),
        no_effect=topic_key.no_effect,
    )


def _table() -> dict[str, ConfigKey]:
    keys = [
        *_IDENTITY,
        *_LIFE,
        *_NETWORK,
        *_REQUESTS,
        *_LOGS,
        *_METADATA_LOG,
        *_DYNAMIC,
        *_INTERNAL,
    ]
    keys += AUTHORIZER_CONFIGS
    keys += CLEANER_CONFIGS
    keys += QUORUM_CONFIGS
    keys += COORDINATOR_CONFIGS
    keys += QUOTA_CONFIGS
    keys += REPLICATION_CONFIGS
    keys += TIER_CONFIGS
    keys += SASL_CONFIGS
    keys += OAUTH_CONFIGS
    keys += TLS_CONFIGS
    keys += CONFIGS_WITHOUT_EFFECT
    keys += (_default_of_topics(key) for key in TOPIC_CONFIGS.values() if key.synonyms)
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}


BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(_table())
