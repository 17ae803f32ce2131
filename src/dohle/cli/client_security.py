"""How commands show a cluster who they are: ``--command-config``, ``--tls`` and ``--sasl``.

A password is never an option, where others on the machine could see it: it is in the file, in the
environment variable DOHLE_PASSWORD, or asked for.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from dohle.cli.errors import UsageError

if TYPE_CHECKING:
    from dohle.security.client import ClientSecurity

CONFIG_VARIABLE = "DOHLE_COMMAND_CONFIG"
PASSWORD_VARIABLE = "DOHLE_PASSWORD"


def add_security_options(parser: argparse.ArgumentParser, *, is_global: bool) -> None:
    """Declare the options, before or after a command."""
    unset = None if is_global else argparse.SUPPRESS
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        default=os.environ.get(CONFIG_VARIABLE) if is_global else unset,
        help="a file with Kafka's client properties about security (security.protocol, ssl.*, "
        f"sasl.*; default: the environment variable {CONFIG_VARIABLE})",
    )
    parser.add_argument(
        "--tls",
        metavar="CA.pem",
        default=unset,
        help="connect with TLS, and trust the certificates in this file, or with 'system' "
        "those of this machine",
    )
    parser.add_argument(
        "--sasl",
        metavar="MECHANISM:USER",
        default=unset,
        help="log in with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; the password is taken from the "
        f"environment variable {PASSWORD_VARIABLE}, or asked for",
    )


def client_security(args: argparse.Namespace) -> ClientSecurity:
    """Return what the options say; options go before the file."""
    from dohle.core.errors import KafkaError
    from dohle.security.client import PLAINTEXT, ClientSecurity

    texts = _properties(args)
    if not texts:
        return PLAINTEXT
    try:
        return ClientSecurity.from_properties(texts)
    except KafkaError as error:
        raise UsageError(str(error.args[0])) from None


def _properties(args: argparse.Namespace) -> dict[str, str]:
    texts: dict[str, str] = {}
    if args.command_config:
        from dohle.cli.commands.node_properties import read_properties

        texts = read_properties(args.command_config)
    has_tls = texts.get("security.protocol", "").strip().upper().endswith("SSL")
    has_sasl = texts.get("security.protocol", "").strip().upper().startswith("SASL")
    if args.tls:
        has_tls = True
        if args.tls != "system":
            texts |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": args.tls}
    if args.sasl:
        has_sasl = True
        texts |= _login(args.sasl)
    if args.tls or args.sasl:
        names = (("PLAINTEXT", "SSL"), ("SASL_PLAINTEXT", "SASL_SSL"))
        texts["security.protocol"] = names[has_sasl][has_tls]
    return texts


def _login(text: str) -> dict[str, str]:
    from getpass import getpass

    from dohle.security.jaas import jaas_text

    mechanism, colon, user = text.partition(":")
    if not colon or not user:
        raise UsageError(f"--sasl {text}: it is of the form MECHANISM:USER")
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        password = getpass(f"Password of {user}: ")
    mechanism = mechanism.upper()
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas_text(mechanism, user, password),
    }
