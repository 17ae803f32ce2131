"""ListTransactions, api key 66: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import ProducerId, TransactionalId
from dohle.protocol.fields import array, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class ListTransactionsRequest(Request, api_key=66, versions="0-2", flexible="0+"):
    state_filters: tuple[str, ...] = array(string, "0+")
    producer_id_filters: tuple[ProducerId, ...] = array(int64, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable=True, default=None)


class TransactionState(Struct):
    transactional_id: TransactionalId = string("0+")
    producer_id: ProducerId = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: tuple[str, ...] = array(string, "0+")
    transaction_states: tuple[TransactionState, ...] = array(TransactionState, "0+")
