"""AddOffsetsToTxn, api key 25: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, ProducerId, TransactionalId
from dohle.protocol.fields import int16, int32, int64, string
from dohle.protocol.schema import Request, Response


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: TransactionalId = string("0+")
    producer_id: ProducerId = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: GroupId = string("0+")


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
