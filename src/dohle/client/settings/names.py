"""Settings by Kafka's names: a dict that works with librdkafka or Java's clients works here.

A field of the settings is found by its own name, by that name with dots, and by the other names
that Kafka's clients have for it, with dots or, as arguments have to be, with underscores. A
misspelt name is refused, and a wrong value by the name that it was given under. What only
librdkafka has a use for is told in the log, once for each client.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from dohle.client.settings.security import dotted, is_about_security, known_names, security_of

logger = logging.getLogger("dohle.client")

Where = Cluster | str | Iterable[str] | Mapping[str, Any] | None
C = TypeVar("C", ProducerConfig, ConsumerConfig, ClientConfig)

_BOOTSTRAP = (
    "bootstrap.servers",
    "bootstrap_servers",
    "metadata.broker.list",
    "metadata_broker_list",
)
#: Other names of fields: Kafka's where they differ, and librdkafka's.
_ALIASES = {
    "acks": ("request.required.acks",),
    "api_timeout_ms": ("default.api.timeout.ms",),
    "codec": ("compression.type", "compression.codec"),
    "delivery_timeout_ms": ("message.timeout.ms",),
    "fetch_max_wait_ms": ("fetch.wait.max.ms",),
    "interceptors": ("interceptor.classes",),
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
#: What other clients have among their settings, and where it is here.
_ELSEWHERE = {
    "error_cb": "errors are raised, and the log dohle.client tells of brokers that are away",
    "on_commit": "commit raises what went wrong, and the log tells of automatic commits",
    "on_delivery": "send_soon returns a future: use its add_done_callback",
    "dr_cb": "send_soon returns a future: use its add_done_callback",
    "partitioner": "give partitioner= as an argument, beside the dict; murmur2 is the default",
    "key_serializer": "give key_serializer= as an argument, beside the dict",
    "value_serializer": "give value_serializer= as an argument, beside the dict",
    "key_deserializer": "give key_deserializer= as an argument, beside the dict",
    "value_deserializer": "give value_deserializer= as an argument, beside the dict",
}
_SIMILARITY_MIN = 0.7


class _Setting(NamedTuple):
    """A value, and the name that the user has given it under."""

    name: str
    value: Any


class Given(NamedTuple):
    """What a producer or consumer works with."""

    cluster: Cluster
    #: Whether the cluster was made for it, and is closed with it.
    is_own: bool
    config: Any


def given(where: Where, config: C | None, kind: type[C], more: Mapping[str, Any]) -> Given:
    """Understand how a user has described a cluster and the settings of a client of it."""
    if isinstance(where, Cluster):
        bootstrap, own, common = _sort(kind, more)
        if common or bootstrap is not None:
            names = ", ".join(common) or "bootstrap_servers"
            raise ValueError(f"{names}: belongs to the Cluster that was given")
        return Given(where, False, _config(kind, config, own))
    named = {**where, **more} if isinstance(where, Mapping) else dict(more)
    bootstrap, own, common = _sort(kind, named)
    if not (isinstance(where, Mapping) or where is None):
        if bootstrap is not None:
            raise ValueError("brokers are named twice: by the first argument, and by a setting")
        bootstrap = where
    if bootstrap is None:
        raise ValueError(
            'no brokers are named: give "host:9092", or {"bootstrap.servers": "host:9092"}'
        )
    settings = _config(kind, config, own)
    if isinstance(settings, ClientConfig):
        return Given(Cluster(bootstrap, settings), True, settings)
    return Given(Cluster(bootstrap, _config(ClientConfig, None, common)), True, settings)


def _config(kind: type[C], config: C | None, own: Mapping[str, _Setting]) -> C:
    if config is not None and own:
        raise ValueError(f"{', '.join(own)}: is given beside a {kind.__name__}; put it in there")
    if config is not None and not isinstance(config, kind):
        raise TypeError(f"config is a {type(config).__name__}: it must be a {kind.__name__}")
    if config is not None:
        return config
    try:
        return kind(**{field: each.value for field, each in own.items()})
    except (TypeError, ValueError) as error:
        text = str(error)
        for field, each in own.items():
            text = re.sub(rf"\b{field}\b", each.name, text)
        raise type(error)(text) from None


def _sort(
    kind: type[Any], named: Mapping[str, Any]
) -> tuple[str | Iterable[str] | None, dict[str, _Setting], dict[str, _Setting]]:
    """Return the brokers, the settings of this kind and those that all kinds share."""
    bootstrap = None
    own: dict[str, _Setting] = {}
    common: dict[str, _Setting] = {}
    security: dict[str, Any] = {}
    own_names, common_names = _names(kind), _names(ClientConfig)
    for name, value in named.items():
        if name in _BOOTSTRAP:
            bootstrap = value
        elif is_about_security(name):
            security[_known_to_security(name)] = value
        elif (field := own_names.get(name)) is not None:
            own[field] = _Setting(name, value)
        elif (field := common_names.get(name)) is not None:
            common[field] = _Setting(name, value)
        elif name in _WITHOUT_EFFECT:
            logger.warning("%s has no effect: it is internal to librdkafka", name)
        elif not (name in _names(ProducerConfig) or name in _names(ConsumerConfig)):
            raise ValueError(_unknown(name, [*own_names, *common_names, *_BOOTSTRAP]))
        else:
            # One dict for all clients of a program is common: Java's ignore what is not theirs.
            logger.info("%s has no effect on a client of this kind", name)
    if security:
        found = _Setting("security", security_of(security))
        (own if kind is ClientConfig else common)["security"] = found
    return bootstrap, own, common


def _known_to_security(name: str) -> str:
    known = known_names()
    if dotted(name) not in known:
        raise ValueError(_unknown(name, known if "." in name else _with_underscores(known)))
    return dotted(name)


def _names(kind: type[Any]) -> dict[str, str]:
    found = {}
    for field in fields(kind):
        others = _ALIASES.get(field.name, ())
        for name in (field.name, field.name.replace("_", "."), *others):
            found[name] = field.name
        found |= dict.fromkeys(_with_underscores(others), field.name)
    return found


def _with_underscores(names: Iterable[str]) -> list[str]:
    return [name.replace(".", "_") for name in names]


def _unknown(name: str, known: Iterable[str]) -> str:
    import difflib  # costs milliseconds, and names are rarely unknown

    elsewhere = _ELSEWHERE.get(name.replace(".", "_"))
    if elsewhere is not None:
        return f"{name} is not a setting here: {elsewhere}"
    # Arguments cannot have dots: what is told must be what can be written there.
    alike = [one for one in known if ("." in one) == ("." in name) or "_" not in one + name]
    nearest = difflib.get_close_matches(name, alike, n=1, cutoff=_SIMILARITY_MIN)
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    return f"unknown setting {name}{hint}"
