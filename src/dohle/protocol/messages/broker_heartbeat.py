"""BrokerHeartbeat, api key 63: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.fields import array, boolean, int16, int32, int64, uuid
from dohle.protocol.schema import Request, Response


class BrokerHeartbeatRequest(Request, api_key=63, versions="0-1", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: tuple[Uuid, ...] = array(uuid, "1+", tag=0)


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
