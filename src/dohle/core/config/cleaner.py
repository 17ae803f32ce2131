"""The broker configs of the log cleaner. Those of topics have defaults for brokers of their own."""

from __future__ import annotations

import sys
from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, Range, UpdateMode

_BOOLEAN, _INT = ConfigType.BOOLEAN, ConfigType.INT
_LONG, _DOUBLE = ConfigType.LONG, ConfigType.DOUBLE
_CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

CLEANER_CONFIGS: Final = (
    ConfigKey(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "How long the cleaner waits when no log is dirty enough to be compacted.",
        Range(0),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 << 20,
        "The memory for the keys of the logs that are being compacted, of all cleaner threads "
        "together. Keys that do not fit are compacted in the next round.",
        None,
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.enable",
        _BOOLEAN,
        True,
        "Whether logs are compacted at all. If not, topics with cleanup.policy=compact only "
        "grow, those of groups and transactions among them.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "How full the memory for keys may become, from 0 to 1.",
        None,
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        _INT,
        512 << 10,
        "The memory for reading and writing records, of all cleaner threads together.",
        Range(0),
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        sys.float_info.max,
        "How many bytes all cleaner threads together may read and write in a second.",
        None,
        _CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.threads",
        _INT,
        1,
        "How many logs may be compacted at the same time; 0 means none.",
        Range(0),
        _CLUSTER_WIDE,
    ),
)
