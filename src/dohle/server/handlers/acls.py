"""DescribeAcls (29) v1-3, CreateAcls (30) v1-3, DeleteAcls (31) v1-3.

- Without an authorizer: SECURITY_DISABLED, for each one of the request.
- The controller decides about changes (``dohle.metadata.acls``). They take effect on this node
  before they are answered.
- What is described is what this node knows.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps
from dohle.metadata.acls import describe_acls
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from dohle.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dohle.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext

_NO_AUTHORIZER = "No Authorizer is configured."


def handle_describe_acls(
    server: Frontend, context: RequestContext, request: DescribeAclsRequest
) -> PlainSteps[DescribeAclsResponse]:
    """Return the ACLs that a filter matches."""
    if server.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
        )
    return (yield from describe_acls(server.image, request))


def handle_create_acls(
    server: Frontend, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse | Coroutine[Any, Any, CreateAclsResponse]:
    """Add ACLs."""
    if server.authorizer is not None:
        return _create(server, context, request)
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER
    )
    return CreateAclsResponse(results=(refused,) * len(request.creations))


async def _create(
    server: Frontend, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    return await server.ask_controller(context, request, CreateAclsResponse)


def handle_delete_acls(
    server: Frontend, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | Coroutine[Any, Any, DeleteAclsResponse]:
    """Remove ACLs."""
    if server.authorizer is not None:
        return _delete(server, context, request)
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))


async def _delete(
    server: Frontend, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    return await server.ask_controller(context, request, DeleteAclsResponse)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_ACLS, handle_describe_acls),
    serves(ApiKey.CREATE_ACLS, handle_create_acls),
    serves(ApiKey.DELETE_ACLS, handle_delete_acls),
)
