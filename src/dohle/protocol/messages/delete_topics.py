"""DeleteTopics, api key 20: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class DeleteTopicState(Struct):
    name: TopicName | None = string("6+", nullable=True, default=None)
    topic_id: Uuid = uuid("6+")


class DeleteTopicsRequest(Request, api_key=20, versions="0-6", flexible="4+"):
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    topic_names: tuple[TopicName, ...] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: TopicName | None = string("0+", nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable=True, default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult, "0+")
