"""The configs of one listener: ``listener.name.<name>.<config>`` beats ``<config>``.

Names are in lower case in a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigValues
from dohle.core.config.listeners import SecurityProtocol

_CLIENT_AUTH: Final = "ssl.client.auth"


def listener_prefix(listener: str) -> str:
    """Return how the configs of a listener begin."""
    return f"listener.name.{listener.lower()}."


def mechanism_text(
    texts: Mapping[str, str], listener: str, mechanism: str, name: str
) -> tuple[str, str | None]:
    """Return a config of a SASL mechanism on a listener, and the name by which it is set there.

    The prefix of the listener goes before that of the mechanism. ``sasl.jaas.config`` counts with
    that of a mechanism alone, as in Kafka.
    """
    own, every = listener_prefix(listener), f"{mechanism.lower()}.{name}"
    names = [own + every, every]
    if name != "sasl.jaas.config":
        names += [own + name, name]
    found = next((texts[one] for one in names if one in texts), None)
    return names[0], found


def listener_values(
    texts: Mapping[str, str], listener: str, protocol: SecurityProtocol
) -> ConfigValues:
    """Return the configs of security that are in force on a listener.

    As in Kafka, ``ssl.client.auth`` without the prefix is for listeners without SASL alone.
    """
    prefix, values = listener_prefix(listener), ConfigValues()
    for name, key in BROKER_CONFIGS.items():
        if name.startswith(("ssl.", "sasl.", "connection.", "connections.")):
            text = texts.get(prefix + name, texts.get(name))
            values[name] = key.default if text is None else key.parse(text)
    if protocol is SecurityProtocol.SASL_SSL and prefix + _CLIENT_AUTH not in texts:
        values[_CLIENT_AUTH] = "none"
    return values
