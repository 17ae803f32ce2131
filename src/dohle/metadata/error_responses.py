"""The response to a request that fails as a whole at the controller.

The error is where clients look for it: in every item of the request if the response has no error
field of its own. A request may have very many items, so these responses are made in steps.
"""

from __future__ import annotations

from itertools import chain, repeat

from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.metadata.configs import altered_response, incrementally_altered_response
from dohle.metadata.decision import ApiError
from dohle.metadata.features import one_feature_failed
from dohle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from dohle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from dohle.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
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
from dohle.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from dohle.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dohle.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
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


def failed_create_topics(
    request: CreateTopicsRequest, error: ApiError
) -> PlainSteps[CreateTopicsResponse]:
    """Return the error for every topic."""
    topics = yield from mapped(
        lambda topic: CreatableTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        ),
        request.topics,
    )
    return CreateTopicsResponse(topics=topics)


def failed_delete_topics(
    request: DeleteTopicsRequest, error: ApiError
) -> PlainSteps[DeleteTopicsResponse]:
    """Return the error for every topic, named as in the request."""
    named = chain((DeleteTopicState(name=name) for name in request.topic_names), request.topics)
    responses = yield from mapped(
        lambda topic: DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=error.code,
            error_message=error.message,
        ),
        named,
    )
    return DeleteTopicsResponse(responses=responses)


def failed_create_partitions(
    request: CreatePartitionsRequest, error: ApiError
) -> PlainSteps[CreatePartitionsResponse]:
    """Return the error for every topic."""
    results = yield from mapped(
        lambda topic: CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        ),
        request.topics,
    )
    return CreatePartitionsResponse(results=results)


def failed_alter_configs(
    request: AlterConfigsRequest, error: ApiError
) -> PlainSteps[AlterConfigsResponse]:
    """Return the error for every resource."""
    return altered_response(request, repeat(error, len(request.resources)))


def failed_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: ApiError
) -> PlainSteps[IncrementalAlterConfigsResponse]:
    """Return the error for every resource."""
    return incrementally_altered_response(request, repeat(error, len(request.resources)))


def failed_update_features(_: UpdateFeaturesRequest, error: ApiError) -> UpdateFeaturesResponse:
    """Return the error; one of a feature that the quorum has refused, as that of any other."""
    message = error.message
    if error.code is ErrorCode.INVALID_UPDATE_VERSION:
        message = one_feature_failed(message or "")
    return UpdateFeaturesResponse(error_code=error.code, error_message=message)


def failed_unregister_broker(
    _: UnregisterBrokerRequest, error: ApiError
) -> UnregisterBrokerResponse:
    """Return the error."""
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


def failed_broker_registration(
    _: BrokerRegistrationRequest, error: ApiError
) -> BrokerRegistrationResponse:
    """Return the error."""
    return BrokerRegistrationResponse(error_code=error.code)


def failed_broker_heartbeat(_: BrokerHeartbeatRequest, error: ApiError) -> BrokerHeartbeatResponse:
    """Return the error."""
    return BrokerHeartbeatResponse(error_code=error.code)


def failed_allocate_producer_ids(
    _: AllocateProducerIdsRequest, error: ApiError
) -> AllocateProducerIdsResponse:
    """Return the error."""
    return AllocateProducerIdsResponse(error_code=error.code)


def failed_alter_partition(_: AlterPartitionRequest, error: ApiError) -> AlterPartitionResponse:
    """Return the error."""
    return AlterPartitionResponse(error_code=error.code)


def failed_controller_registration(
    _: ControllerRegistrationRequest, error: ApiError
) -> ControllerRegistrationResponse:
    """Return the error."""
    return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)


def failed_assign_replicas_to_dirs(
    _: AssignReplicasToDirsRequest, error: ApiError
) -> AssignReplicasToDirsResponse:
    """Return the error."""
    return AssignReplicasToDirsResponse(error_code=error.code)


def failed_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, error: ApiError
) -> PlainSteps[AlterPartitionReassignmentsResponse]:
    """Return the error of the request as a whole, and of every partition."""

    def fail(topic: ReassignableTopic) -> PlainSteps[ReassignableTopicResponse]:
        partitions = yield from mapped(
            lambda partition: ReassignablePartitionResponse(
                partition_index=partition.partition_index,
                error_code=error.code,
                error_message=error.message,
            ),
            topic.partitions,
        )
        return ReassignableTopicResponse(name=topic.name, partitions=partitions)

    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=(yield from mapped_steps(fail, request.topics)),
    )


def failed_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, error: ApiError
) -> ListPartitionReassignmentsResponse:
    """Return the error."""
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def failed_alter_client_quotas(
    request: AlterClientQuotasRequest, error: ApiError
) -> PlainSteps[AlterClientQuotasResponse]:
    """Return the error for every entity."""
    entries = yield from mapped(
        lambda entry: AlterClientQuotasResponseEntryData(
            error_code=error.code, error_message=error.message, entity=entry.entity
        ),
        request.entries,
    )
    return AlterClientQuotasResponse(entries=entries)


def failed_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, error: ApiError
) -> PlainSteps[AlterUserScramCredentialsResponse]:
    """Return the error for every user."""
    names = [each.name for each in request.deletions]
    names += [each.name for each in request.upsertions]
    results = yield from mapped(
        lambda user: AlterUserScramCredentialsResult(
            user=user, error_code=error.code, error_message=error.message
        ),
        dict.fromkeys(names),
    )
    return AlterUserScramCredentialsResponse(results=results)


def failed_elect_leaders(
    request: ElectLeadersRequest, error: ApiError
) -> PlainSteps[ElectLeadersResponse]:
    """Return the error of the request as a whole, and of every partition: v0 has only these."""

    def fail(topic: TopicPartitions) -> PlainSteps[ReplicaElectionResult]:
        partitions = yield from mapped(
            lambda index: PartitionResult(
                partition_id=index, error_code=error.code, error_message=error.message
            ),
            topic.partitions,
        )
        return ReplicaElectionResult(topic=topic.topic, partition_result=partitions)

    results = yield from mapped_steps(fail, request.topic_partitions or ())
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)


def failed_create_acls(request: CreateAclsRequest, error: ApiError) -> CreateAclsResponse:
    """Give every ACL the error."""
    failed = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=(failed,) * len(request.creations))


def failed_delete_acls(request: DeleteAclsRequest, error: ApiError) -> DeleteAclsResponse:
    """Give every filter the error."""
    failed = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=(failed,) * len(request.filters))
