"""The addresses of brokers: host and port, and the bootstrap list of a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PORT_DEFAULT = 9092


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``host:port``, ``[v6]:port`` or a host alone; a ValueError says what is wrong."""
    stripped = text.strip()
    host, separator, port = stripped.rpartition(":")
    if stripped.startswith("["):
        if stripped.endswith("]"):
            host, separator, port = stripped, "", ""
        if not host.endswith("]"):
            raise ValueError(
                f"{text!r} is not an address: the bracket is not closed before the port"
            )
        host = host[1:-1]
    elif not separator:
        host = stripped
        port = ""
    elif ":" in host:
        raise ValueError(f"{text!r} is not an address: write an IPv6 address as [address]:port")
    if not host:
        raise ValueError(f"{text!r} is not an address: the host is missing")
    if not separator:
        return Address(host, PORT_DEFAULT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} is not an address: {port!r} is not a port from 1 to 65535")
    return Address(host, int(port))


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Parse a list of addresses, or one text with commas between them."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    try:
        addresses = tuple(dict.fromkeys(parse_address(text) for text in texts if text.strip()))
    except (AttributeError, TypeError):
        raise TypeError(
            f"bootstrap servers are {servers!r}: they must be a string or a list of strings, "
            'like "host:9092"'
        ) from None
    if not addresses:
        raise ValueError("no bootstrap server is given: pass at least one host:port")
    return addresses
