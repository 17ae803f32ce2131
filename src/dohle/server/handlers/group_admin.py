"""DescribeGroups (15) v0-6, ListGroups (16) v0-5 and DeleteGroups (42) v0-2.

- DescribeGroups describes classic groups. Any other group is Dead, and from v6 on an error, 69. The
  empty group id is allowed, since it once was a valid one.
- ListGroups lists the groups that this broker coordinates, of either protocol; v4+ may filter by
  state, v5+ by type. While any of them are being loaded: 14.
- DeleteGroups: 68 for a group that has members, 69 for one that does not exist. A group that is
  named twice is deleted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from dohle.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from dohle.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.net.dispatch import Handler, serves

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

#: Read, delete, describe, describe configs and alter configs: one bit each, at its code.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


async def handle_describe_groups(
    broker: BrokerServer, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe classic groups."""
    described = [await _described(broker, group_id, context.version) for group_id in request.groups]
    if request.include_authorized_operations:
        described = [
            group if group.error_code else group.replace(authorized_operations=GROUP_OPERATIONS)
            for group in described
        ]
    return DescribeGroupsResponse(groups=tuple(described))


async def _described(broker: BrokerServer, group_id: GroupId, version: int) -> DescribedGroup:
    try:
        found: DescribedGroup = await broker.groups.call(
            group_id, lambda machine, ticket: machine.describe_group(group_id, ticket, version)
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    return found


def handle_list_groups(
    broker: BrokerServer, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that this broker coordinates."""
    if broker.groups.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return ListGroupsResponse(
        groups=tuple(
            group
            for _, machine in broker.groups.active()
            for group in machine.list_groups(request.states_filter, request.types_filter)
        )
    )


async def handle_delete_groups(
    broker: BrokerServer, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete groups and their offsets."""
    return DeleteGroupsResponse(
        results=tuple(
            [
                DeletableGroupResult(group_id=group_id, error_code=await _delete(broker, group_id))
                for group_id in dict.fromkeys(request.groups_names)
            ]
        )
    )


async def _delete(broker: BrokerServer, group_id: GroupId) -> ErrorCode:
    try:
        await broker.groups.call(
            group_id, lambda machine, ticket: machine.delete_group(group_id, ticket)
        )
    except KafkaError as error:
        return coordinator_error_code(error)
    return ErrorCode.NONE


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_GROUPS, handle_describe_groups),
    serves(ApiKey.LIST_GROUPS, handle_list_groups),
    serves(ApiKey.DELETE_GROUPS, handle_delete_groups),
)
