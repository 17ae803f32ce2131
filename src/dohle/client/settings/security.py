"""Settings about security by the names of Java's clients, or of librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dohle.security.client import ClientSecurity
from dohle.security.jaas import jaas_text
from dohle.security.refusal import refusal

#: Of librdkafka, which has files and users where Java has stores and JAAS.
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_USER, _PASSWORD = ("sasl.username", "sasl.user.name"), "sasl.password"


def is_about_security(name: str) -> bool:
    """Tell whether a setting is one of these."""
    return name == "security.protocol" or name.startswith(("ssl.", "sasl."))


def security_of(named: Mapping[str, Any]) -> ClientSecurity:
    """Return what these settings mean; INVALID_CONFIG if they cannot be used."""
    texts = {name: str(value) for name, value in named.items()}
    if "sasl.mechanisms" in texts:
        texts["sasl.mechanism"] = texts.pop("sasl.mechanisms")
    if _CA in texts:
        texts |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": texts.pop(_CA)}
    if _CERTIFICATE in texts or _KEY in texts:
        if texts.get(_CERTIFICATE) != texts.get(_KEY):
            raise refusal(
                f"{_CERTIFICATE} and {_KEY} must name one file, with the key and its certificates"
            )
        texts |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": texts.pop(_CERTIFICATE)}
        del texts[_KEY]
    user = next((texts.pop(name) for name in _USER if name in texts), None)
    password = texts.pop(_PASSWORD, None)
    if user is not None and password is not None:
        mechanism = texts.get("sasl.mechanism", "")
        texts["sasl.jaas.config"] = jaas_text(mechanism, user, password)
    return ClientSecurity.from_properties(texts)
