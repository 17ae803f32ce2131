"""DescribeTransactions, api key 65: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import ProducerId, TopicName, TransactionalId
from dohle.protocol.fields import array, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class DescribeTransactionsRequest(Request, api_key=65, versions="0", flexible="0+"):
    transactional_ids: tuple[TransactionalId, ...] = array(string, "0+")


class TopicData(Struct):
    topic: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class TransactionState(Struct):
    error_code: int = int16("0+")
    transactional_id: TransactionalId = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: ProducerId = int64("0+")
    producer_epoch: int = int16("0+")
    topics: tuple[TopicData, ...] = array(TopicData, "0+")


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    transaction_states: tuple[TransactionState, ...] = array(TransactionState, "0+")
