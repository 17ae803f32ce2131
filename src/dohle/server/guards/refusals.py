"""Answers to requests that are refused as a whole, for lack of a right on the cluster.

The error is where clients look for it: in every entry of the request if the answer has no field for
it of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps, mapped_steps
from dohle.metadata.decision import ApiError
from dohle.protocol.apis import find_api
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.protocol.schema import Request, Response
from dohle.server.guards.guard import error_for_every_partition
from dohle.server.quorum.commands import COMMANDS

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_MESSAGE = "Cluster authorization failed."


def refused(request: Request) -> PlainSteps[Response]:
    """Return the answer to a request whose sender lacks a right on the cluster."""
    yield
    special = _SPECIAL.get(type(request))
    if special is not None:
        return (yield from special(request))
    command = COMMANDS.get(type(request))
    if command is not None:
        return (yield from command.fail(request, ApiError(_DENIED, _MESSAGE)))
    answer: type[Any] = find_api(request.API_KEY).response()
    fields = {"error_code": _DENIED, "error_message": _MESSAGE}
    known = answer.__annotations__
    response: Response = answer(**{name: fields[name] for name in fields if name in known})
    return response


def refused_markers(
    request: WriteTxnMarkersRequest, code: ErrorCode
) -> PlainSteps[WriteTxnMarkersResponse]:
    """Refuse every partition of every marker."""

    def refuse(marker: WritableTxnMarker) -> PlainSteps[WritableTxnMarkerResult]:
        topics = yield from error_for_every_partition(
            marker.topics,
            lambda index: WritableTxnMarkerPartitionResult(partition_index=index, error_code=code),
            lambda topic, partitions: WritableTxnMarkerTopicResult(
                name=topic.name, partitions=partitions
            ),
            field="partition_indexes",
        )
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    return WriteTxnMarkersResponse(markers=(yield from mapped_steps(refuse, request.markers)))


def _refused_moves(
    request: AlterReplicaLogDirsRequest,
) -> PlainSteps[AlterReplicaLogDirsResponse]:
    results = yield from error_for_every_partition(
        (topic for one in request.dirs for topic in one.topics),
        lambda index: AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_DENIED),
        lambda topic, partitions: AlterReplicaLogDirTopicResult(
            topic_name=topic.name, partitions=partitions
        ),
    )
    return AlterReplicaLogDirsResponse(results=results)


_SPECIAL: dict[type[Request], Callable[[Any], PlainSteps[Response]]] = {
    AlterReplicaLogDirsRequest: _refused_moves,
    WriteTxnMarkersRequest: lambda request: refused_markers(request, _DENIED),
}
