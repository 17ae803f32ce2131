"""One partition of a coordinator's topic: the machine, its log, and the replies not yet due.

A shard appends the records of a step, replays them at once, and keeps the replies until the high
watermark has passed the records. A reply without records is kept until everything that the machine
had seen is committed: no client is told what could still be lost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from dohle.coordination.effects import (
    CoordinatorMachine,
    EncodedRecord,
    PreparedBatch,
    Reply,
    TransactionalProducer,
)
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import Clock
from dohle.protocol.errors import UnencodableMessage
from dohle.protocol.record_framing import (
    CoordinatorRecord,
    encode_coordinator_key,
    encode_coordinator_value,
)
from dohle.records.batch import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from dohle.records.builder import RECORD_OVERHEAD_MAX, BatchBuilder
from dohle.records.checking.fast_check import FastCheckedBatch
from dohle.records.compression.codecs import Codec
from dohle.records.control import build_txn_marker
from dohle.server.coordinators.errors import coordinator_error
from dohle.server.partitions.commits import Commits
from dohle.server.partitions.partitions import Partition
from dohle.storage.producers.append import (
    NO_VERIFICATION,
    TV_UNKNOWN,
    AppendOrigin,
    VerificationGuard,
)

logger = logging.getLogger("dohle.server")

M = TypeVar("M", bound=CoordinatorMachine)
R = TypeVar("R")

#: Records of a step that need not be atomic are cut into batches of about this size.
_BATCH_BYTES = 64 * 1024


class ShardState(Enum):
    """Whether a shard can take commands."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


def gone() -> KafkaError:
    """Return the error for clients of a shard that is closed."""
    return KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator has moved or is being stopped")


# Looking up a member of an enum is slow, and so is to make a named tuple by its own constructor.
_CLOSED = ShardState.CLOSED
_new = tuple.__new__


class Due(NamedTuple):
    """What happens when everything below ``offset`` is committed."""

    offset: int
    #: When the replies become errors because it took too long; it may still be committed.
    deadline_ms: int
    replies: Sequence[Reply]
    actions: Sequence[object]


class ShardDriver(NamedTuple):
    """What a shard asks of the runtime that drives it."""

    #: Notes that a partition has something to write at the end of this turn of the loop.
    note_unwritten: Callable[[Partition], None]
    #: Sets the timer to the next deadline of the shard's machine.
    reschedule: Callable[[Shard[Any]], None]
    #: Discards the shard, and has a new one load the log.
    begin_anew: Callable[[Shard[Any]], None]
    commits: Commits


