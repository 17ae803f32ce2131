"""The broker configs of the remote tier."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, NotEmpty, Range, UpdateMode

_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE
_AT_START: Final = " A change takes effect at the next start."

TIER_CONFIGS: Final[tuple[ConfigKey, ...]] = (
    ConfigKey(
        "remote.fetch.max.wait.ms",
        _INT,
        500,
        "How long a fetch waits for the remote tier; what comes later is in the next answer.",
        Range(1),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "remote.list.offsets.request.timeout.ms",
        _LONG,
        30_000,
        "How long an offset is looked for by time in the remote tier, if the request does not say.",
        Range(1),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "remote.log.index.file.cache.total.size.bytes",
        _LONG,
        1 << 30,
        "How many bytes of indexes of remote segments are kept in the first log directory."
        + _AT_START,
        Range(1),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "remote.log.manager.copier.thread.pool.size",
        _INT,
        10,
        "How many segments are copied to the remote tier, or deleted there, at a time." + _AT_START,
        Range(1),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "remote.log.manager.task.interval.ms",
        _LONG,
        30_000,
        "How long after the end of a round of copies and deletions the next one begins.",
        Range(1),
    ),
    ConfigKey(
        "remote.log.metadata.manager.impl.prefix",
        _STRING,
        "rlmm.config.",
        "What the settings of the metadata topic begin with.",
        NotEmpty(),
    ),
    ConfigKey(
        "remote.log.reader.max.pending.tasks",
        _INT,
        100,
        "How many reads of the remote tier may be under way; more are refused.",
        Range(1),
    ),
    ConfigKey(
        "remote.log.reader.threads",
        _INT,
        10,
        "How many reads of the remote tier are made at a time." + _AT_START,
        Range(1),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "remote.log.storage.manager.impl.prefix",
        _STRING,
        "rsm.config.",
        "What the settings of the store begin with.",
        NotEmpty(),
    ),
    ConfigKey(
        "remote.log.storage.system.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether there is a remote tier, where topics with remote.storage.enable=true keep closed "
        "segments. Needs a store: rsm.config.url=file:///FOLDER.",
    ),
)
