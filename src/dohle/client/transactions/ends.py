"""Ends a transaction by its identity, whoever has started it.

A transactional id, a producer id and an epoch identify one transaction, if the producer requested
an identity before it started (KIP-939). So whoever knows them can end it from another process, and
can retry if a response was lost:

- Success: it has this outcome, by this request or an earlier one.
- INVALID_TXN_STATE: it ended the other way, or was never started.
- PRODUCER_FENCED, INVALID_PRODUCER_EPOCH: somebody else has requested an identity since, and so
  ended it, or it timed out; if it had ended before, that can no longer be seen.
- INVALID_PRODUCER_ID_MAPPING: the coordinator has forgotten the id, which it does only when no
  transaction is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import answered_error
from dohle.client.net.connection import SHARED, Channel, Connection
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.ids import NO_PRODUCER_ID, TransactionalId
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from dohle.client.cluster import Cluster

_TRANSACTION_VERSION = "transaction.version"
_V2 = 2
#: Beyond this version an end returns a new epoch.
_END_TXN_V1_MAX = 4


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose records are all written, and that is yet to be ended."""

    transactional_id: TransactionalId
    identity: ProducerIdentity
    #: Whether it was written by the newer protocol (KIP-890): it must be ended by the same.
    is_v2: bool


async def uses_transactions_v2(cluster: Cluster) -> bool:
    """Find out whether the cluster uses the newer transaction protocol."""

    async def ask() -> bool:
        answer = await (await cluster.any_connection()).ask_versions()
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return levels.get(_TRANSACTION_VERSION, 0) >= _V2

    return await cluster.retry("features of the cluster", ask)


async def end_transaction(
    cluster: Cluster,
    transaction: PreparedTransaction,
    *,
    commit: bool,
    channel: Channel = SHARED,
    timeout_ms: int | None = None,
) -> ProducerIdentity | None:
    """Commit or abort; return the identity for the producer's next one if it has a new one."""
    transactional_id = transaction.transactional_id
    about = f"transaction of {transactional_id}, ending it"
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=transaction.identity.producer_id,
        producer_epoch=transaction.identity.epoch,
        committed=commit,
    )

    async def ask(connection: Connection) -> ProducerIdentity | None:
        answer = await connection.request(
            request, EndTxnResponse, version_max=None if transaction.is_v2 else _END_TXN_V1_MAX
        )
        if answer.error_code:
            raise answered_error(answer.error_code, about)
        if answer.producer_id == NO_PRODUCER_ID:
            return None
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return await cluster.coordinators.ask(
        CoordinatorKind.TRANSACTION,
        transactional_id,
        about,
        ask,
        channel=channel,
        timeout_ms=timeout_ms,
    )
