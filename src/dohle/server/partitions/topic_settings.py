"""What a topic's settings say to its partitions: made once, and shared by all of them."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from dohle.core.config.definition import ConfigValues
from dohle.metadata.topic_names import INTERNAL_TOPICS
from dohle.records.checking.validation import ValidationRules
from dohle.records.compression.codecs import Codec
from dohle.replication.throttle import ThrottledReplicas
from dohle.storage.config import LogConfig
from dohle.tiering.segments import METADATA_TOPIC

#: Internal topics are never tiered, whatever their settings say (T2).
_NEVER_REMOTE: Final = INTERNAL_TOPICS | {METADATA_TOPIC}


class TopicSettings(NamedTuple):
    """The settings of one topic, for those who use them."""

    log: LogConfig
    #: For the batches of producers.
    rules: ValidationRules
    min_isr: int
    #: Where brokers send less to followers out of sync, and where they fetch less while they are.
    throttled_leaders: ThrottledReplicas
    throttled_followers: ThrottledReplicas

    @classmethod
    def of(cls, topic: str, values: ConfigValues) -> Self:
        """Take them from the topic's effective settings."""
        is_remote = values.get_bool("remote.storage.enable") and topic not in _NEVER_REMOTE
        return cls(
            _log_config(values, is_remote=is_remote),
            _validation_rules(values),
            values.get_int("min.insync.replicas"),
            ThrottledReplicas.of(values.get_list("leader.replication.throttled.replicas")),
            ThrottledReplicas.of(values.get_list("follower.replication.throttled.replicas")),
        )


def _log_config(values: ConfigValues, *, is_remote: bool) -> LogConfig:
    """Turn a topic's effective settings into those of its logs."""
    policy = frozenset(values.get_list("cleanup.policy"))
    segment_ms, max_lag_ms = values.get_int("segment.ms"), values.get_int("max.compaction.lag.ms")
    if "compact" in policy:
        # Only closed segments are compacted: in time, if there are appends at all.
        segment_ms = min(segment_ms, max_lag_ms)
    return LogConfig(
        cleanup_policy=policy,
        delete_retention_ms=values.get_int("delete.retention.ms"),
        file_delete_delay_ms=values.get_int("file.delete.delay.ms"),
        flush_messages=values.get_int("flush.messages"),
        flush_ms=values.get_int("flush.ms"),
        index_interval_bytes=values.get_int("index.interval.bytes"),
        local_retention_bytes=values.get_int("local.retention.bytes"),
        local_retention_ms=values.get_int("local.retention.ms"),
        max_compaction_lag_ms=max_lag_ms,
        max_message_bytes=values.get_int("max.message.bytes"),
        message_timestamp_type_log_append=_is_log_append_time(values),
        min_cleanable_dirty_ratio=values.get_float("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=values.get_int("min.compaction.lag.ms"),
        preallocate=values.get_bool("preallocate"),
        remote_log_copy_disable=values.get_bool("remote.log.copy.disable"),
        remote_storage_enable=is_remote,
        retention_bytes=values.get_int("retention.bytes"),
        retention_ms=values.get_int("retention.ms"),
        segment_bytes=_segment_bytes(values),
        segment_index_bytes=values.get_int("segment.index.bytes"),
        segment_jitter_ms=values.get_int("segment.jitter.ms"),
        segment_ms=segment_ms,
    )


def _segment_bytes(values: ConfigValues) -> int:
    of_tests = values["internal.segment.bytes"]
    return of_tests if isinstance(of_tests, int) else values.get_int("segment.bytes")


def _is_log_append_time(values: ConfigValues) -> bool:
    return values.get_str("message.timestamp.type") == "LogAppendTime"


def _validation_rules(values: ConfigValues) -> ValidationRules:
    """Turn a topic's effective settings into rules for a producer's batches."""
    compression = values.get_str("compression.type")
    codec: Codec | None = None
    level: int | None = None
    if compression == "uncompressed":
        codec = Codec.NONE
    elif compression != "producer":
        codec = Codec[compression.upper()]
        if codec is not Codec.SNAPPY:
            level = values.get_int(f"compression.{compression}.level")
    return ValidationRules(
        compacted="compact" in values.get_list("cleanup.policy"),
        log_append_time=_is_log_append_time(values),
        timestamp_before_max_ms=values.get_int("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.get_int("message.timestamp.after.max.ms"),
        codec=codec,
        level=level,
        max_message_bytes=values.get_int("max.message.bytes"),
    )
