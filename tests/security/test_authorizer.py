"""The rules of Kafka's StandardAuthorizer: section 6 of the rules, line by line."""

from __future__ import annotations

import tracemalloc

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
from dohle.security.authorizer import Authorizer

_ALICE = "User:alice"
_HOST = "10.0.0.1"
_TOPIC, _GROUP = AclResourceType.TOPIC, AclResourceType.GROUP


def _acl(
    operation: AclOperation,
    name: str = "orders",
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = _ALICE,
    host: str = ANY,
    kind: AclResourceType = _TOPIC,
) -> Acl:
    return Acl(
        kind,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def _with(
    *acls: Acl, super_users: tuple[str, ...] = (), allow_everyone: bool = False
) -> Authorizer:
    authorizer = Authorizer(super_users, allow_everyone=allow_everyone)
    authorizer.change((Uuid(bytes(15) + bytes([n])), acl) for n, acl in enumerate(acls))
    return authorizer


def _may(
    authorizer: Authorizer,
    operation: AclOperation,
    name: str = "orders",
    *,
    principal: str = _ALICE,
    host: str = _HOST,
    kind: AclResourceType = _TOPIC,
) -> bool:
    return authorizer.decide(principal, host, operation, kind, name).is_allowed


def test_a_super_user_may_do_what_is_denied() -> None:
    """Line "Decision": before anything, DENY included."""
    authorizer = _with(_acl(AclOperation.ALL, deny=True), super_users=(_ALICE, "User:CN=a,O=b"))
    assert _may(authorizer, AclOperation.READ)
    assert authorizer.decide(_ALICE, _HOST, AclOperation.READ, _TOPIC, "x").rule == "SuperUser"


def test_any_deny_wins_over_any_allow() -> None:
    """Line "Decision"; of whatever patterns they are."""
    authorizer = _with(
        _acl(AclOperation.READ),
        _acl(AclOperation.READ, "ord", prefixed=True, deny=True, principal=EVERYBODY),
    )
    assert not _may(authorizer, AclOperation.READ)
    rule = authorizer.decide(_ALICE, _HOST, AclOperation.READ, _TOPIC, "orders").rule
    assert rule == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=ord, patternType=PREFIXED,"
        " principal=User:*, host=*, operation=READ, permissionType=DENY))"
    )


def test_nothing_is_allowed_without_an_acl() -> None:
    """Line "Decision": else deny."""
    authorizer = _with(_acl(AclOperation.READ, "other"))
    assert not _may(authorizer, AclOperation.READ)
    rule = authorizer.decide(_ALICE, _HOST, AclOperation.READ, _TOPIC, "orders").rule
    assert rule == "DefaultDeny"


def test_everyone_may_use_what_has_no_acl_of_anybody_if_the_default_says_so() -> None:
    """Line "Decision", allow.everyone.if.no.acl.found."""
    authorizer = _with(_acl(AclOperation.WRITE, principal="User:bob"), allow_everyone=True)
    assert not _may(authorizer, AclOperation.READ, "orders")
    assert _may(authorizer, AclOperation.READ, "free")
    authorizer.change([(Uuid(b"w" * 16), _acl(AclOperation.WRITE, ANY, principal="User:bob"))])
    assert not _may(authorizer, AclOperation.READ, "free")
    assert _may(authorizer, AclOperation.READ, "free", kind=_GROUP)


def test_a_literal_star_is_any_name_and_a_prefixed_star_is_a_star() -> None:
    """Line "Match"."""
    assert _may(_with(_acl(AclOperation.READ, ANY)), AclOperation.READ, "whatever")
    prefixed = _with(_acl(AclOperation.READ, ANY, prefixed=True))
    assert not _may(prefixed, AclOperation.READ, "whatever")
    assert _may(prefixed, AclOperation.READ, "*stars")


def test_a_prefix_covers_itself_and_what_begins_with_it() -> None:
    """Line "Match"."""
    authorizer = _with(_acl(AclOperation.READ, "ord", prefixed=True))
    assert _may(authorizer, AclOperation.READ, "ord")
    assert _may(authorizer, AclOperation.READ, "orders")
    assert not _may(authorizer, AclOperation.READ, "or")


def test_a_principal_is_compared_as_it_is_written() -> None:
    """Line "Match": equal, or User:*; no patterns, case matters."""
    authorizer = _with(_acl(AclOperation.READ), _acl(AclOperation.WRITE, principal="User:al*"))
    assert not _may(authorizer, AclOperation.READ, principal="User:Alice")
    assert not _may(authorizer, AclOperation.READ, principal="Group:alice")
    assert not _may(authorizer, AclOperation.WRITE)
    assert _may(_with(_acl(AclOperation.READ, principal=EVERYBODY)), AclOperation.READ)


