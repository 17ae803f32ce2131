"""Guards of groups and their offsets.

- JoinGroup, SyncGroup, Heartbeat, LeaveGroup: READ on the group, else 30. ConsumerGroupHeartbeat
  too, and DESCRIBE on each topic that it names: one that is hidden, and the whole request gets 29.
- DescribeGroups, ConsumerGroupDescribe: DESCRIBE, else 30 for the group. The latter says 29 of a
  group, and nothing of its members, if these have a topic that the sender may not describe.
- ListGroups: DESCRIBE on the cluster, or on each group; others are left out.
- DeleteGroups: DELETE, else 30 for the group.
- FindCoordinator: DESCRIBE on the group or transactional id, else 30 or 53 for the key; of share
  groups CLUSTER_ACTION, else 31.
- The guards of offsets are in ``offsets``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from dohle.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
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
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.heartbeat import HeartbeatResponse
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from dohle.protocol.messages.leave_group import LeaveGroupResponse
from dohle.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from dohle.protocol.messages.sync_group import SyncGroupResponse
from dohle.protocol.schema import Response
from dohle.server.guards.guard import Guard, GuardedRequest, Narrowed, joined, split
from dohle.server.handlers.find_coordinator import BATCHED, KeyType, no_coordinator

_GROUP, _TOPIC = AclResourceType.GROUP, AclResourceType.TOPIC
_TXN_ID = AclResourceType.TRANSACTIONAL_ID
_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NULL_PROTOCOL_VERSION = 7


# Members


def _of_member(refuse: Callable[[Any, int], Response]) -> Guard:
    def guard(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
        yield
        if asked.rights.may(AclOperation.READ, _GROUP, asked.request.group_id):
            return None
        return refuse(asked.request, asked.version)

    return guard


def _refuse_join(request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=_DENIED,
        member_id="",
        protocol_name=None if version >= _NULL_PROTOCOL_VERSION else "",
    )


guard_join_group = _of_member(_refuse_join)
guard_sync_group = _of_member(lambda *_: SyncGroupResponse(error_code=_DENIED))
guard_heartbeat = _of_member(lambda *_: HeartbeatResponse(error_code=_DENIED))
guard_leave_group = _of_member(lambda *_: LeaveGroupResponse(error_code=_DENIED))


def guard_consumer_group_heartbeat(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let members pass that may read the group and see all topics that they name."""
    request: ConsumerGroupHeartbeatRequest = asked.request
    if not asked.rights.may(AclOperation.READ, _GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(
            error_code=_DENIED, error_message="Group authorization failed."
        )
    names = request.subscribed_topic_names or ()
    _, hidden = yield from split(asked.rights, AclOperation.DESCRIBE, names, lambda name: name)
    if hidden:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="Topic authorization failed.",
        )
    return None


# Descriptions


