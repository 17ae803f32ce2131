"""EndTxn, api key 26: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import ProducerId, TransactionalId
from dohle.protocol.fields import boolean, int16, int32, int64, string
from dohle.protocol.schema import Request, Response


class EndTxnRequest(Request, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: TransactionalId = string("0+")
    producer_id: ProducerId = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: ProducerId = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