class Shard(Generic[M]):
    """A partition that this broker coordinates."""

    def __init__(
        self,
        index: int,
        partition: Partition,
        machine: M,
        codec: Codec,
        clock: Clock,
        timeout_ms: int,
        driver: ShardDriver,
    ) -> None:
        """Make a shard whose replies wait for their commit no longer than ``timeout_ms``."""
        self.index = index
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.machine = machine
        self.state = ShardState.LOADING
        self._codec = codec
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._driver = driver
        self._due: deque[Due] = deque()

    @property
    def is_settled(self) -> bool:
        """Tell whether everything the machine has seen is committed."""
        log = self.partition.log
        return not self._due and log.high_watermark >= log.log_end_offset

    def is_committed(self, offset: int) -> bool:
        """Tell whether everything below an offset is committed."""
        return self.partition.log.high_watermark >= offset

    def when_committed(self, offset: int, tell: Callable[[KafkaError | None], None]) -> None:
        """Call ``tell`` when everything below ``offset`` is committed, or with why it is not."""

        def ended(code: ErrorCode) -> None:
            loss = self.loss
            if loss is None and code is not ErrorCode.NONE:
                loss = not_committed(code)
            tell(loss)

        self._driver.commits.wait(self.partition, offset, self._timeout_ms, ended)

    def has_due(self) -> bool:
        """Tell whether replies wait for a commit."""
        return bool(self._due)

    @property
    def loss(self) -> KafkaError | None:
        """The error to answer with after writing, if the shard was closed because that failed."""
        return gone() if self.state is _CLOSED else None

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer: TransactionalProducer | None,
        guard: VerificationGuard = NO_VERIFICATION,
        *,
        is_atomic: bool = True,
    ) -> None:
        """Append records and replay them; if the log refuses them, nothing has changed."""
        self._guarded(lambda: self._append(records, producer, guard, is_atomic))

    def append_prepared(
        self,
        prepared: PreparedBatch,
        producer: TransactionalProducer | None,
        guard: VerificationGuard = NO_VERIFICATION,
    ) -> None:
        """Do the same with records that are encoded already."""

        def append() -> None:
            self._append_records(prepared.builder, producer, guard)
            prepared.take_in()

        self._guarded(append)

    def _append(
        self,
        records: Sequence[CoordinatorRecord],
        producer: TransactionalProducer | None,
        guard: VerificationGuard,
        is_atomic: bool,
    ) -> None:
        if not is_atomic:
            limit = min(_BATCH_BYTES, self.partition.log.config.max_message_bytes) - HEADER_SIZE
            for part in _parts(records, limit):
                self._append(part, producer, guard, True)
            return
        builder = BatchBuilder()
        builder.append_all(self._clock.now_ms(), [_encoded(record) for record in records])
        self._append_records(builder, producer, guard)
        for record in records:
            self.machine.replay(record, producer)

    def _append_records(
        self,
        builder: BatchBuilder,
        producer: TransactionalProducer | None,
        guard: VerificationGuard,
    ) -> None:
        builder.codec = self._codec
        if producer is not None:
            builder.producer_id, builder.producer_epoch = producer
            # A coordinator's batches are not numbered: in Kafka too, each has base sequence 0.
            builder.base_sequence = 0
            builder.is_transactional = True
        batch = builder.build()
        self._check_leads()
        if producer is not None or not self._append_fast_checked(
            batch, builder.record_count, builder.max_timestamp
        ):
            self._append_batch(batch, guard=guard)

    def append_built(
        self, batch: bytearray, count: int, now_ms: int, take_in: Callable[[], None]
    ) -> bool:
        """Append a batch of ``count`` new records; ``take_in`` lets the machine replay them.

        Returns False, and changes nothing, if the batch must take the slow path: a command. After
        writing, ``loss`` tells whether that failed, and ``when_committed`` when it is committed.
        """

        def append() -> bool:
            self._check_leads()
            if not self._append_fast_checked(batch, count, now_ms):
                return False
            take_in()
            return True

        if not self._guarded(append):
            return False
        self._driver.reschedule(self)
        return True

    def _append_fast_checked(self, batch: bytearray, count: int, now_ms: int) -> bool:
        """Append a batch that was built just now, if it passes the fast check."""
        log = self.partition.log
        if self._codec is not Codec.NONE or len(batch) > log.config.max_message_bytes:
            return False
        numbers = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
        checked = _new(FastCheckedBatch, (memoryview(batch), count - 1, now_ms, *numbers, False))
        try:
            return log.append_fast_checked(checked, self.leader_epoch) is not None
        except KafkaError as error:
            raise coordinator_error(error) from error

    def append_marker(
        self,
        producer: TransactionalProducer,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Append a transaction's commit or abort marker and replay it."""
        marker = build_txn_marker(
            is_commit, producer.id, producer.epoch, coordinator_epoch, self._clock.now_ms()
        )

        def append() -> None:
            self._check_leads()
            self._append_batch(marker, transaction_version=transaction_version)
            self.machine.replay_end_transaction(producer, is_commit=is_commit)

        self._guarded(append)
        self._driver.reschedule(self)

    def _guarded(self, append: Callable[[], R]) -> R:
        """Append and replay; a bug in either must not leave machine and log out of step."""
        log = self.partition.log
        end_before = log.log_end_offset
        try:
            return append()
        except KafkaError:
            raise
        except Exception as error:
            if log.log_end_offset == end_before:
                logger.exception(
                    "%s: the coordinator's records could not be appended; nothing was written, and"
                    " the client gets UNKNOWN_SERVER_ERROR. Please report this.",
                    self.partition.key,
                )
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "nothing was written") from error
            logger.exception(
                "%s: the coordinator could not replay records that are in its log: it is discarded,"
                " and a new one loads the log. Please report this.",
                self.partition.key,
            )
            self._driver.begin_anew(self)
            raise gone() from error
        finally:
            # Even after a refusal: if the records need not be atomic, some may be in the log.
            if log.log_end_offset > end_before:
                self._driver.note_unwritten(self.partition)

    @property
    def is_leading(self) -> bool:
        """Tell whether this broker leads the partition, in the shard's epoch."""
        partition = self.partition
        return partition.is_led and partition.image.leader_epoch == self.leader_epoch

    def _check_leads(self) -> None:
        partition = self.partition
        if self.state is _CLOSED or not self.is_leading:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker is the coordinator now")
        if partition.is_under_min_isr:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas are in sync")

    def _append_batch(
        self,
        batch: bytearray,
        *,
        guard: VerificationGuard = NO_VERIFICATION,
        transaction_version: int = TV_UNKNOWN,
    ) -> None:
        try:
            self.partition.log.append_as_leader(
                batch,
                self.leader_epoch,
                origin=AppendOrigin.COORDINATOR,
                verification_guard=guard,
                transaction_version=transaction_version,
                defer_write=True,
            )
        except KafkaError as error:
            raise coordinator_error(error) from error

    def keep(self, replies: Sequence[Reply], actions: Sequence[object]) -> None:
        """Keep replies and actions until everything appended so far is committed."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        end_offset = self.partition.log.log_end_offset
        self._due.append(Due(end_offset, deadline_ms, replies, actions))

    def take_committed(self) -> list[Due]:
        """Take out what has become due by commits.

        Nothing does once another broker leads: what its high watermark passes are its own records,
        which may stand where those of this shard were (KAFKA-20634).
        """
        if not self.is_leading:
            return []
        high_watermark = self.partition.log.high_watermark
        found = []
        while self._due and self._due[0].offset <= high_watermark:
            found.append(self._due.popleft())
        return found

    @property
    def next_deadline_ms(self) -> int | None:
        """When the wait of the next reply times out."""
        return next((due.deadline_ms for due in self._due if due.replies), None)

    def take_overdue(self, now_ms: int) -> list[Reply]:
        """Take out the replies that have waited too long; their actions stay."""
        found: list[Reply] = []
        for number, due in enumerate(self._due):
            if due.deadline_ms > now_ms:
                break
            found += due.replies
            self._due[number] = due._replace(replies=())
        return found

    def take_all(self) -> list[Due]:
        """Take out everything, because it will never become due."""
        found, self._due = list(self._due), deque()
        return found


def _encoded(record: CoordinatorRecord) -> EncodedRecord:
    if record.value is not None and record.value_version is None:
        raise ValueError(f"{type(record.value).__name__} without a version")
    try:
        key = encode_coordinator_key(record.key)
        if record.value is None or record.value_version is None:
            return key, None
        return key, encode_coordinator_value(record.value, record.value_version)
    except UnencodableMessage as error:
        text = f"the change cannot be recorded: {error}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text) from error


def _parts(records: Sequence[CoordinatorRecord], bytes_max: int) -> list[list[CoordinatorRecord]]:
    parts: list[list[CoordinatorRecord]] = [[]]
    size = 0
    for record in records:
        key, value = _encoded(record)
        size += len(key) + len(value or b"") + RECORD_OVERHEAD_MAX
        if size > bytes_max and parts[-1]:
            parts.append([])
            size = len(key) + len(value or b"") + RECORD_OVERHEAD_MAX
        parts[-1].append(record)
    return parts


def not_committed(code: ErrorCode) -> KafkaError:
    """Return the error for records not known to be committed, as a coordinator's client expects."""
    return coordinator_error(KafkaError(code, "it is not known whether the records are committed"))
