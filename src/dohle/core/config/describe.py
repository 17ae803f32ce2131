"""What DescribeConfigs reports of topics, brokers, all brokers, groups and client metrics.

For each config: its value, where the value comes from, and its synonyms: the other names and levels
that can set it, in order of precedence. The lists match Kafka's exactly: a level that sets the
value only under another name (``log.retention.hours`` for ``retention.ms``) is not listed before
one with the main name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from dohle.core.config.broker import BROKER_CONFIGS, DYNAMIC_ONLY
from dohle.core.config.client_metrics import CLIENT_METRICS_CONFIGS
from dohle.core.config.definition import NO_EFFECT, ConfigKey, ConfigType, ConfigValue, UpdateMode
from dohle.core.config.group import GROUP_CONFIGS, effective_group_config
from dohle.core.config.static import BrokerConfig, base_name, effective_broker_config
from dohle.core.config.topic import TOPIC_CONFIGS, effective_topic_config


class ConfigSource(IntEnum):
    """The level a value comes from, by its code in the response."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """A name and a level that can set a config."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One config with its current value."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """Tell whether it was never set."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[DescribedConfig]:
    """Describe a topic with these overrides; only these configs if ``names`` are given."""
    values = effective_topic_config(overrides, broker, dynamic_broker, dynamic_default)
    described = []
    for key in _selected(TOPIC_CONFIGS.values(), names):
        if key.is_internal and key.name not in overrides:
            continue
        synonyms = []
        if key.synonyms:
            synonyms = _synonyms(key.synonyms[0], broker, dynamic_broker, dynamic_default)
        if key.name in overrides:
            text = key.format(values[key.name])
            synonyms.insert(0, ConfigSynonym(key.name, text, ConfigSource.TOPIC_CONFIG))
        described.append(_described(key, values[key.name], synonyms, read_only=False))
    return described


def describe_broker(
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[DescribedConfig]:
    """Describe a broker; only these configs if ``names`` are given."""
    values = effective_broker_config(broker, dynamic_broker, dynamic_default)
    described = []
    given = {**broker.texts, **dynamic_default, **dynamic_broker}
    keys = [key for key in BROKER_CONFIGS.values() if not key.is_internal or key.name in given]
    keys += (_unknown(name) for name in given if name not in BROKER_CONFIGS)
    for key in _selected(keys, names):
        synonyms = _synonyms(key.name, broker, dynamic_broker, dynamic_default)
        described.append(
            _described(key, values.get(key.name), synonyms, read_only=_is_read_only(key))
        )
    return described


def describe_cluster_default(
    dynamic_default: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Describe the defaults set for all brokers: the broker resource without a name."""
    described = []
    keys = [BROKER_CONFIGS.get(name) or _unknown(name) for name in sorted(dynamic_default)]
    for key in _selected(keys, names):
        text = dynamic_default[key.name]
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        synonyms = [ConfigSynonym(key.name, text, source)]
        described.append(_described(key, text, synonyms, read_only=_is_read_only(key)))
    return described


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Describe a group with these overrides; as in Kafka, the broker's value is the default."""
    values = effective_group_config(overrides, broker)
    described = []
    for key in _selected(GROUP_CONFIGS.values(), names):
        is_set = key.name in overrides
        source = ConfigSource.GROUP_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
        synonyms = [ConfigSynonym(key.name, key.format(values[key.name]), source)]
        described.append(_described(key, values[key.name], synonyms, read_only=False))
    return described


def describe_client_metrics(
    overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Describe a subscription to client metrics with these overrides."""
    described = []
    for key in _selected(CLIENT_METRICS_CONFIGS.values(), names):
        is_set = key.name in overrides
        value = key.parse(overrides[key.name]) if is_set else key.default
        source = ConfigSource.CLIENT_METRICS_CONFIG
        synonyms = [ConfigSynonym(key.name, key.format(value), source)] if is_set else []
        described.append(_described(key, value, synonyms, read_only=False))
    return described


def _unknown(name: str) -> ConfigKey:
    """Return what is known of an unknown config of a broker: as in Kafka, its value is hidden."""
    of_all = BROKER_CONFIGS.get(base_name(name))
    if of_all is not None:
        return of_all._replace(name=name, no_effect="listeners have no configs of their own yet")
    return ConfigKey(
        *(name, ConfigType.UNKNOWN, None, ""), is_sensitive=True, no_effect="it is not known"
    )


def _is_read_only(key: ConfigKey) -> bool:
    # As in Kafka, also what can be altered, but is not among the configs of a properties file.
    return key.update_mode is UpdateMode.READ_ONLY or key.name in DYNAMIC_ONLY


def _selected(keys: Iterable[ConfigKey], names: Collection[str] | None) -> list[ConfigKey]:
    return [key for key in keys if not names or key.name in names]


def _described(
    key: ConfigKey, value: ConfigValue, synonyms: list[ConfigSynonym], *, read_only: bool
) -> DescribedConfig:
    if key.is_sensitive:
        synonyms = [ConfigSynonym(one.name, None, one.source) for one in synonyms]
    return DescribedConfig(
        name=key.name,
        value=None if key.is_sensitive else key.format(value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        is_sensitive=key.is_sensitive,
        type=key.type,
        documentation=_documentation(key),
        synonyms=tuple(synonyms),
    )


def _synonyms(
    name: str,
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
) -> list[ConfigSynonym]:
    """Return where a broker config is set, starting at the first level that uses this very name."""
    levels = (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, dynamic_broker.get),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, dynamic_default.get),
        (ConfigSource.STATIC_BROKER_CONFIG, broker.text),
        (ConfigSource.DEFAULT_CONFIG, _default_text),
    )
    found: list[ConfigSynonym] = []
    for source, text_of in levels:
        for other in _SAME_THING.get(name, (name,)):
            text = text_of(other)
            if text is not None and (found or other == name):
                found.append(ConfigSynonym(other, text, source))
    return found


def _default_text(name: str) -> str | None:
    if name in DYNAMIC_ONLY or name not in BROKER_CONFIGS:
        return None
    return BROKER_CONFIGS[name].default_text


def _same_thing() -> dict[str, tuple[str, ...]]:
    groups = {}
    for key in TOPIC_CONFIGS.values():
        for name in key.synonyms:
            groups[name] = key.synonyms
    # Kafka's one exception: it is a separate interval, which flush.ms only falls back to.
    groups["log.flush.scheduler.interval.ms"] = ("log.flush.scheduler.interval.ms",)
    return groups


_SAME_THING = _same_thing()


def _documentation(key: ConfigKey) -> str:
    """Return a config's documentation, which says first if the config does nothing here."""
    reason = key.no_effect
    return f"{NO_EFFECT}: {reason}. {key.doc}".rstrip() if reason else key.doc