def test_a_host_is_an_address_or_any() -> None:
    """Line "Match": no networks, no names."""
    authorizer = _with(
        _acl(AclOperation.READ, host=_HOST), _acl(AclOperation.WRITE, host="10.0.0.0/24")
    )
    assert _may(authorizer, AclOperation.READ)
    assert not _may(authorizer, AclOperation.READ, host="10.0.0.2")
    assert not _may(authorizer, AclOperation.WRITE)


def test_all_is_every_operation() -> None:
    """Line "Match"."""
    authorizer = _with(_acl(AclOperation.ALL))
    assert _may(authorizer, AclOperation.ALTER_CONFIGS)


def test_some_operations_allow_to_describe() -> None:
    """Line "Implied"."""
    for operation in (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ):
        assert _may(_with(_acl(operation)), AclOperation.DESCRIBE)
    assert not _may(_with(_acl(AclOperation.CREATE)), AclOperation.DESCRIBE)
    assert _may(_with(_acl(AclOperation.ALTER_CONFIGS)), AclOperation.DESCRIBE_CONFIGS)
    assert not _may(_with(_acl(AclOperation.DESCRIBE_CONFIGS)), AclOperation.DESCRIBE)


def test_who_must_not_read_may_still_describe() -> None:
    """Line "Implied": for ALLOW only."""
    authorizer = _with(_acl(AclOperation.READ, deny=True), _acl(AclOperation.WRITE))
    assert not _may(authorizer, AclOperation.READ)
    assert _may(authorizer, AclOperation.DESCRIBE)


def _may_any(*acls: Acl, allow_everyone: bool = False) -> bool:
    authorizer = _with(*acls, allow_everyone=allow_everyone)
    return authorizer.may_any(_ALICE, _HOST, AclOperation.WRITE, _TOPIC)


def test_some_topic_may_be_written_if_an_acl_allows_any() -> None:
    """Line "authorizeByResourceType"."""
    assert not _may_any()
    assert _may_any(allow_everyone=True)
    assert _may_any(_acl(AclOperation.WRITE))
    assert _may_any(_acl(AclOperation.ALL, "o", prefixed=True))
    assert not _may_any(_acl(AclOperation.READ))
    assert not _may_any(_acl(AclOperation.WRITE, host="10.0.0.2"))
    assert not _may_any(_acl(AclOperation.WRITE, kind=_GROUP))


def test_an_acl_does_not_count_if_all_of_it_is_denied() -> None:
    """Line "authorizeByResourceType": dominated."""
    write, deny = _acl(AclOperation.WRITE), _acl(AclOperation.WRITE, deny=True)
    assert not _may_any(write, deny)
    assert not _may_any(write, _acl(AclOperation.ALL, "ord", prefixed=True, deny=True))
    assert _may_any(write, _acl(AclOperation.WRITE, "other", deny=True))
    prefix = _acl(AclOperation.WRITE, "ord", prefixed=True)
    assert _may_any(prefix, _acl(AclOperation.WRITE, "ord", deny=True))
    assert not _may_any(prefix, _acl(AclOperation.WRITE, "o", prefixed=True, deny=True))
    anything = _acl(AclOperation.WRITE, ANY)
    assert _may_any(anything, _acl(AclOperation.WRITE, "o", prefixed=True, deny=True))
    assert not _may_any(anything, _acl(AclOperation.WRITE, ANY, deny=True))


def test_a_change_is_obeyed_at_once_and_tells_that_it_happened() -> None:
    """Line "Cache": all is dropped when the ACLs change."""
    authorizer = _with(_acl(AclOperation.READ))
    assert _may(authorizer, AclOperation.READ)
    version = authorizer.version
    authorizer.change([(Uuid(bytes(16)), None)])
    assert not _may(authorizer, AclOperation.READ)
    assert authorizer.version != version


def test_long_names_that_nobody_has_are_not_kept() -> None:
    """Section 8, model: users may cost CPU, but must not crash a broker: 60 MB were asked for."""
    authorizer = _with(_acl(AclOperation.READ, "x", prefixed=True))
    tracemalloc.start()
    try:
        for number in range(2000):
            assert _may(authorizer, AclOperation.READ, f"x{number:030000}")
            assert _may(authorizer, AclOperation.READ, f"x{number}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5_000_000
