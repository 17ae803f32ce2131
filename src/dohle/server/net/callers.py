"""Who sends a request, in the form in which groups remember it for their members."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from dohle.groups.group import Caller

if TYPE_CHECKING:
    from dohle.server.net.handler import RequestContext


def caller_of(context: RequestContext) -> Caller:
    """Return who sends a request."""
    host = context.connection.peer.rpartition(":")[0]
    return Caller(context.client_id, client_host(host), context.version)


def client_host(host: str) -> str:
    """Return an address as Kafka writes it: after a slash, and with IPv6 zeros not compressed."""
    if ":" not in host:
        return f"/{host}"
    groups = IPv6Address(host.partition("%")[0]).exploded.split(":")
    return "/" + ":".join(format(int(group, 16), "x") for group in groups)
