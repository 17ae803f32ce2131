"""What the sender of a request may do: the authorizer, asked in its name, and the audit log.

Every decision is told to the logger ``kafka.authorizer.logger``, in Kafka's words and levels: a
denial is INFO, a permission DEBUG. What was only asked to leave things out of a list, or to tell a
client what it may do, is below DEBUG.
"""

from __future__ import annotations

import logging
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Protocol

from dohle.core.acls import CLUSTER_NAME, AclOperation, AclResourceType
from dohle.core.principal import Principal
from dohle.groups.group import Caller
from dohle.security.authorizer import OPERATIONS, AuthorizationResult, Authorizer
from dohle.server.net.callers import caller_of
from dohle.server.net.outcome import CloseConnection

if TYPE_CHECKING:
    from dohle.server.net.handler import RequestContext

audit_log = logging.getLogger("kafka.authorizer.logger")
_INFO, _DEBUG, _TRACE = logging.INFO, logging.DEBUG, 5

_TYPE_NAMES = {
    AclResourceType.TOPIC: "Topic",
    AclResourceType.GROUP: "Group",
    AclResourceType.CLUSTER: "Cluster",
    AclResourceType.TRANSACTIONAL_ID: "TransactionalId",
    AclResourceType.DELEGATION_TOKEN: "DelegationToken",
    AclResourceType.USER: "User",
}
_CLUSTER = AclResourceType.CLUSTER


class Requester(Protocol):
    """Who sends a request: a connection, or the client behind a broker."""

    @property
    def peer(self) -> str:
        """Its address and port."""

    @property
    def principal(self) -> Principal:
        """Who it is."""


class Rights:
    """The rights of whoever sends one request."""

    __slots__ = ("_api", "_authorizer", "_host", "_principal")

    def __init__(
        self, authorizer: Authorizer, principal: Principal, host: str, api_name: str
    ) -> None:
        """``host`` is an address as Java writes it; ``api_name`` is for the audit log."""
        self._authorizer = authorizer
        self._principal = f"{principal.type}:{principal.name}"
        self._host = host
        self._api = api_name

    @classmethod
    def of(cls, authorizer: Authorizer, sender: Requester, api_name: str) -> Rights:
        """Return the rights of the sender of a request."""
        host = sender.peer.rpartition(":")[0]
        return cls(authorizer, sender.principal, address_text(host), api_name)

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        quiet: bool = False,
    ) -> bool:
        """Tell whether an operation on a resource is allowed.

        ``quiet``: nobody has asked for the resource by name, so a denial is no attempt.
        """
        verdict = self._decide(operation, resource_type, name)
        level = _DEBUG if verdict.is_allowed else _TRACE if quiet else _INFO
        if audit_log.isEnabledFor(level):
            self._tell(level, verdict, operation, resource_type, name)
        return verdict.is_allowed

    def still_may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Tell the same of what was told to the log already."""
        return self._decide(operation, resource_type, name).is_allowed

    def may_cluster(self, operation: AclOperation, *, quiet: bool = False) -> bool:
        """Tell whether an operation on the cluster is allowed."""
        return self.may(operation, _CLUSTER, CLUSTER_NAME, quiet=quiet)

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Tell whether there can be a resource on which an operation is allowed."""
        self._check_ready()
        return self._authorizer.may_any(self._principal, self._host, operation, resource_type)

    def operations(self, resource_type: AclResourceType, name: str) -> int:
        """Return what may be done to a resource: one bit for each operation, at its code."""
        found = 0
        for operation in OPERATIONS[resource_type]:
            verdict = self._decide(operation, resource_type, name)
            if verdict.is_allowed:
                found |= 1 << operation
            if audit_log.isEnabledFor(_TRACE):
                self._tell(_TRACE, verdict, operation, resource_type, name)
        return found

    def cluster_operations(self) -> int:
        """Return what may be done to the cluster: nothing without the right to describe it."""
        if not self.may_cluster(AclOperation.DESCRIBE):
            return 0
        return self.operations(_CLUSTER, CLUSTER_NAME)

    def _decide(
        self, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> AuthorizationResult:
        self._check_ready()
        return self._authorizer.decide(self._principal, self._host, operation, resource_type, name)

    def _check_ready(self) -> None:
        authorizer = self._authorizer
        if not authorizer.is_loaded and self._principal not in authorizer.super_users:
            raise CloseConnection("the ACLs are not loaded yet")

    def _tell(
        self,
        level: int,
        verdict: AuthorizationResult,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> None:
        audit_log.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for"
            " request = %s with resourceRefCount = 1 based on rule %s",
            self._principal,
            "Allowed" if verdict.is_allowed else "Denied",
            operation.name,
            self._host,
            _TYPE_NAMES[resource_type],
            name,
            self._api,
            verdict.rule,
        )


class Authorized(Protocol):
    """What may have an authorizer."""

    @property
    def authorizer(self) -> Authorizer | None:
        """Who decides what clients may do; None: they may do everything."""


def seeing_caller(server: Authorized, context: RequestContext) -> Caller:
    """Return who sends a request to a group, and which topics it may see."""
    caller = caller_of(context)
    if server.authorizer is None:
        return caller
    rights = Rights.of(server.authorizer, context.connection, "ConsumerGroupHeartbeat")
    topic, describe = AclResourceType.TOPIC, AclOperation.DESCRIBE
    return caller._replace(may_see=lambda name: rights.may(describe, topic, name, quiet=True))


def address_text(host: str) -> str:
    """Return an address as Java writes it: IPv6 in full, without leading zeros."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
