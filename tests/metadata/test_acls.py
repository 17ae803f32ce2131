"""ACLs in the metadata log: created, deleted and described by filters (section 6 of the rules)."""

from __future__ import annotations

import random

import pytest

from dohle.core.acls import AclOperation, AclPermission, AclResourceType, PatternType
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import finish
from dohle.metadata.acls import create_acls, delete_acls, describe_acls
from dohle.metadata.decision import Decision
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply
from dohle.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from dohle.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dohle.protocol.messages.describe_acls import DescribeAclsRequest

_TOPIC, _GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_MATCH, _ANY = PatternType.MATCH, PatternType.ANY


def _acl(
    name: str = "orders",
    pattern: int = _LITERAL,
    *,
    kind: int = _TOPIC,
    principal: str = "User:alice",
    operation: int = AclOperation.READ,
    permission: int = AclPermission.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def _create(image: ClusterImage, *acls: AclCreation) -> Decision[CreateAclsResponse]:
    rng = random.Random(len(image.acls))
    return finish(create_acls(image, CreateAclsRequest(creations=acls), rng))


def _after(image: ClusterImage, decision: Decision[CreateAclsResponse]) -> ClusterImage:
    records = [each.record for each in decision.records]
    after, delta = apply(image, records, image.offset + len(records), 1)
    assert len(delta.changed_acls) == len(records)
    return after


def _image(*acls: AclCreation) -> ClusterImage:
    return _after(EMPTY_IMAGE, _create(EMPTY_IMAGE, *acls))


def _filter(
    name: str | None = None, pattern: int = _ANY, kind: int = AclResourceType.ANY
) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )


def _described(image: ClusterImage, asked: DescribeAclsRequest) -> list[tuple[str, int, int]]:
    answer = finish(describe_acls(image, asked))
    assert answer.error_code == 0
    return [(each.resource_name, each.pattern_type, len(each.acls)) for each in answer.resources]


def test_an_acl_that_is_there_or_is_repeated_is_not_written_again() -> None:
    """Line "CreateAcls": success without a record."""
    decision = _create(EMPTY_IMAGE, _acl(), _acl(), _acl("others"))
    assert [each.error_code for each in decision.reply.results] == [0, 0, 0]
    assert len(decision.records) == 2
    again = _create(_after(EMPTY_IMAGE, decision), _acl())
    assert again.records == ()
    assert again.reply.results[0].error_code == 0


@pytest.mark.parametrize(
    "wrong",
    [
        _acl(kind=0),
        _acl(kind=1),
        _acl(kind=99),
        _acl(pattern=_MATCH),
        _acl(operation=1),
        _acl(operation=99),
        _acl(permission=1),
        _acl(""),
        _acl(principal="alice"),
        _acl("kafka", kind=AclResourceType.CLUSTER),
    ],
)
def test_what_is_wrong_is_refused_by_itself(wrong: AclCreation) -> None:
    """Line "CreateAcls": 42 per entry."""
    decision = _create(EMPTY_IMAGE, wrong, _acl())
    assert [each.error_code for each in decision.reply.results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert len(decision.records) == 1


def test_any_operation_goes_with_any_type() -> None:
    """Line "CreateAcls": also senseless ones."""
    decision = _create(EMPTY_IMAGE, _acl(kind=_GROUP, operation=AclOperation.CREATE_TOKENS))
    assert decision.reply.results[0].error_code == 0


def test_more_than_fit_a_batch_are_refused_together() -> None:
    """Line "CreateAcls": more than 10000 records."""
    with pytest.raises(KafkaError):
        _create(EMPTY_IMAGE, *(_acl(f"t{number}") for number in range(10_001)))


def test_filters_find_what_affects_a_name() -> None:
    """Line "DescribeAcls": ANY compares literally, MATCH finds all that affect the name."""
    image = _image(
        _acl(), _acl("*"), _acl("ord", _PREFIXED), _acl("orders", _PREFIXED), _acl("x", _PREFIXED)
    )
    assert len(_described(image, _filter())) == 5
    assert _described(image, _filter("orders")) == [
        ("orders", _LITERAL, 1),
        ("orders", _PREFIXED, 1),
    ]
    assert _described(image, _filter("orders", _LITERAL)) == [("orders", _LITERAL, 1)]
    assert _described(image, _filter("orders", _MATCH)) == [
        ("*", _LITERAL, 1),
        ("orders", _LITERAL, 1),
        ("ord", _PREFIXED, 1),
        ("orders", _PREFIXED, 1),
    ]
    assert _described(image, _filter("orders", kind=_GROUP)) == []


def test_what_is_described_is_grouped_by_resource() -> None:
    """Line "DescribeAcls"."""
    image = _image(_acl(), _acl(principal="User:bob"), _acl(kind=_GROUP))
    assert _described(image, _filter()) == [("orders", _LITERAL, 2), ("orders", _LITERAL, 1)]


def test_an_unknown_value_in_a_filter_is_refused() -> None:
    """Lines "DeleteAcls", "DescribeAcls": UNKNOWN → 42."""
    answer = finish(describe_acls(EMPTY_IMAGE, _filter(kind=0)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    answer = finish(describe_acls(EMPTY_IMAGE, _filter(pattern=99)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def _delete(*names: str | None, kind: int = AclResourceType.ANY) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=tuple(
            DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=_ANY,
                principal_filter=None,
                host_filter=None,
                operation=AclOperation.ANY,
                permission_type=AclPermission.ANY,
            )
            for name in names
        )
    )


def test_each_filter_tells_what_it_deletes() -> None:
    """Line "DeleteAcls": no match is success; one ACL of two filters is deleted once."""
    image = _image(_acl(), _acl("others"))
    decision = finish(delete_acls(image, _delete("orders", "nothing", None)))
    results = decision.reply.filter_results
    names = [sorted(acl.resource_name for acl in each.matching_acls) for each in results]
    assert names == [["orders"], [], ["orders", "others"]]
    assert {each.error_code for each in results} == {0}
    assert len(decision.records) == 2
    left, delta = apply(image, [each.record for each in decision.records], 9, 1)
    assert len(left.acls) == 0
    assert all(change.after is None for change in delta.changed_acls)


def test_a_wrong_filter_does_not_affect_others() -> None:
    """Line "DeleteAcls": per filter."""
    image = _image(_acl())
    good, bad = _delete("orders").filters[0], _delete("orders", kind=0).filters[0]
    decision = finish(delete_acls(image, DeleteAclsRequest(filters=(bad, good))))
    codes = [each.error_code for each in decision.reply.filter_results]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(decision.records) == 1


def test_more_matches_than_fit_a_batch_fail_the_whole_request() -> None:
    """Line "DeleteAcls": more than 10000 matches → 42."""
    image = _image(*(_acl(f"t{number}") for number in range(6_000)))
    image = _after(image, _create(image, *(_acl(f"u{number}") for number in range(6_000))))
    with pytest.raises(KafkaError) as refused:
        finish(delete_acls(image, _delete(None)))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
