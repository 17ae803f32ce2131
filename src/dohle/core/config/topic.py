"""The configs of a topic, and the values in effect after all levels are merged.

A topic's own value takes precedence over the broker's dynamic one, the cluster-wide dynamic
default, the value in ``server.properties`` and the default. Some broker configs set the same thing
in another unit (``log.retention.hours``): the first one set in the order of ``synonyms`` is used.
What has no effect yet is accepted and told like the rest (:mod:`dohle.core.config.effect`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from dohle.core.config.definition import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    ConfigValues,
    ListOf,
    OneOf,
    Range,
    ReplicaList,
    UpdateMode,
    Validator,
)

if TYPE_CHECKING:
    from dohle.core.config.static import BrokerConfig

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _LIST, _DOUBLE = ConfigType.LONG, ConfigType.LIST, ConfigType.DOUBLE
_LONG_MAX: Final = 2**63 - 1
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
_MIB: Final = 1 << 20
#: Why configs do nothing here yet.


def _key(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    limits: Validator | None,
    synonyms: tuple[str, ...],
    doc: str,
    no_effect: str = "",
) -> ConfigKey:
    return ConfigKey(
        *(name, type_, default, doc, limits, UpdateMode.CLUSTER_WIDE),
        synonyms=synonyms,
        no_effect=no_effect,
    )


_KEYS: Final = (
    _key(
        "cleanup.policy",
        _LIST,
        ("delete",),
        ListOf(("compact", "delete"), may_be_empty=True),
        ("log.cleanup.policy",),
        "What happens to old data: 'delete' removes whole segments by age and size, 'compact' "
        "keeps the last value of each key, and both may be given. An empty list keeps everything.",
    ),
    _key(
        "compression.gzip.level",
        _INT,
        -1,
        Range(1, 9, also=-1),
        ("compression.gzip.level",),
        "The gzip compression level when compression.type is 'gzip'; -1 is the library's default.",
    ),
    _key(
        "compression.lz4.level",
        _INT,
        9,
        Range(1, 17),
        ("compression.lz4.level",),
        "The lz4 compression level when compression.type is 'lz4'.",
    ),
    _key(
        "compression.type",
        _STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        ("compression.type",),
        "The compression of batches on disk. 'producer' keeps each batch as it was sent; with "
        "any other value the broker recompresses batches that were sent otherwise.",
    ),
    _key(
        "compression.zstd.level",
        _INT,
        3,
        Range(-131072, 22),
        ("compression.zstd.level",),
        "The zstd compression level when compression.type is 'zstd'.",
    ),
    _key(
        "delete.retention.ms",
        _LONG,
        24 * 60 * 60 * 1000,
        Range(0),
        ("log.cleaner.delete.retention.ms",),
        "How long compaction keeps the marks of deleted keys, so that consumers can see them.",
    ),
    _key(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        Range(0),
        ("log.segment.delete.delay.ms",),
        "How long the files of a deleted segment are kept under the name *.deleted, so that "
        "reads in progress can finish.",
    ),
    _key(
        "flush.messages",
        _LONG,
        _LONG_MAX,
        Range(1),
        ("log.flush.interval.messages",),
        "The number of new records after which a log is flushed to disk. By default the "
        "operating system decides.",
    ),
    _key(
        "flush.ms",
        _LONG,
        _LONG_MAX,
        Range(0),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "How long a log may have new records before it is flushed to disk. By default the "
        "operating system decides.",
    ),
    _key(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        ReplicaList(),
        (),
        "The replicas whose fetching is throttled, as partition:broker,...; * means all. How much, "
        "follower.replication.throttled.rate says.",
    ),
    _key(
        "index.interval.bytes",
        _INT,
        4096,
        Range(0),
        ("log.index.interval.bytes",),
        "How many bytes of records lie between two entries of the offset index: a larger value "
        "makes the index smaller and finding an offset slower.",
    ),
    ConfigKey(
        "internal.segment.bytes",
        _INT,
        None,
        "In place of segment.bytes, without its lower limit. If not set, segment.bytes is used.",
        None,
        UpdateMode.CLUSTER_WIDE,
        is_internal=True,
    ),
    _key(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        ReplicaList(),
        (),
        "The leaders that send less to followers out of sync, as partition:broker,...; * means "
        "all. How much, leader.replication.throttled.rate says.",
    ),
    _key(
        "local.retention.bytes",
        _LONG,
        -2,
        Range(-2),
        ("log.local.retention.bytes",),
        "How much of a partition is kept here after it was copied to remote storage; -2 means "
        "as much as retention.bytes says.",
    ),
    _key(
        "local.retention.ms",
        _LONG,
        -2,
        Range(-2),
        ("log.local.retention.ms",),
        "How long records are kept here after they were copied to remote storage; -2 means as "
        "long as retention.ms says.",
    ),
    _key(
        "max.compaction.lag.ms",
        _LONG,
        _LONG_MAX,
        Range(1),
        ("log.cleaner.max.compaction.lag.ms",),
        "How long a record may stay without being compacted.",
    ),
    _key(
        "max.message.bytes",
        _INT,
        _MIB + 12,
        Range(0),
        ("message.max.bytes",),
        "The largest batch of records that is accepted, after compression.",
    ),
    _key(
        "message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        Range(0),
        ("log.message.timestamp.after.max.ms",),
        "How far a record's timestamp may be ahead of the broker's clock before the record is "
        "refused. Used only if message.timestamp.type is CreateTime.",
    ),
    _key(
        "message.timestamp.before.max.ms",
        _LONG,
        _LONG_MAX,
        Range(0),
        ("log.message.timestamp.before.max.ms",),
        "How far a record's timestamp may be behind the broker's clock before the record is "
        "refused. Used only if message.timestamp.type is CreateTime.",
    ),
    _key(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        ("log.message.timestamp.type",),
        "Whether a record keeps the timestamp of its producer (CreateTime) or gets the time of "
        "its append to the log (LogAppendTime).",
    ),
    _key(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        Range(0, 1),
        ("log.cleaner.min.cleanable.ratio",),
        "Which part of a log must be new before it is compacted again.",
    ),
    _key(
        "min.compaction.lag.ms",
        _LONG,
        0,
        Range(0),
        ("log.cleaner.min.compaction.lag.ms",),
        "How long a record stays as it is before it may be compacted.",
    ),
    _key(
        "min.insync.replicas",
        _INT,
        1,
        Range(1),
        ("min.insync.replicas",),
        "How many replicas must be in sync for a write with acks=all to be accepted.",
    ),
    _key(
        "preallocate",
        _BOOLEAN,
        False,
        None,
        ("log.preallocate",),
        "Whether a new segment's file is allocated at its full size at once.",
    ),
    _key(
        "remote.log.copy.disable",
        _BOOLEAN,
        False,
        None,
        (),
        "Whether a topic with remote storage copies nothing more to it.",
    ),
    _key(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        False,
        None,
        (),
        "Whether remote data is deleted when remote storage is turned off for the topic.",
    ),
    _key(
        "remote.storage.enable",
        _BOOLEAN,
        False,
        None,
        (),
        "Whether the topic is copied to remote storage.",
    ),
    _key(
        "retention.bytes",
        _LONG,
        -1,
        None,
        ("log.retention.bytes",),
        "How large a partition may grow before its oldest segments are deleted; -1 is no limit. "
        "Needs the cleanup policy 'delete'.",
    ),
    _key(
        "retention.ms",
        _LONG,
        _WEEK_MS,
        Range(-1),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "How long records are kept before their segment is deleted; -1 is for ever. Needs the "
        "cleanup policy 'delete'.",
    ),
    _key(
        "segment.bytes",
        _INT,
        1 << 30,
        Range(_MIB),
        ("log.segment.bytes",),
        "How large a segment's file grows before a new one is started. Data is deleted by whole "
        "segments, so smaller ones follow the retention limits more closely.",
    ),
    _key(
        "segment.index.bytes",
        _INT,
        10 * _MIB,
        Range(4),
        ("log.index.size.max.bytes",),
        "How large a segment's offset index may grow; when it is full, a new segment is started.",
    ),
    _key(
        "segment.jitter.ms",
        _LONG,
        0,
        Range(0),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "The most by which segment.ms is shortened, at random, so that partitions do not all "
        "start a new segment at the same time.",
    ),
    _key(
        "segment.ms",
        _LONG,
        _WEEK_MS,
        Range(1),
        ("log.roll.ms", "log.roll.hours"),
        "How long until a new segment is started even if the last is not full, so that old data "
        "can go.",
    ),
    _key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        None,
        ("unclean.leader.election.enable",),
        "Whether a replica that is not in sync may become the leader if there is no other, which "
        "may lose records. The controller counts what is set while running, not its file.",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})

_MS_PER_UNIT: Final = {"minutes": 60_000, "hours": 3_600_000}
_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


def effective_topic_config(
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str] = _NO_CONFIGS,
    dynamic_default: Mapping[str, str] = _NO_CONFIGS,
) -> ConfigValues:
    """Return the value of every topic config for a topic with these overrides.

    Overrides that are not in the table are ignored: they may come from a Kafka that knows more.
    """
    values = ConfigValues()
    for name, key in TOPIC_CONFIGS.items():
        override = overrides.get(name)
        if override is not None:
            values[name] = key.parse(override)
            continue
        values[name] = key.default
        for synonym in key.synonyms:
            value = broker.effective(synonym, dynamic_broker, dynamic_default)
            if value is not None:
                unit_ms = _MS_PER_UNIT.get(synonym.rpartition(".")[2])
                if unit_ms is not None and isinstance(value, int):
                    value *= unit_ms
                values[name] = value
                break
    if values.get_int("retention.ms") < 0:
        # A broker may express "for ever" as any negative time.
        values["retention.ms"] = -1
    return values
