"""AddPartitionsToTxn, api key 24: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import ProducerId, TopicName, TransactionalId
from dohle.protocol.fields import array, boolean, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class AddPartitionsToTxnTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: TransactionalId = string("4+")
    producer_id: ProducerId = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(Request, api_key=24, versions="0-5", flexible="3+"):
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = array(
        AddPartitionsToTxnTransaction, "4+"
    )
    v3_and_below_transactional_id: TransactionalId = string("0-3")
    v3_and_below_producer_id: ProducerId = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: TopicName = string("0+")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = array(
        AddPartitionsToTxnPartitionResult, "0+"
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: TransactionalId = string("4+")
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, "4+"
    )


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = array(
        AddPartitionsToTxnResult, "4+"
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )
