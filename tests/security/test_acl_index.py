"""The index of ACLs: the same whether it was changed step by step or made anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.core.acls import (
    ANY,
    EVERYBODY,
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from dohle.core.ids import Uuid
from dohle.security.acl_index import AclIndex
from dohle.security.authorizer import Authorizer

_TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP)
_OPERATIONS = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_NAMES = ("a", "ab", "abc", "b", "*", "*a")
_PRINCIPALS = ("User:a", "User:b", "Group:a", EVERYBODY)
_HOSTS = ("1.2.3.4", "5.6.7.8", ANY)

_acls = st.builds(
    Acl,
    st.sampled_from(_TYPES),
    st.sampled_from(_NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from(_PRINCIPALS),
    st.sampled_from(_HOSTS),
    st.sampled_from(_OPERATIONS),
    st.sampled_from((AclPermission.ALLOW, AclPermission.DENY)),
)
_ids = st.integers(0, 7).map(lambda number: Uuid(number.to_bytes(16, "big")))
_changes = st.lists(st.tuples(_ids, st.none() | _acls), max_size=40)
_questions = st.tuples(
    st.sampled_from(("User:a", "User:b", "User:c")),
    st.sampled_from(("1.2.3.4", "9.9.9.9")),
    st.sampled_from(_OPERATIONS[1:]),
    st.sampled_from(_TYPES),
    st.sampled_from(("a", "ab", "abcd", "b", "c", "*", "*ab")),
)


def _left(changes: list[tuple[Uuid, Acl | None]]) -> dict[Uuid, Acl]:
    left: dict[Uuid, Acl] = {}
    for acl_id, acl in changes:
        left.pop(acl_id, None)
        if acl is not None:
            left[acl_id] = acl
    return left


@given(_changes)
def test_changed_step_by_step_it_equals_one_made_anew(
    changes: list[tuple[Uuid, Acl | None]],
) -> None:
    """Section 8, CVE-2024-27309: a removal leaves nothing of the ACL behind."""
    index = AclIndex()
    for acl_id, acl in changes:
        if acl is None:
            index.remove(acl_id)
        else:
            index.add(acl_id, acl)
    left = _left(changes)
    assert index == AclIndex(left.items())
    assert len(index) == len(left)


@given(_changes, st.lists(_questions, min_size=1, max_size=20), st.booleans())
def test_what_is_decided_equals_a_scan_of_all_acls(
    changes: list[tuple[Uuid, Acl | None]],
    questions: list[tuple[str, str, AclOperation, AclResourceType, str]],
    allow_everyone: bool,
) -> None:
    """Section 6, decision and match, also between two changes, and asked twice."""
    authorizer = Authorizer(allow_everyone=allow_everyone)
    for number in range(len(changes) + 1):
        acls = list(_left(changes[:number]).values())
        for question in questions * 2:
            verdict = authorizer.decide(*question)
            assert verdict.is_allowed == _scanned(acls, *question, default=allow_everyone)
        if number < len(changes):
            authorizer.change([changes[number]])


_IMPLYING = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def _scanned(
    acls: list[Acl],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    """Decide as the rules are written, by looking at every ACL."""
    about = [acl for acl in acls if acl.resource_type == resource_type and _covers(acl, name)]
    mine = [
        acl for acl in about if acl.principal in (principal, EVERYBODY) and acl.host in (host, ANY)
    ]
    denying = {acl.operation for acl in mine if acl.permission == AclPermission.DENY}
    allowing = {acl.operation for acl in mine if acl.permission == AclPermission.ALLOW}
    if denying & {operation, AclOperation.ALL}:
        return False
    if allowing & ({operation, AclOperation.ALL} | _IMPLYING.get(operation, set())):
        return True
    return default and not about


def _covers(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, ANY)


def test_ten_thousand_acls_are_not_looked_at_one_by_one() -> None:
    index = AclIndex()
    for number in range(10_000):
        name = f"topic-{number}"
        acl = Acl(
            AclResourceType.TOPIC,
            name,
            PatternType.PREFIXED if number % 2 else PatternType.LITERAL,
            f"User:{number}",
            ANY,
            AclOperation.ALL,
            AclPermission.ALLOW,
        )
        index.add(Uuid(number.to_bytes(16, "big")), acl)
    found = list(index.about(AclResourceType.TOPIC, "topic-4711-of-many", "User:4711"))
    assert [acl.resource_name for acl in found] == ["topic-4711"]
    assert not list(index.about(AclResourceType.TOPIC, "topic-4711-of-many", "User:1"))
