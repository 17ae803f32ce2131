"""The configs of a group: its deviations from what the brokers set for all groups.

They apply to consumer groups (KIP-848): the coordinator tells members how often to send a
heartbeat, and removes them after how much silence. The broker configs
``group.consumer.{min,max}.*`` are the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from dohle.core.config.definition import ConfigKey, ConfigType, ConfigValues, Range, UpdateMode
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"


class _OfBrokers(NamedTuple):
    """The broker configs behind a group config: its default and its limits."""

    default: str
    least: str
    most: str


_BROKER_CONFIGS: Final = {
    SESSION_TIMEOUT_MS: _OfBrokers(
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    HEARTBEAT_INTERVAL_MS: _OfBrokers(
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
}

GROUP_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        name: ConfigKey(
            name, ConfigType.INT, default, doc, Range(1), update_mode=UpdateMode.CLUSTER_WIDE
        )
        for name, default, doc in (
            (
                SESSION_TIMEOUT_MS,
                45_000,
                "How long a member of the group may stay without a heartbeat before it is removed.",
            ),
            (
                HEARTBEAT_INTERVAL_MS,
                5_000,
                "How often members of the group are told to send a heartbeat.",
            ),
        )
    }
)


def effective_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> ConfigValues:
    """Return the value of every config for a group with these overrides."""
    return ConfigValues(
        {
            name: key.parse(overrides[name])
            if name in overrides
            else broker.get_int(_BROKER_CONFIGS[name].default)
            for name, key in GROUP_CONFIGS.items()
        }
    )


def validate_group_overrides(pairs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse unknown names, and values that are not allowed or contradict each other."""
    for name in pairs:
        if name not in GROUP_CONFIGS:
            raise _invalid(f"There is no group config {name}.")
    values = effective_group_config(pairs, broker)
    for name, (_, least, most) in _BROKER_CONFIGS.items():
        if not broker.get_int(least) <= values.get_int(name) <= broker.get_int(most):
            raise _invalid(
                f"{name} is {values[name]}; {least} is {broker.get_int(least)} and {most} is "
                f"{broker.get_int(most)}."
            )
    if values.get_int(SESSION_TIMEOUT_MS) <= values.get_int(HEARTBEAT_INTERVAL_MS):
        raise _invalid(f"{SESSION_TIMEOUT_MS} has to be greater than {HEARTBEAT_INTERVAL_MS}.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
