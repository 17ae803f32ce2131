"""The broker configs of the group and transaction coordinators that have an effect."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, ListOf, OneOf, Range, UpdateMode

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _LIST, _SHORT = ConfigType.LONG, ConfigType.LIST, ConfigType.SHORT
_INT_MAX: Final = 2**31 - 1
_MIB: Final = 1 << 20
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS

_GROUPS: Final = (
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        ("uniform", "range"),
        "The assignors that members of the consumer protocol (KIP-848) can choose from; the "
        "first is used if they do not choose.",
        ListOf(("uniform", "range")),
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        5_000,
        "How often members of the consumer protocol are told to send a heartbeat.",
        Range(1),
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        _INT,
        15_000,
        "The largest value that a group may set for consumer.heartbeat.interval.ms.",
        Range(1),
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        _INT,
        60_000,
        "The largest value that a group may set for consumer.session.timeout.ms.",
        Range(1),
    ),
    ConfigKey(
        "group.consumer.max.size",
        _INT,
        _INT_MAX,
        "The most members of a group of the consumer protocol.",
        Range(1),
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        "Whether a group with members may change its protocol: upgrade from classic, downgrade "
        "to it, bidirectional or disabled. An empty group always may.",
        OneOf(("bidirectional", "disabled", "downgrade", "upgrade"), ignore_case=True),
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        _INT,
        5_000,
        "The smallest value that a group may set for consumer.heartbeat.interval.ms.",
        Range(1),
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        _INT,
        45_000,
        "The smallest value that a group may set for consumer.session.timeout.ms.",
        Range(1),
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms",
        _INT,
        10 * _MINUTE_MS,
        "How often the regular expressions of a group are matched against the topics again.",
        Range(10_000),
        is_internal=True,
    ),
    ConfigKey(
        "group.consumer.session.timeout.ms",
        _INT,
        45_000,
        "How long a member of the consumer protocol may stay without a heartbeat before it is "
        "removed from its group.",
        Range(1),
    ),
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic", "consumer"),
        "The protocols that groups may use. Of Kafka's, 'share' and 'streams' are accepted here "
        "and not served.",
        ListOf(("classic", "consumer", "share", "streams")),
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        _INT,
        3_000,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        _INT,
        30 * _MINUTE_MS,
        "The longest session timeout that a member of a classic group may ask for.",
    ),
    ConfigKey(
        "group.max.size",
        _INT,
        _INT_MAX,
        "The most members of a classic group.",
        Range(1),
    ),
    ConfigKey(
        "group.min.session.timeout.ms",
        _INT,
        6_000,
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    ConfigKey(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        "The longest text that may be committed with an offset.",
    ),
    ConfigKey(
        "offsets.commit.timeout.ms",
        _INT,
        5_000,
        "How long what a group coordinator writes may take to be committed before who waits for it"
        " is told that it is not.",
        Range(1),
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        _INT,
        5 * _MIB,
        "How many bytes are read at a time when a group coordinator loads its partition.",
        Range(1),
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        _LONG,
        10 * _MINUTE_MS,
        "How often committed offsets are checked for expired ones.",
        Range(1),
    ),
    ConfigKey(
        "offsets.retention.minutes",
        _INT,
        7 * 24 * 60,
        "How long offsets are kept after their group has become empty or has unsubscribed from "
        "their topic; for offsets committed without a group's members, after the commit.",
        Range(1),
    ),
    ConfigKey(
        "offsets.topic.compression.codec",
        _INT,
        0,
        "The compression of the records that group coordinators write: 0 none, 1 gzip, 2 "
        "snappy, 3 lz4, 4 zstd.",
        Range(0, 4),
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        _INT,
        50,
        "How many partitions __consumer_offsets gets when it is created. It must not change.",
        Range(1),
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "How many replicas __consumer_offsets gets. It is not created before there are as many "
        "brokers.",
        Range(1),
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        _INT,
        100 * _MIB,
        "How large a segment of __consumer_offsets grows before a new one is started.",
        Range(1),
    ),
)

_TRANSACTIONS: Final = (
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        100,
        "How long a partition keeps asking the coordinator while the producer's previous "
        "transaction is still being completed.",
        Range(0),
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        _INT,
        20,
        "How long a partition waits before it asks the coordinator again.",
        Range(1),
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        "How often transactions are checked for those that have timed out and must be aborted.",
        Range(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        _INT,
        15 * _MINUTE_MS,
        "The longest transaction timeout that a producer may ask for.",
        Range(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        True,
        "Whether a partition asks the coordinator before it accepts the first record of a "
        "transaction from a producer of the older protocol (transactions v1).",
        None,
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        60 * _MINUTE_MS,
        "How often transactional ids are checked for expired ones.",
        Range(1),
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        _INT,
        5 * _MIB,
        "How many bytes are read at a time when a transaction coordinator loads its partition.",
        Range(1),
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        _INT,
        2,
        "How many replicas of __transaction_state must be in sync for it to be written.",
        Range(1),
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        "How many partitions __transaction_state gets when it is created. It must not change.",
        Range(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "How many replicas __transaction_state gets. It is not created before there are as many "
        "brokers.",
        Range(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _INT,
        100 * _MIB,
        "How large a segment of __transaction_state grows before a new one is started.",
        Range(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        False,
        "Whether producers may have transactions that never time out, and may keep an open one "
        "after a restart, because an external coordinator decides their outcome (KIP-939).",
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _INT,
        7 * _DAY_MS,
        "How long an unused transactional id is remembered.",
        Range(1),
    ),
)

COORDINATOR_CONFIGS: Final = (*_GROUPS, *_TRANSACTIONS)
