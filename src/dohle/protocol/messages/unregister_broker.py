"""UnregisterBroker, api key 64: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId
from dohle.protocol.fields import int16, int32, string
from dohle.protocol.schema import Request, Response


class UnregisterBrokerRequest(Request, api_key=64, versions="0", flexible="0+"):
    broker_id: BrokerId = int32("0+")


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
