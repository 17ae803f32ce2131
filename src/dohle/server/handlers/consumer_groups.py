"""ConsumerGroupHeartbeat (68) v0-1 and ConsumerGroupDescribe (69) v0-1 (KIP-848).

How a group handles them is in :mod:`dohle.groups.consumer.commands`; here are the checks that do
not depend on the group.

- Without ``consumer`` in ``group.coordinator.rebalance.protocols``, or with ``group.version``
  finalized below 1: 35.
- Ids must not be blank. The member id is required from v1 on, and of a member that has joined. A
  member that joins (epoch 0) must send its rebalance timeout and its subscription, and own nothing.
  Only a static member may leave for a while (epoch -2). Anything else: 42.
- An unknown assignor: 112.
- ConsumerGroupDescribe: 24 for an empty group id, 69 for a group that is not a consumer group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId
from dohle.core.steps import PlainSteps
from dohle.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from dohle.groups.consumer.report import report_of
from dohle.metadata.metadata_version import GROUP_VERSION
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.handlers.group_admin import GROUP_OPERATIONS
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.server.rights import seeing_caller

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext
    from dohle.server.net.outcome import Answer

_MEMBER_ID_REQUIRED_VERSION = 1
_NO_TIMEOUT = -1


def handle_consumer_group_heartbeat(
    broker: BrokerServer, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> PlainSteps[Answer]:
    """Let a member join, stay or leave."""
    try:
        _check_enabled(broker)
        _check(broker, request, context.version)
    except KafkaError as error:
        return _refuse(error)
    caller = seeing_caller(broker, context)
    report = yield from report_of(request)
    return broker.groups.submit(
        request.group_id,
        lambda machine, ticket: machine.consumer.heartbeat(request, report, ticket, caller),
        _refuse,
    )


def _refuse(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=coordinator_error_code(error), error_message=error.args[0]
    )


async def handle_consumer_group_describe(
    broker: BrokerServer, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups."""
    described = []
    slices = Slices(broker.turns)
    for group_id in request.group_ids:
        await slices.give_way()
        group = await _described(broker, group_id)
        if request.include_authorized_operations and not group.error_code:
            group = group.replace(authorized_operations=GROUP_OPERATIONS)
        described.append(group)
    return ConsumerGroupDescribeResponse(groups=tuple(described))


async def _described(broker: BrokerServer, group_id: GroupId) -> DescribedGroup:
    try:
        _check_enabled(broker)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        # Run as a command, so that the answer shows only what is committed.
        found: DescribedGroup = await broker.groups.call(
            group_id,
            lambda machine, ticket: Effects().reply(ticket, machine.consumer.describe(group_id)),
        )
    except KafkaError as error:
        return DescribedGroup(
            group_id=group_id, error_code=coordinator_error_code(error), error_message=error.args[0]
        )
    return found


def _check_enabled(broker: BrokerServer) -> None:
    if (
        "consumer" not in broker.config.get_list("group.coordinator.rebalance.protocols")
        or broker.image.features.get(GROUP_VERSION, 0) < 1
    ):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled."
        )


def _check(broker: BrokerServer, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    epoch = request.member_epoch
    if version >= _MEMBER_ID_REQUIRED_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_not_blank("MemberId", request.member_id)
    _check_not_blank("GroupId", request.group_id)
    _check_not_blank("InstanceId", request.instance_id)
    _check_not_blank("RackId", request.rack_id)
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("Only a static member, which sends its InstanceId, can leave for a while.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} is not valid: it must be -2 or greater.")
    if request.server_assignor is None:
        return
    offered = broker.config.get_list("group.consumer.assignors")
    if request.server_assignor not in offered:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.server_assignor}; use one of {', '.join(offered)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == _NO_TIMEOUT:
        raise _invalid("A member that joins must send its RebalanceTimeoutMs.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("A member that joins owns nothing: its TopicPartitions must be empty.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "A member that joins must send its SubscribedTopicNames or its SubscribedTopicRegex."
        )


def _check_not_blank(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} is blank.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.CONSUMER_GROUP_HEARTBEAT, handle_consumer_group_heartbeat),
    serves(ApiKey.CONSUMER_GROUP_DESCRIBE, handle_consumer_group_describe),
)
