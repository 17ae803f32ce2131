"""How the tables of broker configs without effect are written: rows, and a reason for several."""

from __future__ import annotations

from dohle.core.config.definition import ConfigKey, ConfigType, ConfigValue, UpdateMode, Validator


def row(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    limits: Validator | None = None,
    update_mode: UpdateMode = UpdateMode.READ_ONLY,
    *,
    is_internal: bool = False,
) -> ConfigKey:
    """Declare a config; what Kafka does with it is for Kafka's documentation to say."""
    is_sensitive = type_ is ConfigType.PASSWORD
    return ConfigKey(name, type_, default, "", limits, update_mode, is_sensitive, is_internal)


def because(reason: str, *keys: ConfigKey) -> tuple[ConfigKey, ...]:
    """Give configs the reason why they have no effect."""
    return tuple(key._replace(no_effect=reason) for key in keys)
