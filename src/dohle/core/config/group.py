"""The configs of a group: its deviations from what the brokers set for all groups.

Those of consumer groups (KIP-848) say how often members are told to send a heartbeat, and after how
much silence they are removed. Those of share groups and streams groups are checked and kept, though
there are no such groups yet. The broker configs ``group.*.{min,max}.*`` are the limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from dohle.core.config.definition import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    ConfigValues,
    OneOf,
    Range,
    UpdateMode,
    Validator,
    invalid_value,
)
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
_OFFSET_RESET: Final = "share.auto.offset.reset"
_NOT_SERVED: Final = {
    "share": "there are no share groups yet",
    "streams": "there are no streams groups yet",
}
# An ISO 8601 duration as java.time.Duration reads it.
_DURATION: Final = re.compile(
    r"by_duration:(?i:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{0,9})?S)?)?)"
)


class _OfBrokers(NamedTuple):
    """The broker configs behind a group config: its default and its limits."""

    default: str | None
    least: str | None
    most: str | None


def _of_brokers(kind: str, what: str, *, has_default: bool = True) -> _OfBrokers:
    default = f"group.{kind}.{what}" if has_default else None
    return _OfBrokers(default, f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")


_HEARTBEAT, _SESSION, _LOCK = (
    "heartbeat.interval.ms",
    "session.timeout.ms",
    "record.lock.duration.ms",
)
_BROKER_CONFIGS: Final = {
    SESSION_TIMEOUT_MS: _of_brokers("consumer", _SESSION),
    HEARTBEAT_INTERVAL_MS: _of_brokers("consumer", _HEARTBEAT),
    f"share.{_SESSION}": _of_brokers("share", _SESSION),
    f"share.{_HEARTBEAT}": _of_brokers("share", _HEARTBEAT),
    f"share.{_LOCK}": _of_brokers("share", _LOCK),
    # As in Kafka, the broker's own values are not the defaults of these.
    f"streams.{_SESSION}": _of_brokers("streams", _SESSION, has_default=False),
    f"streams.{_HEARTBEAT}": _of_brokers("streams", _HEARTBEAT, has_default=False),
    "streams.num.standby.replicas": _OfBrokers(None, None, "group.streams.max.standby.replicas"),
}


def _key(name: str, default: ConfigValue, doc: str, limits: Validator | None = None) -> ConfigKey:
    type_ = ConfigType.STRING if isinstance(default, str) else ConfigType.INT
    return ConfigKey(
        *(name, type_, default, doc, limits, UpdateMode.CLUSTER_WIDE),
        no_effect=_NOT_SERVED.get(name.partition(".")[0], ""),
    )


_REMOVED: Final = (
    "How long a member of the group may stay without a heartbeat before it is removed."
)
_TOLD: Final = "How often members of the group are told to send a heartbeat."
_KEYS: Final = (
    _key(HEARTBEAT_INTERVAL_MS, 5_000, _TOLD, Range(1)),
    _key(SESSION_TIMEOUT_MS, 45_000, _REMOVED, Range(1)),
    _key(
        _OFFSET_RESET,
        "latest",
        "Where a new share group begins: latest, earliest, or by_duration: and a time back.",
    ),
    _key(f"share.{_HEARTBEAT}", 5_000, _TOLD, Range(1)),
    _key(
        "share.isolation.level",
        "read_uncommitted",
        "Whether members get records of transactions that are open or were aborted.",
        OneOf(("read_committed", "read_uncommitted")),
    ),
    _key(f"share.{_LOCK}", 30_000, "How long a member has a record for itself.", Range(1000)),
    _key(f"share.{_SESSION}", 45_000, _REMOVED, Range(1)),
    _key(f"streams.{_HEARTBEAT}", 5_000, _TOLD, Range(1)),
    _key(
        "streams.initial.rebalance.delay.ms",
        3_000,
        "How long an empty group waits for more members before its first rebalance.",
        Range(0),
    ),
    _key("streams.num.standby.replicas", 0, "How many standbys each stateful task has.", Range(0)),
    _key(f"streams.{_SESSION}", 45_000, _REMOVED, Range(1)),
)

GROUP_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})


def effective_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> ConfigValues:
    """Return the value of every config for a group with these overrides."""
    values = ConfigValues()
    for name, key in GROUP_CONFIGS.items():
        of_brokers = _BROKER_CONFIGS.get(name)
        if name in overrides:
            values[name] = key.parse(overrides[name])
        elif of_brokers is not None and of_brokers.default is not None:
            values[name] = broker[of_brokers.default]
        else:
            values[name] = key.default
    return values


def validate_group_overrides(pairs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse unknown names, and values that are not allowed or contradict each other."""
    for name in pairs:
        if name not in GROUP_CONFIGS:
            raise _invalid(f"There is no group config {name}.")
    values = effective_group_config(pairs, broker)
    _check_offset_reset(values.get_str(_OFFSET_RESET))
    for name, (_, least, most) in _BROKER_CONFIGS.items():
        _check_limits(values, name, least, most, broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.{_SESSION}", f"{kind}.{_HEARTBEAT}"
        if values.get_int(session) <= values.get_int(heartbeat):
            raise _invalid(f"{session} has to be greater than {heartbeat}.")


def _check_limits(
    values: ConfigValues, name: str, least: str | None, most: str | None, broker: BrokerConfig
) -> None:
    too_low = least is not None and values.get_int(name) < broker.get_int(least)
    too_high = most is not None and values.get_int(name) > broker.get_int(most)
    if too_low or too_high:
        limits = [f"{one} is {broker.get_int(one)}" for one in (least, most) if one is not None]
        raise _invalid(f"{name} is {values[name]}; {' and '.join(limits)}.")


def _check_offset_reset(value: str) -> None:
    if value not in ("latest", "earliest") and not _DURATION.fullmatch(value):
        raise invalid_value(
            _OFFSET_RESET,
            value,
            "it must be latest, earliest, or by_duration:PnDTnHnMn.nS with a time that is not "
            "negative",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
