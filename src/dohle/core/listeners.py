"""The addresses of a node: ``listeners``, ``advertised.listeners`` and the quorum's members.

A listener has a name of its own choice, in upper case, and the map
``listener.security.protocol.map`` says what is spoken there. The checks are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dohle.core.errors import ErrorCode, KafkaError

#: Means "every address of this machine": good for listening, useless for a client.
NON_ROUTABLE_HOST: Final = "0.0.0.0"

_URI: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", re.ASCII)
_HOST_PORT: Final = re.compile(r"\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)", re.ASCII)
_VOTER: Final = re.compile(r"([0-9]+)@(.*)", re.ASCII)
_PORT_MAX: Final = 65535


class SecurityProtocol(IntEnum):
    """What is spoken on a listener, by its number in a broker's registration."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. Without a host it means all interfaces, and port 0 is any free one."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the quorum and where it can be found."""

    id: int
    host: str
    port: int


def parse_listeners(
    entries: Iterable[str], protocols: Mapping[str, SecurityProtocol], config: str
) -> tuple[Listener, ...]:
    """Read the items of ``listeners`` or ``advertised.listeners``; no name may come twice."""
    listeners = tuple(_parse_listener(entry, protocols, config) for entry in entries)
    if len({listener.name for listener in listeners}) != len(listeners):
        shown = ",".join(map(str, listeners))
        raise _refusal(f"{config}: Each listener must have a different name, listeners: {shown}")
    return listeners


def check_distinct_ports(listeners: Iterable[Listener]) -> None:
    """Refuse two listeners on one port, unless one is on an IPv4 and one on an IPv6 address."""
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
    """Read ``listener.security.protocol.map``."""
    config = "listener.security.protocol.map"
    protocols = {}
    for item in text.split(","):
        name, colon, protocol = (part.strip() for part in item.rpartition(":"))
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
        protocols[name.upper()] = SecurityProtocol[protocol]
    return protocols


def parse_voters(entries: Iterable[str]) -> tuple[Voter, ...]:
    """Read the items of ``controller.quorum.voters``."""
    voters = {}
    for entry in entries:
        found = _VOTER.fullmatch(entry)
        address = None if found is None else _parse_address(found[2])
        if found is None or address is None:
            raise _refusal(
                f"Invalid value {entry} for configuration controller.quorum.voters: Each entry "
                "should be in the form `{id}@{host}:{port}`."
            )
        voters[int(found[1])] = Voter(int(found[1]), *address)
    return tuple(voters.values())


def parse_bootstrap_servers(entries: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Read the items of ``controller.quorum.bootstrap.servers`` as hosts and ports."""
    addresses = []
    for entry in entries:
        address = _parse_address(entry)
        if address is None:
            raise _refusal(
                f"Invalid value {entry} for configuration controller.quorum.bootstrap.servers: "
                "Each entry should be in the form `{host}:{port}`."
            )
        addresses.append(address)
    return tuple(addresses)


def _parse_listener(entry: str, protocols: Mapping[str, SecurityProtocol], config: str) -> Listener:
    found = _URI.fullmatch(entry)
    if found is None or not found[1].strip() or not -1 <= int(found[3]) <= _PORT_MAX:
        raise _refusal(
            f"Error creating broker listeners from '{entry}' in {config}: Unable to parse {entry} "
            "to a broker endpoint, it should be in the form name://host:port"
        )
    name = found[1].upper()
    if name not in protocols:
        raise _refusal(
            f"Error creating broker listeners from '{entry}' in {config}: No security protocol "
            f"defined for listener {name}, add it to listener.security.protocol.map"
        )
    return Listener(name, found[2], int(found[3]), protocols[name])


def _parse_address(text: str) -> tuple[str, int] | None:
    found = _HOST_PORT.fullmatch(text)
    if found is None or not found[1] or int(found[2]) > _PORT_MAX:
        return None
    return found[1], int(found[2])


def _ip_version(host: str) -> int:
    import ipaddress  # costs milliseconds, and two listeners seldom share a port

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
