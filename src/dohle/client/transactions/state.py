"""The transactions of one producer: what is allowed when, and what an error means.

No I/O. In the older protocol (``transaction.version`` below 2) a partition is added to the
transaction before anything is sent to it, and the producer keeps its epoch. In the newer one
(KIP-890) the brokers add partitions themselves, and with the end of a transaction the producer gets
a new epoch, so that delayed requests cannot get into a later transaction.

- After an error in a transaction it can only be aborted.
- A producer that was fenced, or may not use its id, cannot continue: the error is final.
- The requested outcome of a transaction is final: an end without a response can only be retried.
"""

from __future__ import annotations

from enum import Enum, auto

from dohle.client.errors import is_retriable
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition, TransactionalId

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class TransactionState(Enum):
    """The state of the producer."""

    UNINITIALIZED = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    #: All records are written: the transaction can only be ended, here or elsewhere.
    PREPARED = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


class ProducerTransactions:
    """The state of a producer with a transactional id."""

    def __init__(self, transactional_id: TransactionalId) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.identity: ProducerIdentity | None = None
        #: Whether the brokers add partitions themselves.
        self.is_v2 = False
        #: What the coordinator has still to be told of, and what it was told of.
        self.to_add: set[TopicPartition] = set()
        self.added: set[TopicPartition] = set()
        self.error: KafkaError | None = None
        self._is_started = False
        self._is_end_sent = False
        self._had_error = False

    @property
    def is_initialized(self) -> bool:
        """Whether the coordinator has given it an identity."""
        return self.state is not TransactionState.UNINITIALIZED

    @property
    def has_to_end(self) -> bool:
        """Whether the coordinator knows of the transaction, or may learn of it from a broker."""
        return self._is_started

    @property
    def needs_new_epoch(self) -> bool:
        """Whether sequences may have gaps, which only another epoch resolves."""
        return self._had_error and not self.is_v2

    @property
    def is_open(self) -> bool:
        """Whether records may be sent: until its end is requested."""
        if self.state is TransactionState.COMMITTING:
            return not self._is_end_sent
        return self.state is TransactionState.IN_TRANSACTION

    def check_init(self) -> None:
        """Raise unless the producer is yet to be initialised."""
        self._expect("initialise it again", TransactionState.UNINITIALIZED)

    def initialized(
        self, identity: ProducerIdentity, *, is_v2: bool, has_kept: bool = False
    ) -> None:
        """Store the identity from the coordinator, and a transaction to end if there is one."""
        self.identity = identity
        self.is_v2 = is_v2
        self._reset()
        if has_kept:
            self._is_started = True
            self.state = TransactionState.PREPARED

    def check_ready(self) -> None:
        """Raise unless no transaction is open."""
        self._expect("complete a transaction", TransactionState.READY)

    def begin(self) -> None:
        """Begin a transaction."""
        self._expect("begin a transaction", TransactionState.READY)
        self.state = TransactionState.IN_TRANSACTION

    def add(self, partition: TopicPartition) -> None:
        """Register a record for a partition."""
        if partition in self.added or partition in self.to_add:
            return
        if self.is_v2:
            self._is_started = True
            self.added.add(partition)
        else:
            self.to_add.add(partition)

    def check_send(self) -> None:
        """Raise unless a record may be sent now."""
        self._expect("send a record", TransactionState.IN_TRANSACTION)

    def add_offsets(self) -> None:
        """Register offsets for the transaction."""
        self._expect("send offsets", TransactionState.IN_TRANSACTION)
        self._is_started = self._is_started or self.is_v2

    def offsets_added(self) -> None:
        """Report that the coordinator knows of the offsets."""
        self._is_started = True

    def may_send(self, partition: TopicPartition) -> bool:
        """Tell whether batches of a partition may be sent."""
        return self.is_open and partition in self.added

    def partitions_added(self, partitions: frozenset[TopicPartition]) -> None:
        """Report that the coordinator knows of partitions."""
        self.to_add -= partitions
        self.added |= partitions
        self._is_started = True

    def commit(self) -> None:
        """Start to commit, or raise why that is not possible."""
        self._expect(
            "commit",
            TransactionState.IN_TRANSACTION,
            TransactionState.PREPARED,
            TransactionState.COMMITTING,
        )
        self.state = TransactionState.COMMITTING

    def prepared(self) -> None:
        """Report that everything is written, and that others may end the transaction."""
        self._expect("prepare", TransactionState.COMMITTING)
        self.state = TransactionState.PREPARED if self.has_to_end else TransactionState.READY

    def abort(self) -> None:
        """Start to abort, or raise why that is not possible."""
        self._check_not_fatal()
        if self.state is not TransactionState.ABORTABLE_ERROR:
            self._expect(
                "abort",
                TransactionState.IN_TRANSACTION,
                TransactionState.PREPARED,
                TransactionState.ABORTING,
            )
        self.state = TransactionState.ABORTING

    def ending(self) -> None:
        """Report that the end is being requested: it may happen, whatever the response."""
        self._is_end_sent = True

    def ended(self, identity: ProducerIdentity | None) -> None:
        """Report the end; in the newer protocol it brings a new identity."""
        if identity is not None:
            self.identity = identity
        self._reset()

    def batch_failed(self, error: KafkaError) -> None:
        """Report the error that a batch, or all of them, ended with."""
        if error.code in _FATAL - {ErrorCode.INVALID_TXN_STATE}:
            self._fail(error)
        elif self.state is not TransactionState.FATAL_ERROR:
            self._had_error = True
            if self.is_open:
                self.state = TransactionState.ABORTABLE_ERROR
                self.error = error

    def request_failed(self, error: KafkaError) -> KafkaError:
        """Report a coordinator's error, and return it as the caller is to see it."""
        if error.code in _FENCED:
            error = KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"another producer has taken over the transactional id {self.transactional_id}",
            )
        if error.code in _FATAL:
            self._fail(error)
        elif self.is_open or (
            self.state is TransactionState.COMMITTING and not is_retriable(error)
        ):
            self._had_error = True
            self._is_end_sent = False
            self.state = TransactionState.ABORTABLE_ERROR
            self.error = error
        return error

    def _fail(self, error: KafkaError) -> None:
        self.state = TransactionState.FATAL_ERROR
        self.error = error

    def _reset(self) -> None:
        self.state = TransactionState.READY
        self.to_add.clear()
        self.added.clear()
        self.error = None
        self._is_started = False
        self._is_end_sent = False
        self._had_error = False

    def _check_not_fatal(self) -> None:
        if self.state is TransactionState.FATAL_ERROR:
            assert self.error is not None
            raise self.error

    def _expect(self, what: str, *states: TransactionState) -> None:
        self._check_not_fatal()
        if self.state in states:
            return
        if self.state is TransactionState.ABORTABLE_ERROR:
            assert self.error is not None
            raise KafkaError(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"cannot {what}: the transaction failed and must be aborted ({self.error})",
            ) from self.error
        now = self.state.name.lower().replace("_", " ")
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"cannot {what}: the producer is {now}{_HINTS[self.state]}"
        )


_HINTS = {
    TransactionState.UNINITIALIZED: "; call init_transactions first",
    TransactionState.READY: "; call begin_transaction first",
    TransactionState.IN_TRANSACTION: "; commit or abort it first",
    TransactionState.COMMITTING: "; call commit_transaction again",
    TransactionState.ABORTING: "; call abort_transaction again",
    TransactionState.PREPARED: "; end its transaction first",
}