def guard_describe_groups(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be described."""
    request: DescribeGroupsRequest = asked.request
    rights, with_operations = asked.rights, request.include_authorized_operations
    allowed, refused = yield from split(
        rights, AclOperation.DESCRIBE, request.groups, lambda group: group, _GROUP
    )
    if not refused and not with_operations:
        return None
    answers = yield from mapped(
        lambda group: DescribedGroup(group_id=group, error_code=_DENIED), refused
    )

    def told(group: DescribedGroup) -> DescribedGroup:
        if group.error_code or not with_operations:
            return group
        return group.replace(authorized_operations=rights.operations(_GROUP, group.group_id))

    def complete(response: DescribeGroupsResponse) -> PlainSteps[Response]:
        groups = yield from mapped(told, response.groups)
        return response.replace(groups=answers + groups)

    return Narrowed(request.replace(groups=tuple(allowed)), complete)


def guard_consumer_group_describe(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be described, and hide groups with topics that may not be seen."""
    request: ConsumerGroupDescribeRequest = asked.request
    rights = asked.rights
    allowed, refused = yield from split(
        rights, AclOperation.DESCRIBE, request.group_ids, lambda group: group, _GROUP
    )
    answers = yield from mapped(
        lambda group: ConsumerGroup(group_id=group, error_code=_DENIED), refused
    )

    def told(group: ConsumerGroup) -> PlainSteps[ConsumerGroup]:
        topics: dict[str, None] = {}
        for member in group.members:
            topics.update(dict.fromkeys(_topics_of(member)))
            yield
        _, hidden = yield from split(rights, AclOperation.DESCRIBE, topics, lambda name: name)
        if hidden:
            group = group.replace(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="The group has described topic(s) that the client is not authorized "
                "to describe.",
                members=(),
            )
        if group.error_code or not request.include_authorized_operations:
            return group
        return group.replace(authorized_operations=rights.operations(_GROUP, group.group_id))

    def complete(response: ConsumerGroupDescribeResponse) -> PlainSteps[Response]:
        groups = yield from mapped_steps(told, response.groups)
        return response.replace(groups=(*answers, *groups))

    return Narrowed(request.replace(group_ids=tuple(allowed)), complete)


def _topics_of(member: Member) -> Iterator[str]:
    yield from member.subscribed_topic_names
    for assignment in (member.assignment, member.target_assignment):
        for topic in assignment.topic_partitions:
            yield topic.topic_name


def guard_list_groups(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let everybody pass, and leave out what they may not describe."""
    request: ListGroupsRequest = asked.request
    rights = asked.rights
    if rights.may_cluster(AclOperation.DESCRIBE, quiet=True):
        return None
    yield

    def complete(response: ListGroupsResponse) -> PlainSteps[Response]:
        seen, _ = yield from split(
            rights,
            AclOperation.DESCRIBE,
            response.groups,
            lambda group: group.group_id,
            _GROUP,
            quiet=True,
        )
        return response.replace(groups=tuple(seen))

    return Narrowed(request, complete)


def guard_delete_groups(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be deleted."""
    request: DeleteGroupsRequest = asked.request
    allowed, refused = yield from split(
        asked.rights, AclOperation.DELETE, request.groups_names, lambda group: group, _GROUP
    )
    if not refused:
        return None
    answers = yield from mapped(
        lambda group: DeletableGroupResult(group_id=group, error_code=_DENIED),
        dict.fromkeys(refused),
    )
    if not allowed:
        return DeleteGroupsResponse(results=answers)
    return Narrowed(request.replace(groups_names=tuple(allowed)), joined("results", answers))


# Coordinators


def guard_find_coordinator(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass keys that may be described."""
    request: FindCoordinatorRequest = asked.request
    rights, is_batched = asked.rights, asked.version >= BATCHED
    keys = request.coordinator_keys if is_batched else (request.key,)
    allowed: list[str] = []
    if request.key_type == KeyType.SHARE:
        if rights.may_cluster(AclOperation.CLUSTER_ACTION):
            return None
        code, refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, list(keys)
    elif request.key_type in (KeyType.GROUP, KeyType.TRANSACTION):
        is_group = request.key_type == KeyType.GROUP
        code = _DENIED if is_group else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        kind = _GROUP if is_group else _TXN_ID
        allowed, refused = yield from split(
            rights, AclOperation.DESCRIBE, keys, lambda key: key, kind
        )
    else:
        return None
    if not refused:
        return None
    message = _MESSAGES[code]
    if not is_batched:
        only = no_coordinator(request.key, code, message)
        return FindCoordinatorResponse(
            error_code=code,
            error_message=message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    def refuse(key: str) -> Coordinator:
        return no_coordinator(key, code, message)

    answers = yield from mapped(refuse, refused)
    if not allowed:
        return FindCoordinatorResponse(coordinators=answers)
    left = request.replace(coordinator_keys=tuple(allowed))
    return Narrowed(left, joined("coordinators", answers))


_MESSAGES = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
