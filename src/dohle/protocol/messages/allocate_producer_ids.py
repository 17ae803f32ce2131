"""AllocateProducerIds, api key 67: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, ProducerId
from dohle.protocol.fields import int16, int32, int64
from dohle.protocol.schema import Request, Response


class AllocateProducerIdsRequest(Request, api_key=67, versions="0", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: ProducerId = int64("0+")
    producer_id_len: int = int32("0+")
