"""How a client shows who it is, and whom it trusts: Kafka's client configs about security."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigValues
from dohle.core.config.listeners import SecurityProtocol
from dohle.security.jaas import parse_jaas
from dohle.security.mechanism import check_mechanism
from dohle.security.oauthbearer import OAUTHBEARER
from dohle.security.refusal import refusal
from dohle.security.tls_settings import TlsSettings
from dohle.security.token_source import TokenSource

_PROTOCOL: Final = "security.protocol"
_JAAS: Final = "sasl.jaas.config"
_NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
WITH_TLS: Final = frozenset({SecurityProtocol.SSL, SecurityProtocol.SASL_SSL})
WITH_SASL: Final = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})


@dataclass(frozen=True, slots=True)
class SaslAccount:
    """Who logs in, and how."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    #: Where tokens come from, if the mechanism is OAUTHBEARER.
    tokens: TokenSource | None = None

    @classmethod
    def of(
        cls,
        mechanism: str,
        jaas: str | None,
        where: str,
        texts: Mapping[str, str] = _NO_TEXTS,
        provider: object = None,
    ) -> SaslAccount:
        """Take the user and the password of a JAAS configuration; INVALID_CONFIG if it has none.

        Tokens come from where ``texts`` or the ``provider`` of the program say.
        """
        check_mechanism(mechanism)
        parsed = None if jaas is None else parse_jaas(jaas, where)
        if mechanism == OAUTHBEARER:
            options = {} if parsed is None else parsed.options
            return cls(mechanism, "", "", TokenSource.of(texts, options, provider))
        own = None if parsed is None else parsed.own
        if own is None:
            raise refusal(f"{where}: it needs the username and the password to log in with")
        return cls(mechanism, *own)


@dataclass(frozen=True)
class ClientSecurity:
    """The security of connections that a client makes."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings = field(default_factory=TlsSettings)
    #: Who logs in, if the protocol is one with SASL.
    account: SaslAccount | None = None

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """What TLS is spoken with; None if it is not. INVALID_CONFIG if the settings are wrong."""
        if self.protocol not in WITH_TLS:
            return None
        # Without TLS a client starts quicker if it does not load what reads key stores.
        from dohle.security.tls_context import client_context

        return client_context(self.tls)

    def __getstate__(self) -> dict[str, object]:
        # What OpenSSL has made cannot be sent to other processes, and is made anew there.
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    @classmethod
    def from_properties(
        cls, texts: Mapping[str, str], token_provider: object = None
    ) -> ClientSecurity:
        """Take Kafka's client configs; INVALID_CONFIG if one is wrong. Others are left alone.

        ``token_provider`` is the program's own source of tokens, for OAUTHBEARER.
        """
        name = texts.get(_PROTOCOL, "PLAINTEXT").strip().upper()
        if name not in SecurityProtocol.__members__:
            raise refusal(f"{_PROTOCOL} is {name}: it must be one of {_names()}")
        values = ConfigValues()
        for key in BROKER_CONFIGS.values():
            if key.name.startswith("ssl."):
                values[key.name] = key.parse(texts[key.name]) if key.name in texts else key.default
        protocol, account = SecurityProtocol[name], None
        if protocol in WITH_SASL:
            mechanism = texts.get("sasl.mechanism", "GSSAPI").strip()
            account = SaslAccount.of(mechanism, texts.get(_JAAS), _JAAS, texts, token_provider)
        return cls.of(protocol, values, account)

    @classmethod
    def of(
        cls, protocol: SecurityProtocol, values: ConfigValues, account: SaslAccount | None = None
    ) -> ClientSecurity:
        """Take parsed configs, and see at once whether they can be used."""
        made = cls(protocol, TlsSettings.of(values), account)
        _ = made.context
        return made


def _names() -> str:
    return ", ".join(SecurityProtocol.__members__)


PLAINTEXT: Final = ClientSecurity()
