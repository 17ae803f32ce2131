"""Access control lists as Kafka has them: who may do what, to which resource, from which host.

An ACL names one principal, or everybody (``User:*``), one host by its address, or any (``*``), and
a pattern of resources: one name, any name (the literal ``*``), or all names with a prefix.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

#: As the name of a literal pattern, and as a host: any.
ANY = "*"
EVERYBODY = "User:*"
#: The only resource of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class AclResourceType(IntEnum):
    """What an ACL protects; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a pattern is meant; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What is done; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether it is allowed; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def text_of(
    kind: type[AclResourceType | PatternType | AclOperation | AclPermission], value: int
) -> str:
    """Return the name of a value; UNKNOWN if this release does not know it."""
    try:
        return kind(value).name
    except ValueError:
        return "UNKNOWN"


class Acl(NamedTuple):
    """One access control entry, with the pattern that it is bound to."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Which ACLs are meant: None and ANY leave a field open."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def unknown_field(self) -> str | None:
        """The first field whose value this release does not know."""
        values = (
            ("resourceType", self.resource_type, AclResourceType),
            ("patternType", self.pattern_type, PatternType),
            ("operation", self.operation, AclOperation),
            ("permissionType", self.permission, AclPermission),
        )
        for name, value, kind in values:
            if text_of(kind, value) == "UNKNOWN":
                return name
        return None

    def matches(self, acl: Acl) -> bool:
        """Tell whether an ACL is meant."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self._matches_pattern(acl.pattern_type, acl.resource_name)
        )

    def _matches_pattern(self, pattern_type: int, name: str) -> bool:
        wanted, asked = self.pattern_type, self.resource_name
        if wanted not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            return False
        if asked is None or asked == name:
            # With MATCH too: a prefix is one of itself.
            return True
        if wanted != PatternType.MATCH:
            return False
        if pattern_type == PatternType.PREFIXED:
            return asked.startswith(name)
        return name == ANY
