"""Options that several commands share, and the types of their values.

``-b`` and ``--json`` may come before the command or after it: those after it are declared without a
default, so that they do not override the ones before it.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TypeAlias

from dohle.cli.client_security import add_security_options

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

BOOTSTRAP_VARIABLE = "DOHLE_BOOTSTRAP"
BOOTSTRAP_DEFAULT = "localhost:9092"
#: Those of the global options that have a value.
VALUE_OPTIONS = ("-b", "--bootstrap", "--command-config", "--tls", "--sasl")

_INT32_MAX = (1 << 31) - 1
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_CONTROL = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\", '"': b'"', "'": b"'"}


def add_global_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that may come before every command, with their defaults."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT,
        help="bootstrap brokers, separated by commas (default: the environment variable "
        f"{BOOTSTRAP_VARIABLE}, or {BOOTSTRAP_DEFAULT})",
    )
    add_security_options(parser, is_global=True)
    parser.add_argument("--json", action="store_true", help="print JSON lines, for programs")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json`` once more, after a command."""
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print JSON lines, for programs",
    )


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Declare the global options once more, after a command that talks to a cluster."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS,
        help="bootstrap brokers, separated by commas (default: the environment variable "
        f"{BOOTSTRAP_VARIABLE}, or {BOOTSTRAP_DEFAULT})",
    )
    add_security_options(parser, is_global=False)
    add_json_option(parser)


def add_family(
    commands: Commands, name: str, help: str, description: str | None = None
) -> Commands:
    """Declare a family of commands, such as ``topic``, and return the parser for its members."""
    description = description or f"{help[0].upper()}{help[1:]}."
    family = commands.add_parser(name, help=help, description=description)
    return family.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Commands, name: str, help: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """Declare a command; description and epilog are shown as they are."""
    return commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_data_option(parser: argparse.ArgumentParser, default: str = "./data") -> None:
    """Declare ``--data``; it is None if it was not given."""
    parser.add_argument(
        "--data",
        action="append",
        metavar="DIR",
        help=f"a data directory (log.dirs in Kafka); may be repeated (default: {default})",
    )


def positive(text: str) -> int:
    """Parse a number above 0."""
    return _number(text, 1, "a number above 0")


def natural(text: str) -> int:
    """Parse a number from 0 on."""
    return _number(text, 0, "a number from 0 on")


def node_id(text: str) -> int:
    """Parse the id of a node."""
    return _number(text, 0, f"a number from 0 to {_INT32_MAX}")


def _number(text: str, least: int, what: str) -> int:
    if text.isascii() and text.isdigit() and least <= int(text) <= _INT32_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not {what}")


def integer(text: str) -> int:
    """Parse a number, which may be negative."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def topic_partitions(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse ``topic`` or ``topic:0,2``; without numbers it means all partitions."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TOPIC or TOPIC:0,1")
    if not colon:
        return topic, None
    return topic, tuple(natural(number) for number in numbers.split(","))


def offset(text: str) -> int:
    """Parse an offset, or another 64-bit number from 0 on."""
    if text.isascii() and text.isdigit() and int(text) < 1 << 63:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")


_BYTES = re.compile(r"([0-9]{1,15})(?:([kmg])(i?)b?|b)?", re.IGNORECASE)


def bytes_per_second(text: str) -> int:
    """Parse a rate above 0, perhaps with a unit: 50000000, 50MB, 48MiB."""
    parsed = _BYTES.fullmatch(text)
    if parsed is not None:
        number, unit, binary = parsed.groups()
        power = " kmg".index(unit.lower()) if unit else 0
        rate = int(number) * int((1024 if binary else 1000) ** power)
        if 0 < rate < 1 << 63:
            return rate
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a number of bytes per second above 0, such as 50000000 or 50MB"
    )


def pair(text: str) -> tuple[str, str]:
    """Parse ``name=value``; the value may be empty."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name.strip(), value


def escaped(text: str) -> bytes:
    """Parse text with escapes: ``\\t``, ``\\n``, ``\\r``, ``\\0``, ``\\\\``, ``\\xFF``."""
    try:
        return unescape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def unescape(text: str) -> bytes:
    """Return the bytes of a text with escapes; a ValueError names an unknown one."""
    found = bytearray()
    end = 0
    for match in _ESCAPE.finditer(text):
        found += os.fsencode(text[end : match.start()])
        end = match.end()
        escape = match[1]
        if escape in _CONTROL:
            found += _CONTROL[escape]
        elif len(escape) == 3:
            found.append(int(escape[1:], 16))
        else:
            raise ValueError(
                f"\\{escape} is no escape: \\n, \\r, \\t, \\0, \\\\ and \\x with two digits are"
            )
    return bytes(found + os.fsencode(text[end:]))


def as_dict(pairs: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """Return pairs as a dictionary; the last one of a name wins."""
    return dict(pairs or ())
