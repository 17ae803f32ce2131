"""Which command decides which request to the controller.

Each entry has the pure command (``dohle.metadata``), the response for a request that fails as a
whole, and how long the request may wait for its turn. As in Kafka, only changes of topics are
limited by their ``timeout_ms``; UpdateFeatures has the field too, but it has no effect. A heartbeat
waits for half of the time until the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dohle.core.steps import PlainSteps
from dohle.metadata import controller, error_responses
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import ApiError, Decision
from dohle.metadata.heartbeats import BrokerHeartbeats
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from dohle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from dohle.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from dohle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from dohle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from dohle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from dohle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from dohle.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from dohle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from dohle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from dohle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from dohle.protocol.schema import Request, Response
from dohle.quotas.mutations import Spend, free
from dohle.security.scram import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class CommandTurn:
    """What a command bases its decision on, when its turn has come."""

    image: ClusterImage
    context: ControllerContext
    heartbeats: BrokerHeartbeats
    #: The version the request came in.
    version: int
    #: The offset that the next record will get.
    next_offset: int
    #: The level of the quorum.
    kraft_version: int
    #: The time on the clock of heartbeats.
    now_ms: int
    #: What pays for the partitions that a client has created and deleted.
    spend: Spend = free


@dataclass(frozen=True, slots=True)
class Command:
    """How a request is decided."""

    #: In steps, where a request may be about many things.
    decide: Callable[[CommandTurn, Any], Decision[Any] | PlainSteps[Decision[Any]]]
    failed: Callable[[Any, ApiError], Response | PlainSteps[Response]]
    #: How long a request may wait for its turn; None if there is no limit.
    timeout_ms: Callable[[Any, ControllerContext], int | None] = lambda *_: None
    #: Called with the image behind the records, when they have been appended.
    appended: Callable[[CommandTurn, Any, ClusterImage], None] = lambda *_: None
    #: What of a response the version of its request can carry.
    fit: Callable[[Any, int], Response] = lambda response, _: response

    def fail(self, request: Request, error: ApiError) -> PlainSteps[Response]:
        """Return the response to a request that fails as a whole, in as many steps as it needs."""
        response = self.failed(request, error)
        return response if isinstance(response, Response) else (yield from response)


def _create_topics(
    turn: CommandTurn, request: CreateTopicsRequest
) -> PlainSteps[Decision[CreateTopicsResponse]]:
    return controller.create_topics(turn.image, request, turn.context, turn.spend)


def _create_acls(
    turn: CommandTurn, request: CreateAclsRequest
) -> PlainSteps[Decision[CreateAclsResponse]]:
    return controller.create_acls(turn.image, request, turn.context.rng)


def _delete_acls(
    turn: CommandTurn, request: DeleteAclsRequest
) -> PlainSteps[Decision[DeleteAclsResponse]]:
    return controller.delete_acls(turn.image, request)


def _delete_topics(
    turn: CommandTurn, request: DeleteTopicsRequest
) -> PlainSteps[Decision[DeleteTopicsResponse]]:
    return controller.delete_topics(
        turn.image, request, turn.context, turn.spend, version=turn.version
    )


def _create_partitions(
    turn: CommandTurn, request: CreatePartitionsRequest
) -> PlainSteps[Decision[CreatePartitionsResponse]]:
    return controller.create_partitions(turn.image, request, turn.context, turn.spend)


def _alter_configs(
    turn: CommandTurn, request: AlterConfigsRequest
) -> PlainSteps[Decision[AlterConfigsResponse]]:
    return controller.alter_configs(turn.image, request, turn.context)


def _incremental_alter_configs(
    turn: CommandTurn, request: IncrementalAlterConfigsRequest
) -> PlainSteps[Decision[IncrementalAlterConfigsResponse]]:
    return controller.incremental_alter_configs(turn.image, request, turn.context)


def _update_features(
    turn: CommandTurn, request: UpdateFeaturesRequest
) -> Decision[UpdateFeaturesResponse]:
    return controller.update_features(
        turn.image,
        request,
        turn.context,
        version=turn.version,
        kraft_version=turn.kraft_version,
    )


def _register_broker(
    turn: CommandTurn, request: BrokerRegistrationRequest
) -> PlainSteps[Decision[BrokerRegistrationResponse]]:
    registered = turn.image.broker(request.broker_id)
    return controller.register_broker(
        turn.image,
        request,
        turn.context,
        next_offset=turn.next_offset,
        session_alive=registered is not None
        and turn.heartbeats.has_session(registered, turn.now_ms),
        kraft_version=turn.kraft_version,
    )


def _broker_heartbeat(
    turn: CommandTurn, request: BrokerHeartbeatRequest
) -> PlainSteps[Decision[BrokerHeartbeatResponse]]:
    image, heartbeats = turn.image, turn.heartbeats
    return controller.broker_heartbeat(
        image,
        request,
        turn.context,
        controlled_shutdown_offset=heartbeats.controlled_shutdown_offset(image, request.broker_id),
        lowest_active_offset=heartbeats.lowest_active_offset(image),
    )


def _heartbeat_appended(
    turn: CommandTurn, request: BrokerHeartbeatRequest, after: ClusterImage
) -> None:
    broker = after.broker(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return
    if broker.fenced and request.want_shut_down:
        # It is told to stop now.
        turn.heartbeats.ended(broker)
    elif broker.in_controlled_shutdown and not broker.fenced:
        turn.heartbeats.began_shutdown(broker, after.offset)


def _heartbeat_timeout_ms(_: BrokerHeartbeatRequest, context: ControllerContext) -> int:
    return context.config.get_int("broker.heartbeat.interval.ms") // 2


def _unregister_broker(
    turn: CommandTurn, request: UnregisterBrokerRequest
) -> PlainSteps[Decision[UnregisterBrokerResponse]]:
    return controller.unregister_broker(turn.image, request, turn.context)


def _allocate_producer_ids(
    turn: CommandTurn, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    return controller.allocate_producer_ids(turn.image, request)


def _assign_replicas_to_dirs(
    turn: CommandTurn, request: AssignReplicasToDirsRequest
) -> PlainSteps[Decision[AssignReplicasToDirsResponse]]:
    return controller.assign_replicas_to_dirs(turn.image, request, turn.context)


def _alter_partition(
    turn: CommandTurn, request: AlterPartitionRequest
) -> PlainSteps[Decision[AlterPartitionResponse]]:
    return controller.alter_partition(turn.image, request, turn.context, version=turn.version)


def _register_controller(
    turn: CommandTurn, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    return controller.register_controller(turn.image, request)


def _alter_partition_reassignments(
    turn: CommandTurn, request: AlterPartitionReassignmentsRequest
) -> PlainSteps[Decision[AlterPartitionReassignmentsResponse]]:
    return controller.alter_partition_reassignments(turn.image, request, turn.context)


def _list_partition_reassignments(
    turn: CommandTurn, request: ListPartitionReassignmentsRequest
) -> PlainSteps[Decision[ListPartitionReassignmentsResponse]]:
    found = yield from controller.list_partition_reassignments(turn.image, request)
    return Decision((), found)


def _elect_leaders(
    turn: CommandTurn, request: ElectLeadersRequest
) -> PlainSteps[Decision[ElectLeadersResponse]]:
    return controller.elect_leaders(turn.image, request, turn.context)


def _fit_elect_leaders(response: ElectLeadersResponse, version: int) -> ElectLeadersResponse:
    # v0 has no place for an error of the request as a whole; its partitions have it too.
    return response if version > 0 else response.replace(error_code=0)


def _timeout_ms(
    request: CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | AlterPartitionReassignmentsRequest
    | ListPartitionReassignmentsRequest
    | ElectLeadersRequest,
    _: ControllerContext,
) -> int:
    return request.timeout_ms


def _alter_client_quotas(
    turn: CommandTurn, request: AlterClientQuotasRequest
) -> PlainSteps[Decision[AlterClientQuotasResponse]]:
    return controller.alter_client_quotas(turn.image, request)


def _alter_user_scram_credentials(
    turn: CommandTurn, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    return controller.alter_user_scram_credentials(turn.image, request, _scram_keys)


def _scram_keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    found = ScramCredential.of(ScramMechanism(mechanism), salted_password, b"", 0)
    return found.stored_key, found.server_key


COMMANDS: Mapping[type[Request], Command] = {
    CreateTopicsRequest: Command(
        _create_topics, error_responses.failed_create_topics, timeout_ms=_timeout_ms
    ),
    DeleteTopicsRequest: Command(
        _delete_topics, error_responses.failed_delete_topics, timeout_ms=_timeout_ms
    ),
    CreatePartitionsRequest: Command(
        _create_partitions, error_responses.failed_create_partitions, timeout_ms=_timeout_ms
    ),
    AlterPartitionReassignmentsRequest: Command(
        _alter_partition_reassignments,
        error_responses.failed_alter_partition_reassignments,
        timeout_ms=_timeout_ms,
    ),
    ListPartitionReassignmentsRequest: Command(
        _list_partition_reassignments,
        error_responses.failed_list_partition_reassignments,
        timeout_ms=_timeout_ms,
    ),
    ElectLeadersRequest: Command(
        _elect_leaders,
        error_responses.failed_elect_leaders,
        timeout_ms=_timeout_ms,
        fit=_fit_elect_leaders,
    ),
    CreateAclsRequest: Command(_create_acls, error_responses.failed_create_acls),
    DeleteAclsRequest: Command(_delete_acls, error_responses.failed_delete_acls),
    AlterConfigsRequest: Command(_alter_configs, error_responses.failed_alter_configs),
    IncrementalAlterConfigsRequest: Command(
        _incremental_alter_configs, error_responses.failed_incremental_alter_configs
    ),
    UpdateFeaturesRequest: Command(_update_features, error_responses.failed_update_features),
    BrokerRegistrationRequest: Command(
        _register_broker, error_responses.failed_broker_registration
    ),
    BrokerHeartbeatRequest: Command(
        _broker_heartbeat,
        error_responses.failed_broker_heartbeat,
        timeout_ms=_heartbeat_timeout_ms,
        appended=_heartbeat_appended,
    ),
    UnregisterBrokerRequest: Command(_unregister_broker, error_responses.failed_unregister_broker),
    AllocateProducerIdsRequest: Command(
        _allocate_producer_ids, error_responses.failed_allocate_producer_ids
    ),
    AlterClientQuotasRequest: Command(
        _alter_client_quotas, error_responses.failed_alter_client_quotas
    ),
    AlterUserScramCredentialsRequest: Command(
        _alter_user_scram_credentials, error_responses.failed_alter_user_scram_credentials
    ),
    AlterPartitionRequest: Command(_alter_partition, error_responses.failed_alter_partition),
    ControllerRegistrationRequest: Command(
        _register_controller, error_responses.failed_controller_registration
    ),
    AssignReplicasToDirsRequest: Command(
        _assign_replicas_to_dirs, error_responses.failed_assign_replicas_to_dirs
    ),
}
