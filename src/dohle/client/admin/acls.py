"""Lists, adds and removes ACLs. The active controller decides, whichever broker is asked."""

from __future__ import annotations

from collections.abc import Iterable

from dohle.client.admin.requests import AdminRequests, sort_out
from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.core.acls import Acl, AclFilter
from dohle.core.errors import ErrorCode
from dohle.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from dohle.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dohle.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class AclAdmin(AdminRequests):
    """The part of an admin client for ACLs."""

    async def describe_acls(self, wanted: AclFilter) -> tuple[Acl, ...]:
        """Return the ACLs that a filter matches."""
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )

        async def ask(connection: Connection) -> tuple[Acl, ...]:
            answer = await connection.request(request, DescribeAclsResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, "ACLs", answer.error_message)
            return tuple(
                Acl(
                    each.resource_type,
                    each.resource_name,
                    each.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for each in answer.resources
                for acl in each.acls
            )

        return await self._ask_any("describe ACLs", ask)

    async def create_acls(self, acls: Iterable[Acl]) -> Results[Acl, None]:
        """Add ACLs; those that there are already are no error."""
        wanted = tuple(acls)
        request = CreateAclsRequest(
            creations=tuple(
                AclCreation(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    resource_pattern_type=each.pattern_type,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            )
        )

        async def ask(connection: Connection) -> Results[Acl, None]:
            answer = await connection.request(request, CreateAclsResponse)
            return sort_out(
                (acl, each.error_code, f"ACL of {acl.principal}", each.error_message, None)
                for acl, each in zip(wanted, answer.results, strict=True)
            )

        return await self._ask_controller("create ACLs", ask)

    async def delete_acls(
        self, filters: Iterable[AclFilter]
    ) -> Results[AclFilter, tuple[Acl, ...]]:
        """Remove the ACLs that filters match, and return them."""
        wanted = tuple(filters)
        request = DeleteAclsRequest(
            filters=tuple(
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.resource_name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            )
        )

        async def ask(connection: Connection) -> Results[AclFilter, tuple[Acl, ...]]:
            answer = await connection.request(request, DeleteAclsResponse)
            return sort_out(
                (
                    asked,
                    each.error_code,
                    "ACLs",
                    each.error_message,
                    tuple(map(_removed, each.matching_acls)),
                )
                for asked, each in zip(wanted, answer.filter_results, strict=True)
            )

        return await self._ask_controller("delete ACLs", ask)


def _removed(each: DeleteAclsMatchingAcl) -> Acl:
    if each.error_code:
        code = ErrorCode(each.error_code)
        raise answered_error(code, f"ACL of {each.principal}", each.error_message)
    return Acl(
        each.resource_type,
        each.resource_name,
        each.pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )
