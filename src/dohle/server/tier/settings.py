"""Where the remote tier is, and how it is used: from Kafka's configs and those of Aiven's plugin.

``rsm.config.url`` names the store by one URL. The plugin's own names do as well:
``rsm.config.storage.backend.class`` with ``rsm.config.storage.root`` is a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError

SYSTEM_ENABLE: Final = "remote.log.storage.system.enable"
_METADATA: Final = "remote.log.metadata.topic."
_FOLDER_BACKEND: Final = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"


@dataclass(frozen=True, slots=True)
class TierSettings:
    """What does not change while a broker runs."""

    #: Where the store is.
    url: str
    #: What all keys begin with.
    prefix: str
    metadata_partitions: int
    metadata_replication_factor: int
    metadata_retention_ms: int
    task_interval_ms: int
    copier_threads: int
    reader_threads: int
    reader_pending_max: int
    index_cache_bytes: int

    @property
    def metadata_configs(self) -> dict[str, str]:
        """With which configs the metadata topic is created.

        All replicas of a segment are deleted on the word of its records: so these must not be lost
        with the power, nor with one broker.
        """
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(self.metadata_retention_ms),
            "remote.storage.enable": "false",
            "flush.messages": "1",
        }
        if self.metadata_replication_factor > 2:
            configs["min.insync.replicas"] = "2"
        return configs

    @classmethod
    def of(cls, config: BrokerConfig) -> TierSettings | None:
        """Return them; None if there is no remote tier. INVALID_CONFIG says what is wrong."""
        if not config.get_bool(SYSTEM_ENABLE):
            return None
        rsm = config.get_str("remote.log.storage.manager.impl.prefix")
        rlmm = config.get_str("remote.log.metadata.manager.impl.prefix") + _METADATA
        replicas = 1 if config.placement.is_alone else 3
        return cls(
            url=_url(config, rsm),
            prefix=config.text(f"{rsm}key.prefix") or "",
            metadata_partitions=_number(config, f"{rlmm}num.partitions", 50),
            metadata_replication_factor=_number(config, f"{rlmm}replication.factor", replicas),
            metadata_retention_ms=_number(config, f"{rlmm}retention.ms", -1, least=-1),
            task_interval_ms=config.get_int("remote.log.manager.task.interval.ms"),
            copier_threads=config.get_int("remote.log.manager.copier.thread.pool.size"),
            reader_threads=config.get_int("remote.log.reader.threads"),
            reader_pending_max=config.get_int("remote.log.reader.max.pending.tasks"),
            index_cache_bytes=config.get_int("remote.log.index.file.cache.total.size.bytes"),
        )


def _url(config: BrokerConfig, prefix: str) -> str:
    url = config.text(f"{prefix}url")
    if url is not None:
        return url
    backend = config.text(f"{prefix}storage.backend.class")
    root = config.text(f"{prefix}storage.root")
    if backend == _FOLDER_BACKEND and root:
        return root
    if backend is not None and backend != _FOLDER_BACKEND:
        raise _refusal(
            f"{prefix}storage.backend.class is {backend}: here only {_FOLDER_BACKEND} can be named"
            f" so; set {prefix}url to s3://BUCKET, gs://BUCKET or az://CONTAINER instead"
        )
    raise _refusal(
        f"{SYSTEM_ENABLE}=true needs a store: set {prefix}url to file:///FOLDER or s3://BUCKET, or"
        f" {prefix}storage.backend.class to {_FOLDER_BACKEND} and {prefix}storage.root to a folder"
    )


def _number(config: BrokerConfig, name: str, default: int, *, least: int = 1) -> int:
    text = config.text(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise _refusal(f"{name} is {text}: it must be a number") from None
    if number < least:
        raise _refusal(f"{name} is {text}: it must be {least} or more")
    return number


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
