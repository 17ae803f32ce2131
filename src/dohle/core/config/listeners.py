"""The addresses of a node: ``listeners``, ``advertised.listeners`` and the quorum's members.

A listener has a freely chosen upper-case name, and ``listener.security.protocol.map`` says which
security protocol is used there. The checks are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from dohle.core.errors import ErrorCode, KafkaError

#: "Every address of this machine": fine for listening, useless to a client.
NON_ROUTABLE_HOST: Final = "0.0.0.0"

_HOST_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-%._:"
)
_PORT_MAX: Final = 65535
_DIGITS_MAX: Final = 9


class SecurityProtocol(IntEnum):
    """The security protocol of a listener, by its number in a broker's registration."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Listener(NamedTuple):
    """One address. An empty host means all interfaces, and port 0 any free port."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class QuorumVoter(NamedTuple):
    """A member of the quorum and its address."""

    id: int
    host: str
    port: int


def parse_listeners(
    entries: Iterable[str], protocols: Mapping[str, SecurityProtocol], config: str
) -> tuple[Listener, ...]:
    """Parse the items of ``listeners`` or ``advertised.listeners``; names must be distinct."""
    listeners = tuple(_parse_listener(entry, protocols, config) for entry in entries)
    if len({listener.name for listener in listeners}) != len(listeners):
        shown = ",".join(map(str, listeners))
        raise _refusal(f"{config}: Each listener must have a different name, listeners: {shown}")
    return listeners


def check_distinct_ports(listeners: Iterable[Listener]) -> None:
    """Refuse two listeners on one port, unless one is on IPv4 and the other on IPv6."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(_ip_version(one.host) for one in sharing) != [4, 6]:
            shown = ",".join(map(str, sharing))
            raise _refusal(
                "listeners: Each listener must have a different port unless exactly one listener "
                f"has an IPv4 address and the other IPv6 address, listeners: {shown}, port: {port}"
            )


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Parse ``listener.security.protocol.map``."""
    config = "listener.security.protocol.map"
    protocols = {}
    for item in filter(str.strip, text.split(",")):
        name, colon, protocol = (part.strip().upper() for part in item.rpartition(":"))
        if not colon or not name:
            raise _refusal(
                f"Error parsing configuration property '{config}': {item.strip()!r} is not of the "
                "form name:protocol"
            )
        if protocol not in SecurityProtocol.__members__:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise _refusal(
                f"Invalid security protocol `{protocol}` defined in {config}, "
                f"it must be one of: {allowed}"
            )
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def parse_voters(entries: Iterable[str]) -> tuple[QuorumVoter, ...]:
    """Parse the items of ``controller.quorum.voters``."""
    voters = {}
    for entry in entries:
        number, _, text = entry.partition("@")
        voter_id, address = _parse_number(number), _parse_address(text)
        if voter_id is None or address is None or not address[0]:
            raise _refusal(
                f"Invalid value {entry} for configuration controller.quorum.voters: Each entry "
                "should be in the form `{id}@{host}:{port}`."
            )
        if address[0] == NON_ROUTABLE_HOST:
            raise _refusal(f"Host string ({NON_ROUTABLE_HOST}) is not routeable")
        voters[voter_id] = QuorumVoter(voter_id, *address)
    return tuple(voters.values())


def parse_address(text: str, config: str) -> tuple[str, int]:
    """Parse a single ``host:port``; an empty host means all interfaces."""
    address = _parse_address(text)
    if address is None:
        raise _refusal(
            f"Invalid value {text} for configuration {config}: it should be in the form host:port."
        )
    return address


def parse_bootstrap_servers(entries: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parse the items of ``controller.quorum.bootstrap.servers`` into hosts and ports."""
    addresses = []
    for entry in entries:
        address = _parse_address(entry)
        if address is None or not address[0]:
            raise _refusal(
                f"Invalid value {entry} for configuration controller.quorum.bootstrap.servers: "
                "Each entry should be in the form `{host}:{port}`."
            )
        addresses.append(address)
    return tuple(addresses)


def _parse_listener(entry: str, protocols: Mapping[str, SecurityProtocol], config: str) -> Listener:
    name, _, text = entry.rpartition("://")
    name, address = name.upper(), _parse_address(text)
    if not name.strip() or address is None:
        raise _refusal(
            f"Error creating broker listeners from '{entry}' in {config}: Unable to parse {entry} "
            "to a broker endpoint, it should be in the form name://host:port"
        )
    if name not in protocols:
        raise _refusal(
            f"Error creating broker listeners from '{entry}' in {config}: No security protocol "
            f"defined for listener {name}, add it to listener.security.protocol.map"
        )
    return Listener(name, *address, protocols[name])


def _parse_address(text: str) -> tuple[str, int] | None:
    """Parse ``host:port``; an IPv6 address is in brackets, and the host may be empty."""
    host, _, number = text.rpartition(":")
    host, port = host.removeprefix("[").removesuffix("]"), _parse_number(number)
    if port is None or port > _PORT_MAX or not _HOST_CHARACTERS.issuperset(host):
        return None
    return host, port


def _parse_number(text: str) -> int | None:
    valid = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if valid else None


def _ip_version(host: str) -> int:
    import ipaddress  # costs milliseconds, and two listeners rarely share a port

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
