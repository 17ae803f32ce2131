"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25) and EndTxn (26).

Versions 0-6, 0-5, 0-4 and 0-5. The rules are in :mod:`dohle.txn`; old versions get 47 where newer
ones get 90. An empty transactional id: 42.

- InitProducerId without a transactional id: a new producer id, at epoch 0. From v3 on a producer
  may send the id and epoch it had; only one of the two: 42. If no ids can be allocated, because the
  metadata log cannot be written: 14, which clients retry.
- InitProducerId v6 (KIP-939) may ask for transactions without a timeout, and to keep an open one.
  Kafka 4.2 marks that version as unstable: it is served only if
  ``transaction.two.phase.commit.enable`` is on.
- AddPartitionsToTxn up to v3 comes from a producer, for one transaction. From v4 on it comes from a
  broker, for many, each to be joined or only verified. If a partition does not exist (3), or is
  internal and named by a producer (29), the others of that transaction are told 55.
- AddOffsetsToTxn adds the partition in which a group's offsets are committed.
- EndTxn from v5 on is that of transactions v2, and answers with the producer's next epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from dohle.coordination.effects import Effects, Reply, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import NO_PRODUCER_ID, ProducerId, TopicName, TopicPartition, TransactionalId
from dohle.core.steps import PlainSteps, mapped
from dohle.metadata.topic_names import is_internal
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from dohle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from dohle.protocol.schema import Response
from dohle.records.batch import NO_PRODUCER_EPOCH
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.internal_topics import CONSUMER_OFFSETS
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.txn.coordinator import TransactionCoordinator
from dohle.txn.errors import ProducerIdNeeded
from dohle.txn.transaction import TV_2, Incarnation, ProducerIdAndEpoch

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext
    from dohle.server.net.outcome import Answer

#: How many transactions of a request are seen to at the same time.
_ADDED_AT_ONCE = 100

logger = logging.getLogger("dohle.server")

#: The first versions whose clients know PRODUCER_FENCED.
_INIT_FENCED, _OTHERS_FENCED = 4, 2
#: The first versions of transactions v2: of AddPartitionsToTxn, sent by brokers, and of EndTxn.
_ADD_BATCHED, _END_TV2 = 4, 5

_WithProducerId = Callable[[TransactionCoordinator, Ticket, ProducerId | None], Effects]
_Codes = Mapping[TopicPartition, ErrorCode]


def _code(error: KafkaError, version: int, knows_fenced: int = _OTHERS_FENCED) -> ErrorCode:
    code = coordinator_error_code(error)
    if code is ErrorCode.PRODUCER_FENCED and version < knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# InitProducerId


