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
from dohle.core.steps import PlainSteps
from dohle.groups.coordinator import listed_state, listed_type
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
from dohle.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

#: Read, delete, describe, describe configs and alter configs: one bit each, at its code.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


async def handle_describe_groups(
    broker: BrokerServer, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe classic groups."""
    described = []
    slices = Slices(broker.turns)
    for group_id in request.groups:
        await slices.give_way()
        group = await _described(broker, group_id, context.version)
        if request.include_authorized_operations and not group.error_code:
            group = group.replace(authorized_operations=GROUP_OPERATIONS)
        described.append(group)
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
) -> PlainSteps[ListGroupsResponse]:
    """List the groups that this broker coordinates."""
    if broker.groups.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states, types = set(), set()
    for name in request.states_filter:
        states.add(listed_state(name))
        yield
    for name in request.types_filter:
        types.add(listed_type(name))
        yield
    groups: list[ListedGroup] = []
    for _, machine in broker.groups.active():
        groups += yield from machine.list_groups(states, types)
    return ListGroupsResponse(groups=tuple(groups))


async def handle_delete_groups(
    broker: BrokerServer, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete groups and their offsets."""
    results: dict[GroupId, DeletableGroupResult] = {}
    slices = Slices(broker.turns)
    for group_id in request.groups_names:
        await slices.give_way()
        if group_id not in results:
            code = await _delete(broker, group_id, slices)
            results[group_id] = DeletableGroupResult(group_id=group_id, error_code=code)
    return DeleteGroupsResponse(results=tuple(results.values()))


async def _delete(broker: BrokerServer, group_id: GroupId, slices: Slices) -> ErrorCode:
    groups = broker.groups
    try:
        machine = groups.shard(groups.partition_of(group_id)).machine
        prepared = await slices.run(machine.prepare_deletion(group_id))
        await groups.call(group_id, lambda machine, ticket: machine.delete_group(prepared, ticket))
    except KafkaError as error:
        return coordinator_error_code(error)
    return ErrorCode.NONE


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_GROUPS, handle_describe_groups),
    serves(ApiKey.LIST_GROUPS, handle_list_groups),
    serves(ApiKey.DELETE_GROUPS, handle_delete_groups),
)
