"""The broker configs of replication."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, OneOf, Range, UpdateMode

_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_MIB: Final = 1 << 20
_LONG_MAX: Final = 2**63 - 1

#: Lets consumers read from a replica in their rack.
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: Always the leader, as without any: Kafka had this class before 4.0.
_LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"

REPLICATION_CONFIGS: Final = (
    ConfigKey(
        "follower.replication.throttled.rate",
        _LONG,
        _LONG_MAX,
        "How many bytes a second this broker fetches of all replicas together that their topics' "
        "follower.replication.throttled.replicas name and that are out of sync.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
        is_internal=True,
    ),
    ConfigKey(
        "leader.replication.throttled.rate",
        _LONG,
        _LONG_MAX,
        "How many bytes a second this broker sends to followers that are out of sync, of all "
        "partitions together that their topics' leader.replication.throttled.replicas name.",
        Range(0),
        UpdateMode.CLUSTER_WIDE,
        is_internal=True,
    ),
    ConfigKey(
        "num.replica.fetchers",
        _INT,
        1,
        "How many connections copy records from each other broker; the partitions that it leads "
        "are shared among them.",
        Range(1),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        _INT,
        1000,
        "How long a follower waits after an error before it fetches again.",
        Range(0),
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        _INT,
        _MIB,
        "How much of one partition a follower fetches at a time; a larger batch comes whole.",
        Range(0),
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        _INT,
        1,
        "How much there must be before a follower's fetch is answered ahead of time.",
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        _INT,
        10 * _MIB,
        "How much of all its partitions together a follower fetches at a time.",
        Range(0),
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        _INT,
        500,
        "How long a leader lets a follower wait for new records.",
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        "How long a follower that does not have everything stays in the ISR.",
    ),
    ConfigKey(
        "replica.selector.class",
        _STRING,
        None,
        "Which replica a consumer is told to read from: with Kafka's RackAwareReplicaSelector one "
        "in its client.rack that is in sync, else the leader. Other classes are refused.",
        OneOf((RACK_AWARE_SELECTOR, _LEADER_SELECTOR)),
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        _INT,
        30_000,
        "How long a follower waits for an answer before it gives the connection up.",
    ),
    ConfigKey(
        "replication.quota.window.num",
        _INT,
        11,
        "Over how many windows of time the rates of throttled replication are averaged.",
        Range(1),
    ),
    ConfigKey(
        "replication.quota.window.size.seconds",
        _INT,
        1,
        "How long each of these windows is.",
        Range(1),
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        "How long a follower tries to connect to a leader at a time.",
    ),
)
