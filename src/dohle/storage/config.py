"""The topic settings that a log needs, under Kafka's names and with its defaults."""

from __future__ import annotations

from dataclasses import dataclass

#: The value of ``flush.messages`` and ``flush.ms`` with which only rolls and stops flush.
NEVER = 2**63 - 1
_SAME = -2
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One partition's settings. Each field is the topic config of the same name."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    index_interval_bytes: int = 4096
    #: -2: as ``retention_bytes`` and ``retention_ms`` say.
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = NEVER
    max_message_bytes: int = 1_048_588
    message_timestamp_type_log_append: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    #: Whether the log is in the remote tier, too.
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS

    @property
    def local_bytes_max(self) -> int:
        """How much of a log that is in the remote tier is kept here; -1 is no limit."""
        local = self.local_retention_bytes
        return self.retention_bytes if local == _SAME else local

    @property
    def local_ms_max(self) -> int:
        """How long records that are in the remote tier are kept here; -1 is no limit."""
        return self.retention_ms if self.local_retention_ms == _SAME else self.local_retention_ms

    @property
    def compact(self) -> bool:
        """Tell whether old values of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Tell whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Settings shared by all logs of a node. Each field is the broker config of the same name."""

    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_initial_task_delay_ms: int = 30_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = _DAY_MS
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
