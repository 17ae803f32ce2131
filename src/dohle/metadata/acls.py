"""CreateAcls, DeleteAcls and DescribeAcls: ACLs are records in the log (KIP-801).

- CreateAcls has a result for each ACL; one that is not valid: 42. What there is already is not
  written again. Any operation can be named for any type of resource, sensible or not.
- DeleteAcls has a result for each filter, with what it matches; one that has an unknown value: 42.
  If all of them match more than fit one batch, nothing is deleted: 42.
- The records of a request are one batch: all of them take effect, or none.
- DescribeAcls: by one filter, grouped by resource.
"""

from __future__ import annotations

from collections.abc import Mapping

from dohle.core.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    text_of,
)
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.core.seams import Rng
from dohle.core.steps import PlainSteps
from dohle.core.uuid import random_uuid
from dohle.metadata.decision import (
    RECORDS_PER_REQUEST_MAX,
    ApiError,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from dohle.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dohle.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from dohle.protocol.messages.records.cluster_metadata import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

_FOR_FILTERS = ("UNKNOWN", "ANY")


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """Return the ACL that a record holds."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


# CreateAcls


def create_acls(
    image: ClusterImage, request: CreateAclsRequest, rng: Rng
) -> PlainSteps[Decision[CreateAclsResponse]]:
    """Decide which ACLs are new."""
    known: set[Acl] = set()
    for record in image.acls.values():
        known.add(acl_of(record))
        yield
    records: list[VersionedRecord] = []
    results: list[AclCreationResult] = []
    for creation in request.creations:
        yield
        try:
            acl = _checked(creation)
        except KafkaError as error:
            code, message = ApiError.of(error)
            results.append(AclCreationResult(error_code=code, error_message=message))
            continue
        if acl not in known:
            known.add(acl)
            if len(records) == RECORDS_PER_REQUEST_MAX:
                raise too_many_records()
            records.append(VersionedRecord(_record(random_uuid(rng), acl), 0))
        results.append(AclCreationResult())
    return Decision(tuple(records), CreateAclsResponse(results=tuple(results)))


def _record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _checked(creation: AclCreation) -> Acl:
    kind, name = creation.resource_type, creation.resource_name
    if kind == AclResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    if (text := text_of(AclResourceType, kind)) in _FOR_FILTERS:
        raise _invalid(f"Invalid resourceType {text}")
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(
            f"Invalid patternType {text_of(PatternType, creation.resource_pattern_type)}"
        )
    if (text := text_of(AclOperation, creation.operation)) in _FOR_FILTERS:
        raise _invalid(f"Invalid operation {text}")
    if creation.permission_type not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid(f"Invalid permissionType {text_of(AclPermission, creation.permission_type)}")
    if ":" not in creation.principal:
        raise _invalid(
            f"Could not parse principal from `{creation.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    return Acl(
        kind,
        name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


# DeleteAcls


def delete_acls(
    image: ClusterImage, request: DeleteAclsRequest
) -> PlainSteps[Decision[DeleteAclsResponse]]:
    """Decide which ACLs go."""
    removed: dict[Uuid, None] = {}
    results: list[DeleteAclsFilterResult] = []
    for asked in request.filters:
        yield
        wanted = _filter_of(asked)
        if (unknown := _unknown(wanted)) is not None:
            code, message = unknown
            results.append(DeleteAclsFilterResult(error_code=code, error_message=message))
            continue
        matching: list[DeleteAclsMatchingAcl] = []
        for acl_id, record in image.acls.items():
            acl = acl_of(record)
            if wanted.matches(acl):
                removed[acl_id] = None
                matching.append(_deleted(acl))
            if len(removed) > RECORDS_PER_REQUEST_MAX:
                raise _invalid(
                    f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete "
                    "operation."
                )
            yield
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=tuple(matching)))
    records = tuple(
        VersionedRecord(RemoveAccessControlEntryRecord(id=acl_id), 0) for acl_id in removed
    )
    return Decision(records, DeleteAclsResponse(filter_results=tuple(results)))


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


# DescribeAcls


def describe_acls(
    image: ClusterImage, request: DescribeAclsRequest
) -> PlainSteps[DescribeAclsResponse]:
    """Return the ACLs that a filter matches."""
    wanted = _filter_of(request)
    if (unknown := _unknown(wanted)) is not None:
        return DescribeAclsResponse(error_code=unknown.code, error_message=unknown.message)
    found: dict[tuple[int, int, str], list[AclDescription]] = {}
    for record in image.acls.values():
        yield
        acl = acl_of(record)
        if wanted.matches(acl):
            pattern = acl.resource_type, acl.pattern_type, acl.resource_name
            found.setdefault(pattern, []).append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
    resources = []
    for (kind, pattern_type, name), acls in sorted(found.items()):
        yield
        resources.append(
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern_type,
                acls=tuple(acls),
            )
        )
    return DescribeAclsResponse(resources=tuple(resources))


# Both


def _filter_of(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


_UNKNOWN_IN: Mapping[str, str] = {
    "resourceType": "Unknown patternFilter.",
    "patternType": "Unknown patternFilter.",
    "operation": "Unknown entryFilter.",
    "permissionType": "Unknown entryFilter.",
}


def _unknown(wanted: AclFilter) -> ApiError | None:
    field = wanted.unknown_field
    return None if field is None else ApiError(ErrorCode.INVALID_REQUEST, _UNKNOWN_IN[field])


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
