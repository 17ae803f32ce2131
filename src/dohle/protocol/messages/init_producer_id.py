"""InitProducerId, api key 22: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import ProducerId, TransactionalId
from dohle.protocol.fields import boolean, int16, int32, int64, string
from dohle.protocol.schema import Request, Response


class InitProducerIdRequest(Request, api_key=22, versions="0-6", flexible="2+"):
    transactional_id: TransactionalId | None = string("0+", nullable=True)
    transaction_timeout_ms: int = int32("0+")
    producer_id: ProducerId = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_two_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: ProducerId = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: ProducerId = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
