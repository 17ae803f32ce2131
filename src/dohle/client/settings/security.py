"""Settings about security by the names of Java's clients, or of librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.security.client import ClientSecurity
from dohle.security.jaas import jaas_text
from dohle.security.refusal import refusal
from dohle.security.token_source import OF_LIBRDKAFKA

#: Of librdkafka, which has files and users where Java has stores and JAAS.
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_CA_TEXT = "ssl.ca.pem"
_TEXTS = {
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
#: What the program itself gives: a function as in confluent-kafka, or an object as in aiokafka.
_PROVIDERS = ("oauth.cb", "sasl.oauth.token.provider")
_USER, _PASSWORD = ("sasl.username", "sasl.user.name"), "sasl.password"


def is_about_security(name: str) -> bool:
    """Tell whether a setting is one of these, with dots or with underscores."""
    return dotted(name) in ("security.protocol", _PROVIDERS[0]) or name.startswith(
        ("ssl.", "sasl.", "ssl_", "sasl_")
    )


def dotted(name: str) -> str:
    """Return the name with dots: none of these has an underscore."""
    return name.replace("_", ".")


def known_names() -> list[str]:
    """Return all names there are; Java's that mean nothing here are among them."""
    of_java = [name for name in BROKER_CONFIGS if name.startswith(("ssl.", "sasl."))]
    of_librdkafka = [_CA, _CA_TEXT, _CERTIFICATE, _KEY, *_TEXTS, "sasl.mechanisms", *_USER]
    of_librdkafka += [*OF_LIBRDKAFKA, *_PROVIDERS]
    return ["security.protocol", "sasl.mechanism", *of_java, *of_librdkafka, _PASSWORD]


def security_of(named: Mapping[str, Any]) -> ClientSecurity:
    """Return what these settings mean; INVALID_CONFIG if they cannot be used."""
    provider = next((named[name] for name in _PROVIDERS if name in named), None)
    texts = {name: str(value) for name, value in named.items() if name not in _PROVIDERS}
    if "sasl.mechanisms" in texts:
        texts["sasl.mechanism"] = texts.pop("sasl.mechanisms")
    if _CA in texts:
        texts |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": texts.pop(_CA)}
    if _CA_TEXT in texts:
        texts |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": texts.pop(_CA_TEXT)}
    _take_own_certificate(texts)
    user = next((texts.pop(name) for name in _USER if name in texts), None)
    password = texts.pop(_PASSWORD, None)
    if user is not None and password is not None:
        mechanism = texts.get("sasl.mechanism", "")
        texts["sasl.jaas.config"] = jaas_text(mechanism, user, password)
    return ClientSecurity.from_properties(texts, provider)


def _take_own_certificate(texts: dict[str, str]) -> None:
    """Put a key and a certificate in files of their own, or as texts, where Java has them."""
    for name, text_name in ((_CERTIFICATE, "ssl.certificate.pem"), (_KEY, "ssl.key.pem")):
        if name in texts:
            texts[text_name] = _content(name, texts.pop(name))
    given = [name for name in _TEXTS if name in texts]
    if len(given) == 1:
        raise refusal(
            "a key and its certificates are needed together: "
            f"{_KEY} and {_CERTIFICATE}, which may name the same file"
        )
    for name in given:
        texts |= {"ssl.keystore.type": "PEM", _TEXTS[name]: texts.pop(name)}


def _content(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a PEM file"
        raise refusal(f"{name}: {path} cannot be read: {reason}") from None