async def handle_init_producer_id(
    broker: BrokerServer, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give a producer its id and epoch."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _not_initialised(ErrorCode.INVALID_REQUEST)
    transactional_id = request.transactional_id
    if transactional_id == "":
        return _not_initialised(ErrorCode.INVALID_REQUEST)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        if transactional_id is None:
            made = Incarnation(ProducerIdAndEpoch(await _new_producer_id(broker), 0))
        else:
            named = transactional_id
            made = await _call_with_producer_id(
                broker,
                named,
                lambda machine, ticket, producer_id: machine.init_producer_id(
                    named,
                    request.transaction_timeout_ms,
                    expected,
                    ticket,
                    new_producer_id=producer_id,
                    enable_two_pc=request.enable_two_pc,
                    keep_prepared=request.keep_prepared_txn,
                ),
            )
    except KafkaError as error:
        return _not_initialised(_code(error, context.version, _INIT_FENCED))
    return InitProducerIdResponse(
        producer_id=made.producer.producer_id,
        producer_epoch=made.producer.producer_epoch,
        ongoing_txn_producer_id=made.ongoing.producer_id,
        ongoing_txn_producer_epoch=made.ongoing.producer_epoch,
    )


def _not_initialised(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


async def _call_with_producer_id(
    broker: BrokerServer, transactional_id: TransactionalId, command: _WithProducerId
) -> Any:
    """Run a command that may need a producer id; one is allocated only if it does."""
    producer_id: ProducerId | None = None

    def run(machine: TransactionCoordinator, ticket: Ticket) -> Effects:
        return command(machine, ticket, producer_id)

    try:
        return await broker.transactions.call(transactional_id, run)
    except ProducerIdNeeded:
        producer_id = await _new_producer_id(broker)
        return await broker.transactions.call(transactional_id, run)


async def _new_producer_id(broker: BrokerServer) -> ProducerId:
    try:
        return await broker.producer_ids.next()
    except KafkaError as error:
        logger.warning("no producer id could be allocated; the client is told to retry: %s", error)
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error


# AddPartitionsToTxn


async def handle_add_partitions_to_txn(
    broker: BrokerServer, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions, or verify that they are part of them."""
    slices = Slices(broker.turns)
    if context.version < _ADD_BATCHED:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            verify_only=False,
            topics=request.v3_and_below_topics,
        )
        codes = await _add_partitions(broker, context.version, asked, slices)
        results = await slices.run(_by_topic(codes))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    found = []
    for start in range(0, len(request.transactions), _ADDED_AT_ONCE):
        some = request.transactions[start : start + _ADDED_AT_ONCE]
        all_codes = await asyncio.gather(
            *(_add_partitions(broker, context.version, asked, slices) for asked in some)
        )
        for asked, codes in zip(some, all_codes, strict=True):
            results = await slices.run(_by_topic(codes))
            found.append(
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id, topic_results=results
                )
            )
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(found))


async def _add_partitions(
    broker: BrokerServer, version: int, asked: AddPartitionsToTxnTransaction, slices: Slices
) -> _Codes:
    partitions: dict[TopicPartition, None] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in asked.topics:
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            partitions[partition] = None
            if version < _ADD_BATCHED and is_internal(partition.topic):
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif broker.image.partition(*partition) is None:
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await slices.give_way()
        await slices.give_way()
    if refused:
        for partition in partitions:
            refused.setdefault(partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
            await slices.give_way()
        return refused
    transactional_id = asked.transactional_id
    if not transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)

    def command(machine: TransactionCoordinator, ticket: Ticket) -> Effects:
        producer = asked.producer_id, asked.producer_epoch
        if asked.verify_only:
            return machine.verify_partitions(transactional_id, *producer, partitions, ticket)
        return machine.add_partitions(
            transactional_id,
            *producer,
            partitions,
            ticket,
            client_transaction_version=TV_2 if version >= _ADD_BATCHED else 0,
        )

    try:
        verified: _Codes | None = await broker.transactions.call(transactional_id, command)
    except KafkaError as error:
        return dict.fromkeys(partitions, _code(error, version))
    return dict.fromkeys(partitions, ErrorCode.NONE) if verified is None else verified


def _by_topic(codes: _Codes) -> PlainSteps[tuple[AddPartitionsToTxnTopicResult, ...]]:
    topics: dict[TopicName, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
        yield
    return (
        yield from mapped(
            lambda item: AddPartitionsToTxnTopicResult(
                name=item[0], results_by_partition=tuple(item[1])
            ),
            topics.items(),
        )
    )


# AddOffsetsToTxn


def handle_add_offsets_to_txn(
    broker: BrokerServer, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Answer | Coroutine[Any, Any, Response]:
    """Add a group's offsets to a transaction."""
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if broker.groups.partition_of(request.group_id) is None:
        return _create_and_add_offsets(broker, context, request)
    return broker.transactions.submit(
        request.transactional_id,
        lambda machine, ticket: _responding(
            _add_offsets(broker, machine, request, ticket), lambda _: AddOffsetsToTxnResponse()
        ),
        lambda error: AddOffsetsToTxnResponse(error_code=_code(error, context.version)),
    )


async def _create_and_add_offsets(
    broker: BrokerServer, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Create the topic for offsets first: a producer asks before it looks for the coordinator."""
    try:
        await broker.coordinators.internal_topics.ensure(CONSUMER_OFFSETS)
        await broker.transactions.call(
            request.transactional_id,
            lambda machine, ticket: _add_offsets(broker, machine, request, ticket),
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=_code(error, context.version))
    return AddOffsetsToTxnResponse()


def _add_offsets(
    broker: BrokerServer,
    machine: TransactionCoordinator,
    request: AddOffsetsToTxnRequest,
    ticket: Ticket,
) -> Effects:
    index = broker.groups.partition_of(request.group_id)
    if index is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic for offsets has not been created yet"
        )
    return machine.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        (TopicPartition(CONSUMER_OFFSETS, index),),
        ticket,
        client_transaction_version=0,
    )


# EndTxn


def handle_end_txn(
    broker: BrokerServer, context: RequestContext, request: EndTxnRequest
) -> Answer | Coroutine[Any, Any, Response]:
    """Commit or abort a transaction."""
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    needs_producer_id = False

    def refuse(error: KafkaError) -> EndTxnResponse:
        nonlocal needs_producer_id
        needs_producer_id = isinstance(error, ProducerIdNeeded)
        return EndTxnResponse(error_code=_code(error, context.version))

    answer = broker.transactions.submit(
        request.transactional_id,
        lambda machine, ticket: _responding(_end(machine, context, request, ticket, None), _ended),
        refuse,
    )
    return _end_with_producer_id(broker, context, request) if needs_producer_id else answer


async def _end_with_producer_id(
    broker: BrokerServer, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    """End a transaction that was the last of its producer id."""
    try:
        producer = await _call_with_producer_id(
            broker,
            request.transactional_id,
            lambda machine, ticket, producer_id: _end(
                machine, context, request, ticket, producer_id
            ),
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=_code(error, context.version))
    return _ended(producer)


def _end(
    machine: TransactionCoordinator,
    context: RequestContext,
    request: EndTxnRequest,
    ticket: Ticket,
    producer_id: ProducerId | None,
) -> Effects:
    return machine.end_txn(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        ticket,
        client_transaction_version=TV_2 if context.version >= _END_TV2 else 0,
        new_producer_id=producer_id,
    )


def _ended(producer: ProducerIdAndEpoch) -> EndTxnResponse:
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _responding(effects: Effects, make: Callable[[Any], Response]) -> Effects:
    """Turn the replies of a command into responses."""
    effects.replies = [Reply(ticket, make(answer)) for ticket, answer in effects.replies]
    return effects


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.INIT_PRODUCER_ID, handle_init_producer_id),
    serves(ApiKey.ADD_PARTITIONS_TO_TXN, handle_add_partitions_to_txn),
    serves(ApiKey.ADD_OFFSETS_TO_TXN, handle_add_offsets_to_txn),
    serves(ApiKey.END_TXN, handle_end_txn),
)
