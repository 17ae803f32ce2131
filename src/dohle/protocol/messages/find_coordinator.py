"""FindCoordinator, api key 10: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId
from dohle.protocol.fields import array, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class FindCoordinatorRequest(Request, api_key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: tuple[str, ...] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: BrokerId = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable=True, ignorable=True)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable=True, ignorable=True)
    node_id: BrokerId = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: tuple[Coordinator, ...] = array(Coordinator, "4+")
