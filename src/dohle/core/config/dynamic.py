"""What is refused as dynamic configs of a broker, or of all brokers.

The rules are Kafka's, and so is the code: INVALID_REQUEST, not INVALID_CONFIG. Unknown names are
kept, as a newer release may know them. What has no effect here is accepted like the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigKey, ConfigValues, UpdateMode
from dohle.core.config.static import (
    BrokerConfig,
    base_name,
    check_numbers,
    effective_broker_config,
)
from dohle.core.config.topic import effective_topic_config
from dohle.core.config.topic_rules import check_local_limits
from dohle.core.errors import ErrorCode, KafkaError

#: The stores of keys: one listener at a time, ``listener.name.<name>.<config>``.
_PER_LISTENER: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
#: What nothing reads must not fill the metadata log.
_UNKNOWN_MAX: Final = 1_000
#: At most doubled or halved at a time.
_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)


def validate_broker_overrides(
    pairs: Mapping[str, str],
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    *,
    cluster_wide: bool,
) -> None:
    """Refuse ``pairs`` in place of one of the two levels of dynamic configs."""
    keys = {name: BROKER_CONFIGS.get(base_name(name)) for name in pairs}
    known = {name: key for name, key in keys.items() if key is not None}
    if len(pairs) - len(known) > _UNKNOWN_MAX:
        raise _bad_request(f"No more than {_UNKNOWN_MAX} configs of unknown names are kept")
    _refuse(
        "Cannot update these configs dynamically",
        [name for name in known if name in BROKER_CONFIGS and _is_fixed(known[name])],
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        [name for name in pairs if name in _PER_LISTENER],
    )
    try:
        values = {name: key.parse(pairs[name]) for name, key in known.items()}
        check_numbers(values)
        if cluster_wide:
            after = effective_broker_config(broker, dynamic_broker, pairs)
            topics = effective_topic_config({}, broker, dynamic_broker, pairs)
        else:
            after = effective_broker_config(broker, pairs, dynamic_default)
            topics = effective_topic_config({}, broker, pairs, dynamic_default)
        _check_threads(effective_broker_config(broker, dynamic_broker, dynamic_default), after)
        check_local_limits(topics, prefix="log.")
    except KafkaError as error:
        raise _bad_request(error.args[0]) from None
    if cluster_wide:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [name for name in known if _is_of_one_broker(name, known[name])],
        )


def _is_fixed(key: ConfigKey) -> bool:
    return key.update_mode is UpdateMode.READ_ONLY


def _is_of_one_broker(name: str, key: ConfigKey) -> bool:
    if name != key.name:
        return key.name not in _CLUSTER_WIDE_OF_LISTENERS
    return key.update_mode is UpdateMode.PER_BROKER


def _check_threads(before: ConfigValues, after: ConfigValues) -> None:
    for name in _THREADS:
        now, wanted = before.get_int(name), after.get_int(name)
        failed = f"Dynamic thread count update validation failed for {name}={wanted}"
        if wanted == now:
            continue
        if wanted < 1:
            raise _bad_request(f"{failed}, value should be at least 1")
        if wanted < now // 2:
            raise _bad_request(f"{failed}, value should be at least half the current value {now}")
        if wanted > now * 2:
            raise _bad_request(
                f"{failed}, value should not be greater than double the current value {now}"
            )


def _refuse(reason: str, names: list[str]) -> None:
    if names:
        raise _bad_request(f"{reason}: Set({', '.join(names)})")


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
