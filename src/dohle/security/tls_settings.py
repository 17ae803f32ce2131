"""The settings of TLS under Kafka's names, for a listener or a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dohle.core.config.definition import ConfigValue

PROTOCOLS_DEFAULT: Final = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH: Final = ("none", "requested", "required")


@dataclass(frozen=True, slots=True)
class Store:
    """Where keys or certificates are: a file, or PEM text. None of it is ever shown."""

    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    #: The texts of ``ssl.keystore.key`` and of the certificates.
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        """Whether there is one at all."""
        return any((self.location, self.key, self.certificates))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How TLS is spoken."""

    key_store: Store = Store()
    trust_store: Store = Store()
    protocols: tuple[str, ...] = PROTOCOLS_DEFAULT
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    #: Whether the certificate of a server must be one of its host.
    checks_host: bool = True

    @classmethod
    def of(cls, values: Mapping[str, ConfigValue]) -> TlsSettings:
        """Take them from parsed configs."""

        def text(name: str) -> str | None:
            value = values.get(f"ssl.{name}")
            return str(value) if value else None

        def texts(name: str) -> tuple[str, ...]:
            value = values.get(f"ssl.{name}")
            return value if isinstance(value, tuple) else ()

        return cls(
            key_store=Store(
                text("keystore.type") or "JKS",
                text("keystore.location"),
                text("keystore.password"),
                text("keystore.key"),
                text("keystore.certificate.chain"),
                text("key.password"),
            ),
            trust_store=Store(
                text("truststore.type") or "JKS",
                text("truststore.location"),
                text("truststore.password"),
                certificates=text("truststore.certificates"),
            ),
            protocols=texts("enabled.protocols") or (text("protocol") or "TLSv1.3",),
            cipher_suites=texts("cipher.suites"),
            client_auth=text("client.auth") or "none",
            checks_host=bool(values.get("ssl.endpoint.identification.algorithm", "https")),
        )
