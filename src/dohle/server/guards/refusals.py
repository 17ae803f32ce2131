"""Answers to requests that are refused as a whole, for lack of a right on the cluster.

The error is where clients look for it: in every entry of the request if the answer has no field for
it of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.metadata.decision import ApiError
from dohle.protocol.apis import find_api
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.protocol.schema import Request, Response
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

    def refuse_topic(topic: WritableTxnMarkerTopic) -> PlainSteps[WritableTxnMarkerTopicResult]:
        return WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=(
                yield from mapped(
                    lambda index: WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=code
                    ),
                    topic.partition_indexes,
                )
            ),
        )

    def refuse(marker: WritableTxnMarker) -> PlainSteps[WritableTxnMarkerResult]:
        topics = yield from mapped_steps(refuse_topic, marker.topics)
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    return WriteTxnMarkersResponse(markers=(yield from mapped_steps(refuse, request.markers)))


def _refused_moves(
    request: AlterReplicaLogDirsRequest,
) -> PlainSteps[AlterReplicaLogDirsResponse]:
    def refuse(topic: AlterReplicaLogDirTopic) -> PlainSteps[AlterReplicaLogDirTopicResult]:
        return AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=(
                yield from mapped(
                    lambda index: AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_DENIED
                    ),
                    topic.partitions,
                )
            ),
        )

    topics = (topic for one in request.dirs for topic in one.topics)
    return AlterReplicaLogDirsResponse(results=(yield from mapped_steps(refuse, topics)))


_SPECIAL: dict[type[Request], Callable[[Any], PlainSteps[Response]]] = {
    AlterReplicaLogDirsRequest: _refused_moves,
    WriteTxnMarkersRequest: lambda request: refused_markers(request, _DENIED),
}
