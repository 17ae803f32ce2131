"""DeleteShareGroupOffsets, api key 92: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: TopicName = string("0+")


class DeleteShareGroupOffsetsRequest(Request, api_key=92, versions="0", flexible="0+"):
    group_id: GroupId = string("0+")
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = array(
        DeleteShareGroupOffsetsRequestTopic, "0+"
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: TopicName = string("0+")
    topic_id: Uuid = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = array(
        DeleteShareGroupOffsetsResponseTopic, "0+"
    )
