"""DescribeTransactions (65) v0 and ListTransactions (66) v0-2.

- DescribeTransactions: an unknown id: 105; an empty one: 42.
- ListTransactions lists the ids that this broker coordinates; v1+ may ask for transactions that
  have been open for long, v2+ for ids that a regular expression matches as a whole. Unknown states
  are named in the answer. While any ids are being loaded: 14. An invalid expression: 128, as is one
  that could only be matched by backtracking (look-arounds, back-references).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TransactionalId
from dohle.core.steps import PlainSteps
from dohle.groups.regex.pattern import compile_regex
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from dohle.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from dohle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from dohle.protocol.messages.list_transactions import TransactionState as ListedTransaction
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.txn.listing import TransactionFilters
from dohle.txn.state import STATES_BY_NAME, TransactionState
from dohle.txn.transaction import Transaction

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext


async def handle_describe_transactions(
    broker: BrokerServer, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe the transactions of transactional ids."""
    described = []
    slices = Slices(broker.turns)
    for transactional_id in request.transactional_ids:
        await slices.give_way()
        described.append(await _described(broker, transactional_id))
    return DescribeTransactionsResponse(transaction_states=tuple(described))


async def _described(
    broker: BrokerServer, transactional_id: TransactionalId
) -> DescribedTransaction:
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction: Transaction | None = await broker.transactions.call(
            transactional_id,
            lambda machine, ticket: Effects().reply(ticket, machine.describe(transactional_id)),
        )
        if transaction is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "no producer uses this transactional id"
            )
    except KafkaError as error:
        return DescribedTransaction(
            error_code=coordinator_error_code(error), transactional_id=transactional_id
        )
    topics: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.shown,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


def handle_list_transactions(
    broker: BrokerServer, context: RequestContext, request: ListTransactionsRequest
) -> PlainSteps[ListTransactionsResponse]:
    """List the transactional ids that this broker coordinates."""
    if broker.transactions.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = request.transactional_id_pattern
    try:
        matches = compile_regex(pattern).matches if pattern else None
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states: set[TransactionState] = set()
    unknown_names: dict[str, None] = {}
    for name in request.state_filters:
        if name in STATES_BY_NAME:
            states.add(STATES_BY_NAME[name])
        else:
            unknown_names[name] = None
        yield
    producer_ids = set()
    for producer_id in request.producer_id_filters:
        producer_ids.add(producer_id)
        yield
    filters = TransactionFilters(
        producer_ids=producer_ids,
        states=states if request.state_filters else None,
        duration_ms=request.duration_filter,
        matches=matches,
    )
    listed: list[ListedTransaction] = []
    for _, machine in broker.transactions.active():
        for transaction in (yield from machine.list(filters)):
            listed.append(
                ListedTransaction(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.shown,
                )
            )
            yield
    return ListTransactionsResponse(
        unknown_state_filters=tuple(unknown_names), transaction_states=tuple(listed)
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_TRANSACTIONS, handle_describe_transactions),
    serves(ApiKey.LIST_TRANSACTIONS, handle_list_transactions),
)
