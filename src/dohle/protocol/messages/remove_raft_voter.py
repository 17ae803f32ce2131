"""RemoveRaftVoter, api key 81: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import int16, int32, string, uuid
from dohle.protocol.schema import Request, Response


class RemoveRaftVoterRequest(Request, api_key=81, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable=True)
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, ignorable=True)
