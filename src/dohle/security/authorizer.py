"""Kafka's StandardAuthorizer: tells whether somebody may do something to a resource.

- A super user may, whatever ACLs say.
- If any matching ACL denies it: no. Else, if any allows it: yes.
- If there is no ACL at all about the resource, not even of others: ``allow_everyone`` decides.
- Else no.

An ACL matches by its pattern, by the principal or ``User:*``, by the host or ``*``, and by the
operation or ALL. Some operations imply others, but only where they are allowed: who may read may
describe; who must not read may still be allowed to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dohle.core.acls import (
    ANY,
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    text_of,
)
from dohle.core.ids import Uuid
from dohle.security.acl_index import AclIndex

#: How many decisions are remembered; there are no more until the ACLs change or they are forgotten.
_REMEMBERED_MAX = 20_000
#: And of which names. No topic has a longer one, but anybody may ask for one of 32 KB: 20,000 of
#: these would be half a gigabyte.
_REMEMBERED_NAME_MAX = 512

_ALL, _DENY, _ALLOW = AclOperation.ALL, AclPermission.DENY, AclPermission.ALLOW
_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

#: What else allows an operation.
_IMPLIED_BY: dict[int, frozenset[int]] = {
    _DESCRIBE: frozenset({_DESCRIBE, _READ, _WRITE, _DELETE, _ALTER, _ALL}),
    _DESCRIBE_CONFIGS: frozenset({_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _ALL}),
}

#: What can be done to a resource, by its type: that of which clients are told what they may do.
OPERATIONS: dict[int, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        *(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE),
        *(_DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    ),
    AclResourceType.GROUP: (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        *(_CREATE, _ALTER, _DESCRIBE, AclOperation.CLUSTER_ACTION),
        *(_DESCRIBE_CONFIGS, _ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE),
    ),
}

#: Nobody names a topic so: whether it may be written tells of super users and the default.
_NO_TOPIC = "hardcode"


class AuthorizationResult(NamedTuple):
    """Whether it is allowed, and by which rule, as Kafka writes it to its log."""

    is_allowed: bool
    rule: str


_SUPER_USER = AuthorizationResult(True, "SuperUser")
_DEFAULT_ALLOW = AuthorizationResult(True, "DefaultAllow")
_DEFAULT_DENY = AuthorizationResult(False, "DefaultDeny")


class Authorizer:
    """Decides by the ACLs it was told of, and remembers what it decided until they change."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        """``super_users`` are principals as text; ``allow_everyone`` is for what has no ACLs."""
        self.super_users = frozenset(super_users)
        self.allow_everyone = allow_everyone
        self.index = AclIndex()
        #: Whether all ACLs are known that there were when the node started.
        self.is_loaded = False
        #: Changes with the ACLs: whoever relies on a decision looks whether it is still the same.
        self.version = 0
        self._decided: dict[tuple[str, str, int, int, str], AuthorizationResult] = {}
        self._decided_any: dict[tuple[str, str, int, int], bool] = {}

    def change(self, changes: Iterable[tuple[Uuid, Acl | None]]) -> None:
        """Take in ACLs that are new, or gone (None)."""
        for acl_id, acl in changes:
            if acl is None:
                self.index.remove(acl_id)
            else:
                self.index.add(acl_id, acl)
        self.version += 1
        self._forget()

    def _forget(self) -> None:
        self._decided.clear()
        self._decided_any.clear()

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> AuthorizationResult:
        """Decide about one operation on one resource."""
        key = principal, host, operation, resource_type, name
        found = self._decided.get(key)
        if found is None:
            found = self._decide(*key)
            if len(name) <= _REMEMBERED_NAME_MAX:
                if len(self._decided) >= _REMEMBERED_MAX:
                    self._forget()
                self._decided[key] = found
        return found

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> AuthorizationResult:
        if principal in self.super_users:
            return _SUPER_USER
        allowing = _IMPLIED_BY.get(operation) or (operation, _ALL)
        allowed: AuthorizationResult | None = None
        for acl in self.index.about(resource_type, name, principal):
            if acl.host not in (host, ANY):
                continue
            if acl.permission == _DENY:
                if acl.operation in (operation, _ALL):
                    return AuthorizationResult(False, f"MatchingAcl(acl={_text(acl)})")
            elif allowed is None and acl.permission == _ALLOW and acl.operation in allowing:
                allowed = AuthorizationResult(True, f"MatchingAcl(acl={_text(acl)})")
        if allowed is not None:
            return allowed
        if self.allow_everyone and not self.index.is_protected(resource_type, name):
            return _DEFAULT_ALLOW
        return _DEFAULT_DENY

    def may_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Tell whether there can be a resource of a type on which the operation is allowed.

        An ACL that allows it does not count if another denies it for all that it is about.
        """
        key = principal, host, operation, resource_type
        found = self._decided_any.get(key)
        if found is None:
            if len(self._decided_any) >= _REMEMBERED_MAX:
                self._forget()
            found = self._decided_any[key] = self._may_any(*key)
        return found

    def _may_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        if self.decide(principal, host, operation, resource_type, _NO_TOPIC).is_allowed:
            return True
        allowed: list[Acl] = []
        denied: set[tuple[int, str]] = set()
        for acl in self.index.of(principal):
            if (
                acl.resource_type == resource_type
                and acl.host in (host, ANY)
                and acl.operation in (operation, _ALL)
            ):
                if acl.permission == _ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern_type, acl.resource_name))
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        if (literal, ANY) in denied:
            return False
        for acl in allowed:
            name = acl.resource_name
            if acl.pattern_type == literal:
                if name == ANY:
                    return True
                if (literal, name) in denied:
                    continue
            lengths = range(1, len(name) + 1)
            if not any((prefixed, name[:length]) in denied for length in lengths):
                return True
        return False


def _text(acl: Acl) -> str:
    """Return an ACL as Kafka's StandardAcl writes itself."""
    return (
        f"StandardAcl(resourceType={text_of(AclResourceType, acl.resource_type)},"
        f" resourceName={acl.resource_name}, patternType={text_of(PatternType, acl.pattern_type)},"
        f" principal={acl.principal}, host={acl.host},"
        f" operation={text_of(AclOperation, acl.operation)},"
        f" permissionType={text_of(AclPermission, acl.permission)})"
    )
