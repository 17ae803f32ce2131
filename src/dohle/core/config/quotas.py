"""The broker configs of client quotas. The quotas themselves are in the metadata log."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, Range

QUOTA_CONFIGS: Final = (
    ConfigKey(
        "controller.quota.window.num",
        ConfigType.INT,
        11,
        "For how many windows of time a client may have partitions created and deleted at once, "
        "if it has not done so for as long.",
        Range(1),
    ),
    ConfigKey(
        "controller.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "How long each of these windows is.",
        Range(1),
    ),
    ConfigKey(
        "quota.window.num",
        ConfigType.INT,
        11,
        "Over how many windows of time the rates of clients with quotas are averaged.",
        Range(1),
    ),
    ConfigKey(
        "quota.window.size.seconds",
        ConfigType.INT,
        1,
        "How long each of these windows is.",
        Range(1),
    ),
)
