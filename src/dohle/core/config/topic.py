"""The configs of a topic, and what applies to a topic after all levels are laid over each other.

A topic's own value goes before the broker's dynamic one, the cluster's dynamic default, the value
in ``server.properties`` and the default. Some broker configs give the same thing in another unit
(``log.retention.hours``): of those the first one set in the order of ``synonyms`` counts.
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
    UpdateMode,
    Validator,
)
from dohle.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from dohle.core.config.static import BrokerConfig

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _LIST = ConfigType.LONG, ConfigType.LIST
_LONG_MAX: Final = 2**63 - 1
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
_MIB: Final = 1 << 20


def _key(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    limits: Validator | None,
    synonyms: tuple[str, ...],
    doc: str,
) -> ConfigKey:
    return ConfigKey(name, type_, default, doc, limits, UpdateMode.CLUSTER_WIDE, synonyms=synonyms)


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
        "How hard gzip tries when compression.type is 'gzip'; -1 is the library's own choice.",
    ),
    _key(
        "compression.lz4.level",
        _INT,
        9,
        Range(1, 17),
        ("compression.lz4.level",),
        "How hard lz4 tries when compression.type is 'lz4'.",
    ),
    _key(
        "compression.type",
        _STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        ("compression.type",),
        "How batches are kept on disk. 'producer' leaves each as it came; with any other value "
        "the broker recompresses what came differently.",
    ),
    _key(
        "compression.zstd.level",
        _INT,
        3,
        Range(-131072, 22),
        ("compression.zstd.level",),
        "How hard zstd tries when compression.type is 'zstd'.",
    ),
    _key(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        Range(0),
        ("log.segment.delete.delay.ms",),
        "How long the files of a removed segment stay under the name *.deleted, so that reads "
        "that are under way can end.",
    ),
    _key(
        "flush.messages",
        _LONG,
        _LONG_MAX,
        Range(1),
        ("log.flush.interval.messages",),
        "After how many new records a log is forced to disk. By default the operating system "
        "decides.",
    ),
    _key(
        "flush.ms",
        _LONG,
        _LONG_MAX,
        Range(0),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "After how much time a log with new records is forced to disk. By default the operating "
        "system decides.",
    ),
    _key(
        "index.interval.bytes",
        _INT,
        4096,
        Range(0),
        ("log.index.interval.bytes",),
        "How many bytes of records lie between two entries of the offset index: more make the "
        "index smaller and finding an offset slower.",
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
        "How far a record's timestamp may lie ahead of the broker's clock before the record is "
        "refused. Counts only when message.timestamp.type is CreateTime.",
    ),
    _key(
        "message.timestamp.before.max.ms",
        _LONG,
        _LONG_MAX,
        Range(0),
        ("log.message.timestamp.before.max.ms",),
        "How far a record's timestamp may lie behind the broker's clock before the record is "
        "refused. Counts only when message.timestamp.type is CreateTime.",
    ),
    _key(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        ("log.message.timestamp.type",),
        "Whether a record keeps the time its producer gave it (CreateTime) or gets the time at "
        "which it was written to the log (LogAppendTime).",
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
        "Whether a new segment's file gets its full size on disk at once.",
    ),
    _key(
        "retention.bytes",
        _LONG,
        -1,
        None,
        ("log.retention.bytes",),
        "How large a partition may grow before its oldest segments go; -1 is no limit. Needs the "
        "cleanup policy 'delete'.",
    ),
    _key(
        "retention.ms",
        _LONG,
        _WEEK_MS,
        Range(-1),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "How long records are kept before their segment goes; -1 is for ever. Needs the cleanup "
        "policy 'delete'.",
    ),
    _key(
        "segment.bytes",
        _INT,
        1 << 30,
        Range(_MIB),
        ("log.segment.bytes",),
        "How large a segment's file grows before a new one is begun. Data goes by whole segments, "
        "so smaller ones follow the retention limits more closely.",
    ),
    _key(
        "segment.index.bytes",
        _INT,
        10 * _MIB,
        Range(4),
        ("log.index.size.max.bytes",),
        "How large a segment's offset index may grow; when it is full a new segment is begun.",
    ),
    _key(
        "segment.jitter.ms",
        _LONG,
        0,
        Range(0),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "By how much segment.ms is shortened at most, at random, so that partitions do not all "
        "begin a new segment at the same time.",
    ),
    _key(
        "segment.ms",
        _LONG,
        _WEEK_MS,
        Range(1),
        ("log.roll.ms", "log.roll.hours"),
        "After how much time a new segment is begun even if the last is not full, so that old "
        "data can go.",
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

    Overrides that are not in the table are passed over: the topic may come from a Kafka that
    knows more of them.
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
        # A broker may say "for ever" with any negative time.
        values["retention.ms"] = -1
    return values


def validate_topic_overrides(pairs: Mapping[str, str]) -> None:
    """Refuse names that no topic has, and values that are not allowed."""
    for name in pairs:
        if name not in TOPIC_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, text in pairs.items():
        TOPIC_CONFIGS[name].parse(text)
