"""Settings by Kafka's names: a dict that works with librdkafka or Java's clients works here.

A field of the settings is found by its own name, by that name with dots, and by the other names
that Kafka's clients have for it. A misspelt name is refused. What only librdkafka has a use for is
told in the log, once for each client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from dohle.client.settings.security import is_about_security, security_of

logger = logging.getLogger("dohle.client")

Where = Cluster | str | Iterable[str] | Mapping[str, Any]
C = TypeVar("C", ProducerConfig, ConsumerConfig, ClientConfig)

_BOOTSTRAP = ("bootstrap.servers", "bootstrap_servers", "metadata.broker.list")
#: Other names of fields: Kafka's where they differ, and librdkafka's.
_ALIASES = {
    "acks": ("request.required.acks",),
    "api_timeout_ms": ("default.api.timeout.ms",),
    "codec": ("compression.type", "compression.codec"),
    "delivery_timeout_ms": ("message.timeout.ms",),
    "fetch_max_wait_ms": ("fetch.wait.max.ms",),
    "linger_ms": ("queue.buffering.max.ms",),
    "max_in_flight_requests": ("max.in.flight.requests.per.connection", "max.in.flight"),
    "max_partition_fetch_bytes": ("fetch.message.max.bytes",),
    "max_request_size": ("message.max.bytes",),
    "metadata_max_age_ms": ("topic.metadata.refresh.interval.ms",),
    "request_timeout_ms": ("socket.timeout.ms",),
    "response_bytes_max": ("receive.message.max.bytes",),
    "retries": ("message.send.max.retries",),
}
#: Names of librdkafka's own machinery, which is not here.
_WITHOUT_EFFECT = {
    "api.version.request",
    "broker.address.family",
    "broker.address.ttl",
    "broker.version.fallback",
    "debug",
    "enable.partition.eof",
    "log_level",
    "log.connection.close",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "statistics.interval.ms",
}
_SIMILARITY_MIN = 0.7


class Given(NamedTuple):
    """What a producer or consumer works with."""

    cluster: Cluster
    #: Whether the cluster was made for it, and is closed with it.
    is_own: bool
    config: Any


def given(where: Where, config: C | None, kind: type[C], more: Mapping[str, Any]) -> Given:
    """Understand how a user has described a cluster and the settings of a client of it."""
    if isinstance(where, Cluster):
        _, own, common = _sort(kind, more)
        if common:
            raise ValueError(f"{', '.join(common)}: belongs to the Cluster that was given")
        return Given(where, False, _config(kind, config, own))
    named = {**where, **more} if isinstance(where, Mapping) else dict(more)
    bootstrap, own, common = _sort(kind, named)
    if not isinstance(where, Mapping):
        bootstrap = where
    if bootstrap is None:
        raise ValueError(
            'no brokers are named: give "host:9092", or {"bootstrap.servers": "host:9092"}'
        )
    settings = _config(kind, config, own)
    shared = settings if isinstance(settings, ClientConfig) else ClientConfig(**common)
    return Given(Cluster(bootstrap, shared), True, settings)


def _config(kind: type[C], config: C | None, own: Mapping[str, Any]) -> C:
    if config is not None and own:
        raise ValueError(f"{', '.join(own)}: is given beside a {kind.__name__}; put it in there")
    if config is not None and not isinstance(config, kind):
        raise TypeError(f"config is a {type(config).__name__}: it must be a {kind.__name__}")
    return config or kind(**own)


def _sort(
    kind: type[Any], named: Mapping[str, Any]
) -> tuple[str | Iterable[str] | None, dict[str, Any], dict[str, Any]]:
    """Return the brokers, the settings of this kind and those that all kinds share."""
    bootstrap = None
    own: dict[str, Any] = {}
    common: dict[str, Any] = {}
    security: dict[str, Any] = {}
    own_names, common_names = _names(kind), _names(ClientConfig)
    for name, value in named.items():
        if name in _BOOTSTRAP:
            bootstrap = value
        elif is_about_security(name):
            security[name] = value
        elif (field := own_names.get(name)) is not None:
            own[field] = value
        elif (field := common_names.get(name)) is not None:
            common[field] = value
        elif name in _WITHOUT_EFFECT:
            logger.warning("%s has no effect: it is about the insides of librdkafka", name)
        elif not (name in _names(ProducerConfig) or name in _names(ConsumerConfig)):
            raise ValueError(_unknown(name, [*own_names, *common_names, *_BOOTSTRAP]))
        else:
            # One dict for all clients of a program is common: Java's ignore what is not theirs.
            logger.info("%s has no effect on a client of this kind", name)
    if security:
        (own if kind is ClientConfig else common)["security"] = security_of(security)
    return bootstrap, own, common


def _names(kind: type[Any]) -> dict[str, str]:
    found = {}
    for field in fields(kind):
        for name in (field.name, field.name.replace("_", "."), *_ALIASES.get(field.name, ())):
            found[name] = field.name
    return found


def _unknown(name: str, known: list[str]) -> str:
    import difflib  # costs milliseconds, and names are rarely unknown

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY_MIN)
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    return f"unknown setting {name}{hint}"
