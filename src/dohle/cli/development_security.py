"""Security for development, made in one go: certificates and a user who may do everything.

The files are in the first data directory, for their owner alone: ``ca.pem`` and ``ca.key`` (the
authority), ``node.pem`` (what the broker shows), ``admin.properties`` (Kafka's client configs for
the user ``admin``). What is there is used again. ``dohle start --secure`` and
``dohle.testing.Broker(security=…)`` begin with it.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dohle.cli.development_certificates import DevelopmentAuthority
from dohle.cli.errors import CliError, UsageError
from dohle.cli.private_files import write_private
from dohle.core.config.listeners import SecurityProtocol
from dohle.core.errors import KafkaError
from dohle.core.seams import SystemClock
from dohle.security.client import WITH_SASL, WITH_TLS
from dohle.security.jaas import PLAIN_MODULE, jaas_text, parse_jaas
from dohle.security.mechanism import PLAIN
from dohle.storage.directory.java_properties import format_properties, parse_properties

ADMIN: Final = "admin"
ADMIN_FILE: Final = "admin.properties"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PASSWORD_BYTES: Final = 18
_JAAS: Final = "sasl.jaas.config"
#: Other users are made while the broker runs (``dohle user set``), and log in by this.
_MECHANISMS: Final = f"SCRAM-SHA-512,SCRAM-SHA-256,{PLAIN}"


@dataclass(frozen=True, slots=True)
class DevelopmentSecurity:
    """What a broker and its administrator need to know each other."""

    #: Configs of the broker; a file and options go before them.
    broker: Mapping[str, str]
    #: Configs of a client that is ``admin``.
    client: Mapping[str, str]
    #: The same in a file.
    client_file: Path


def development_security(
    folder: Path, protocol: SecurityProtocol, hosts: Iterable[str] = ()
) -> DevelopmentSecurity:
    """Make what is not there yet; ``hosts`` are names and addresses by which clients connect."""
    if protocol is SecurityProtocol.PLAINTEXT:
        raise UsageError("PLAINTEXT is without security: choose SSL, SASL_PLAINTEXT or SASL_SSL")
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    name, client_file = protocol.name, folder / ADMIN_FILE
    broker = {
        "listeners": f"{name}://127.0.0.1:0",
        "inter.broker.listener.name": name,
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }
    client = {"security.protocol": name}
    if protocol in WITH_TLS:
        authority = DevelopmentAuthority(folder)
        client |= _trust(authority.path)
        broker |= _keys(authority.issue("node.pem", "dohle", _hosts(hosts)))
    if protocol is SecurityProtocol.SSL:
        client |= _keys(authority.issue("admin.pem", ADMIN))
        broker |= {
            **_trust(authority.path),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,+]+)$/$1/,DEFAULT",
        }
    if protocol in WITH_SASL:
        password = _password(client_file)
        client |= {"sasl.mechanism": PLAIN, _JAAS: jaas_text(PLAIN, ADMIN, password)}
        broker |= {
            "sasl.enabled.mechanisms": _MECHANISMS,
            f"{PLAIN.lower()}.{_JAAS}": f'{PLAIN_MODULE} required user_{ADMIN}="{password}";',
        }
    if not client.items() <= _read(client_file).items():
        text = format_properties(client, SystemClock().now_ms())
        write_private(client_file, text.decode("ascii"))
    return DevelopmentSecurity(broker, client, client_file)


def _keys(path: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}


def _trust(path: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}


def _hosts(more: Iterable[str]) -> set[str]:
    own = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    return own | {host for host in more if host not in ("", "0.0.0.0", "::")}


def _password(file: Path) -> str:
    """Return the administrator's password: the one of the file, or a new one."""
    try:
        text = _read(file).get(_JAAS)
        own = None if text is None else parse_jaas(text, str(file)).own
    except KafkaError as error:
        raise CliError(f"{error.args[0]}; remove it to have another password made") from None
    if own is None or '"' in own[1] or "\\" in own[1]:
        return secrets.token_urlsafe(_PASSWORD_BYTES)
    return own[1]


def _read(file: Path) -> dict[str, str]:
    try:
        return parse_properties(file.read_bytes()) if file.exists() else {}
    except ValueError as error:
        raise CliError(f"{file}: {error}") from None
