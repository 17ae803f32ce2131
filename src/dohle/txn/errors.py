"""How the transaction coordinator refuses a command, with Kafka's errors."""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError
from dohle.txn.transaction import Transaction


class ProducerIdNeeded(KafkaError):
    """The command needs a new producer id; it is to be repeated with one.

    If the driver does not do that, the client gets the code and retries.
    """

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"{transactional_id} needs another producer id"
        )


def concurrent(transactional_id: str) -> KafkaError:
    """Make the client retry until the previous transaction is complete."""
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the previous transaction of {transactional_id} is not complete yet",
    )


def fenced(transactional_id: str) -> KafkaError:
    """Refuse a producer that is not the newest of its transactional id."""
    return KafkaError(
        ErrorCode.PRODUCER_FENCED, f"there is a newer producer with the id {transactional_id}"
    )


def wrong_producer_id(transactional_id: str) -> KafkaError:
    """Refuse a producer whose id does not belong to its transactional id."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"the producer id is not the one of {transactional_id}",
    )


def wrong_state(transaction: Transaction) -> KafkaError:
    """Refuse what cannot be done in a transaction's state."""
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{transaction.transactional_id} is in the state {transaction.state.shown}",
    )
