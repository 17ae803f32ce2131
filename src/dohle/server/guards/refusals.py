"""Answers to requests that are refused as a whole, for lack of a right on the cluster.

The error is where clients look for it: in every entry of the request if the answer has no field for
it of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps, finish, mapped
from dohle.metadata.decision import ApiError
from dohle.protocol.apis import find_api
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.protocol.schema import Request, Response
from dohle.server.quorum.commands import COMMANDS

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_MESSAGE = "Cluster authorization failed."


def refused(request: Request) -> Response:
    """Return the answer to a request whose sender lacks a right on the cluster."""
    special = _SPECIAL.get(type(request))
    if special is not None:
        return special(request)
    command = COMMANDS.get(type(request))
    if command is not None:
        return command.failed(request, ApiError(_DENIED, _MESSAGE))
    answer: type[Any] = find_api(request.API_KEY).response()
    fields = {"error_code": _DENIED, "error_message": _MESSAGE}
    known = answer.__annotations__
    response: Response = answer(**{name: fields[name] for name in fields if name in known})
    return response


def refused_markers(
    request: WriteTxnMarkersRequest, code: ErrorCode
) -> PlainSteps[WriteTxnMarkersResponse]:
    """Refuse every partition of every marker."""
    markers = yield from mapped(
        lambda marker: WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=tuple(
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                        for index in topic.partition_indexes
                    ),
                )
                for topic in marker.topics
            ),
        ),
        request.markers,
    )
    return WriteTxnMarkersResponse(markers=markers)


def _refused_moves(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_DENIED)
                    for index in topic.partitions
                ),
            )
            for one in request.dirs
            for topic in one.topics
        )
    )


def _refused_credentials(
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    names = [each.name for each in request.deletions]
    names += [each.name for each in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=_DENIED, error_message=_MESSAGE)
            for user in dict.fromkeys(names)
        )
    )


_SPECIAL: dict[type[Request], Callable[[Any], Response]] = {
    AlterReplicaLogDirsRequest: _refused_moves,
    AlterUserScramCredentialsRequest: _refused_credentials,
    WriteTxnMarkersRequest: lambda request: finish(refused_markers(request, _DENIED)),
}
