"""The configs of a subscription to client metrics (KIP-714); no client is asked for any yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, ListOf, UpdateMode
from dohle.core.errors import ErrorCode, KafkaError

_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"
_INTERVAL_LIMITS: Final = (100, 3_600_000)
_CLIENT_LABELS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def _key(name: str, type_: ConfigType, default: int | tuple[str, ...], doc: str) -> ConfigKey:
    limits = ListOf(may_be_empty=True) if type_ is ConfigType.LIST else None
    return ConfigKey(
        *(name, type_, default, doc, limits, UpdateMode.CLUSTER_WIDE),
        no_effect="clients are not asked for metrics yet",
    )


CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        key.name: key
        for key in (
            _key(_INTERVAL, ConfigType.INT, 300_000, "How often clients send their metrics."),
            _key(_MATCH, ConfigType.LIST, (), "Which clients it is about, as label=pattern,...."),
            _key("metrics", ConfigType.LIST, (), "The prefixes of the metrics that are sent."),
        )
    }
)


def validate_client_metrics_overrides(name: str, pairs: Mapping[str, str]) -> None:
    """Refuse what Kafka refuses as configs of the subscription ``name``, with its codes."""
    if not name:
        raise _bad_request("Subscription name can't be empty")
    for each in pairs:
        if each not in CLIENT_METRICS_CONFIGS:
            raise _bad_request(f"Unknown client metrics configuration: {each}")
    values = {each: CLIENT_METRICS_CONFIGS[each].parse(text) for each, text in pairs.items()}
    interval = values.get(_INTERVAL)
    least, most = _INTERVAL_LIMITS
    if isinstance(interval, int) and not least <= interval <= most:
        raise _bad_request(
            f"Invalid value {interval} for {_INTERVAL}, interval must be between {least} and "
            f"{most} (1 hour)"
        )
    patterns = values.get(_MATCH)
    for pattern in patterns if isinstance(patterns, tuple) else ():
        if not _is_pattern(pattern):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}"
            )


def _is_pattern(text: str) -> bool:
    label, *rest = text.split("=")
    if label.strip() not in _CLIENT_LABELS or len(rest) != 1 or not rest[0]:
        return False
    try:
        re.compile(rest[0].strip())
    except re.error:
        return False
    return True


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
