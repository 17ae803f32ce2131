"""Which configs do nothing here, and how that is told.

They are accepted all the same, so that nobody is refused who merely mentions them. Whoever sets one
is told in the documentation that DescribeConfigs returns, and the operator in the log.
"""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import NO_EFFECT, ConfigKey, ConfigValue
from dohle.core.config.topic import NO_CLEANER

_POLICIES: Final = frozenset({"cleanup.policy", "log.cleanup.policy"})


def no_effect(key: ConfigKey, value: ConfigValue) -> str:
    """Return why a config with this value does nothing here; "" if it does what Kafka's does."""
    if key.name in _POLICIES and isinstance(value, tuple) and "compact" in value:
        return f"{NO_CLEANER}, so 'compact' leaves every record where it is"
    return key.no_effect


def documentation(key: ConfigKey, value: ConfigValue) -> str:
    """Return a config's documentation, which says first if the config does nothing."""
    reason = no_effect(key, value)
    return f"{NO_EFFECT}: {reason}. {key.doc}".rstrip() if reason else key.doc
