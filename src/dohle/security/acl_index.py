"""All ACLs, so that those about one resource and one client are found without looking at others.

A resource is protected by the ACLs of its literal name, of the literal ``*`` and of each prefix of
its name. The first two are one look into a dictionary each. Of prefixes it is known which lengths
there are, mostly a few: one look for each of these. Within a pattern, ACLs are kept by principal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dohle.core.acls import ANY, EVERYBODY, Acl, PatternType
from dohle.core.ids import Uuid

_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

#: The ACLs of a pattern, by principal and id.
_Pattern = dict[str, dict[Uuid, Acl]]
_PatternKey = tuple[int, int, str]


class AclIndex:
    """ACLs by id, by pattern and by principal. Equal if they have the same ACLs."""

    def __init__(self, acls: Iterable[tuple[Uuid, Acl]] = ()) -> None:
        self._acls: dict[Uuid, Acl] = {}
        self._patterns: dict[_PatternKey, _Pattern] = {}
        #: How many patterns of prefixes have a length, by resource type.
        self._prefix_lengths: dict[int, Counter[int]] = {}
        self._by_principal: dict[str, dict[Uuid, Acl]] = {}
        for acl_id, acl in acls:
            self.add(acl_id, acl)

    def __len__(self) -> int:
        return len(self._acls)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclIndex) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def add(self, acl_id: Uuid, acl: Acl) -> None:
        """Add an ACL; one with the same id is replaced."""
        self.remove(acl_id)
        self._acls[acl_id] = acl
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = {}
            if acl.pattern_type == _PREFIXED:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, Counter())
                lengths[len(acl.resource_name)] += 1
        pattern.setdefault(acl.principal, {})[acl_id] = acl
        self._by_principal.setdefault(acl.principal, {})[acl_id] = acl

    def remove(self, acl_id: Uuid) -> None:
        """Remove an ACL, if it is there."""
        acl = self._acls.pop(acl_id, None)
        if acl is None:
            return
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        _remove(self._by_principal, acl.principal, acl_id)
        pattern = self._patterns[key]
        _remove(pattern, acl.principal, acl_id)
        if pattern:
            return
        del self._patterns[key]
        if acl.pattern_type == _PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            length = len(acl.resource_name)
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]
            if not lengths:
                del self._prefix_lengths[acl.resource_type]

    def about(self, resource_type: int, name: str, principal: str) -> Iterator[Acl]:
        """Return the ACLs of a principal, and of everybody, that protect a resource."""
        for pattern in self._protecting(resource_type, name):
            for who in (principal, EVERYBODY):
                if found := pattern.get(who):
                    yield from found.values()

    def is_protected(self, resource_type: int, name: str) -> bool:
        """Tell whether there is any ACL about a resource, whomever it concerns."""
        return any(True for _ in self._protecting(resource_type, name))

    def of(self, principal: str) -> Iterator[Acl]:
        """Return all ACLs of a principal, and of everybody."""
        for who in (principal, EVERYBODY):
            yield from self._by_principal.get(who, {}).values()

    def _protecting(self, resource_type: int, name: str) -> Iterator[_Pattern]:
        patterns = self._patterns
        for literal in (name, ANY) if name != ANY else (ANY,):
            if (found := patterns.get((resource_type, _LITERAL, literal))) is not None:
                yield found
        for length in self._prefix_lengths.get(resource_type, ()):
            key = resource_type, _PREFIXED, name[:length]
            if length <= len(name) and (found := patterns.get(key)) is not None:
                yield found


def _remove(acls: dict[str, dict[Uuid, Acl]], principal: str, acl_id: Uuid) -> None:
    left = acls[principal]
    del left[acl_id]
    if not left:
        del acls[principal]
