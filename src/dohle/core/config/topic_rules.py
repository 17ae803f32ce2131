"""What is refused as configs of a topic: unknown names, values, and values that contradict.

The rules between configs are Kafka's. They count the broker's values for what the topic leaves out,
and those of remote storage count ``remote.log.storage.system.enable``: without it, no topic can be
told to use what is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dohle.core.config.definition import ConfigValues, invalid_value
from dohle.core.config.static import BrokerConfig
from dohle.core.config.topic import TOPIC_CONFIGS, effective_topic_config
from dohle.core.errors import ErrorCode, KafkaError

_REMOTE: Final = "remote.storage.enable"
_COPY_DISABLED: Final = "remote.log.copy.disable"
_DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
_MIN_LAG: Final = "min.compaction.lag.ms"
_MAX_LAG: Final = "max.compaction.lag.ms"
#: A local limit, the limit that it must keep to, and what means "as much as that".
_LOCAL_LIMITS: Final = (
    ("local.retention.bytes", "retention.bytes"),
    ("local.retention.ms", "retention.ms"),
)
_SAME: Final = -2
_NO_LIMIT: Final = -1
_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


def validate_topic_overrides(
    pairs: Mapping[str, str], broker: BrokerConfig, before: Mapping[str, str] = _NO_CONFIGS
) -> None:
    """Refuse these configs of a topic, which had those of ``before``, by INVALID_CONFIG."""
    for name in pairs:
        if name not in TOPIC_CONFIGS:
            raise _refusal(f"Unknown topic config name: {name}")
    for name, text in pairs.items():
        TOPIC_CONFIGS[name].parse(text)
    if _MIN_LAG in pairs or _MAX_LAG in pairs:
        _check_lags(effective_topic_config(pairs, broker))
    if _is_true(pairs, _REMOTE):
        _check_remote(effective_topic_config(pairs, broker), broker)
    elif _is_true(before, _REMOTE) and not _is_true(pairs, _DELETE_ON_DISABLE):
        raise _refusal(
            "It is invalid to disable remote storage without deleting remote data. If you want to "
            "keep the remote data and turn to read only, please set "
            f"`{_REMOTE}=true,{_COPY_DISABLED}=true`. If you want to disable remote storage and "
            f"delete all remote data, please set `{_REMOTE}=false,{_DELETE_ON_DISABLE}=true`."
        )


def _check_lags(values: ConfigValues) -> None:
    least, most = values.get_int(_MIN_LAG), values.get_int(_MAX_LAG)
    if least > most:
        raise _refusal(f"conflict topic config setting {_MIN_LAG} ({least}) > {_MAX_LAG} ({most})")


def _check_remote(values: ConfigValues, broker: BrokerConfig) -> None:
    if not broker.get_bool("remote.log.storage.system.enable"):
        raise _refusal(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if values.get_list("cleanup.policy") not in ((), ("delete",)):
        raise _refusal(
            "Remote log storage only supports topics with cleanup.policy=delete or "
            "cleanup.policy being an empty list."
        )
    check_local_limits(values)
    for local_name, name in _LOCAL_LIMITS:
        local, limit = values.get_int(local_name), values.get_int(name)
        if local not in (_SAME, limit) and values.get_bool(_COPY_DISABLED):
            raise _refusal(
                f"When `{_COPY_DISABLED}` is set to true, the `{local_name}` and `{name}` must be "
                "set to the identical value because there will be no more logs copied to the "
                "remote storage."
            )


def check_local_limits(values: ConfigValues, *, prefix: str = "") -> None:
    """Refuse to keep more here than is kept at all; ``prefix`` is how brokers name the configs."""
    for local_name, name in _LOCAL_LIMITS:
        local, limit = values.get_int(local_name), values.get_int(name)
        if local == _SAME or limit <= _NO_LIMIT:
            continue
        if local == _NO_LIMIT:
            reason = f"Value must not be -1 as {prefix}{name} value is set as {limit}."
            raise invalid_value(f"{prefix}{local_name}", local, reason)
        if local > limit:
            reason = f"Value must not be more than {prefix}{name} property value: {limit}"
            raise invalid_value(f"{prefix}{local_name}", local, reason)


def _is_true(pairs: Mapping[str, str], name: str) -> bool:
    return pairs.get(name, "").strip().lower() == "true"


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
