"""What a leader has accepted and not yet written: records gathered into batches (R80, R81).

The records of one call stay together in one batch, which is the log's unit of atomicity; several
small calls share a batch. A batch is written when the linger is over, when it is full, or when a
control batch comes behind it. Offsets are given out at once: the log ends where this begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.errors import UnencodableMessage
from dohle.protocol.record_framing import encode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.raft.values import FETCH_MAX_BYTES
from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import RECORD_OVERHEAD_MAX, BatchBuilder
from dohle.server.quorum.metadata_log import MetadataBatch, UnrecordableChange

#: How large a batch may be: every node of a quorum must be able to fetch it.
BATCH_BYTES_MAX = FETCH_MAX_BYTES
#: More finished batches are not accepted while nobody writes them.
_FINISHED_MAX = 10
#: Up to so many records are put into the batch of others at once; more have one of their own.
_FEW_RECORDS = 100
#: A record's own length comes before what RECORD_OVERHEAD_MAX counts; key and headers are absent.
_RECORD_OVERHEAD = RECORD_OVERHEAD_MAX + 5 + 2


class QuorumBusy(KafkaError):
    """More has been accepted than the log takes; nothing of this call was."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{_FINISHED_MAX} batches of changes wait to be written to the metadata log: try again",
        )


class Accepted(NamedTuple):
    """A batch that is to be written."""

    data: bytearray
    batch: MetadataBatch


class _OpenBatch:
    """The batch that takes the next records."""

    def __init__(self, epoch: int, timestamp: int, begun_ms: int) -> None:
        self.builder = BatchBuilder(partition_leader_epoch=epoch)
        self.records: list[MetadataRecord] = []
        self.size = HEADER_SIZE
        #: Of all its records: Kafka's nodes end themselves if one has another (R65).
        self.timestamp = timestamp
        self.begun_ms = begun_ms


class BatchAccumulator:
    """The batches of the epoch that this node leads; outside of one it accepts nothing."""

    def __init__(
        self, clock: Clock, log_end_offset: Callable[[], int], on_accepted: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._log_end_offset = log_end_offset
        self._on_accepted = on_accepted
        self._epoch: int | None = None
        self._open: _OpenBatch | None = None
        self._finished: list[Accepted] = []
        #: How many records are in the batches above.
        self._count = 0

    @property
    def next_offset(self) -> int:
        """The offset of the next record that is accepted."""
        return self._log_end_offset() + self._count

    def due_ms(self, linger_ms: int) -> int | None:
        """Return when something is to be written, by the monotonic clock; None if there is nothing.

        What is overdue is due at a time that has passed.
        """
        if self._open is None:
            return 0 if self._finished else None
        return 0 if self._finished else self._open.begun_ms + linger_ms

    def begin(self, epoch: int) -> None:
        """Accept what is appended in an epoch, which this node leads from now on."""
        self.end()
        self._epoch = epoch

    def end(self) -> None:
        """Accept nothing any more, and forget what is not written (R78)."""
        self._epoch, self._open, self._finished, self._count = None, None, [], 0

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> PlainSteps[int]:
        """Accept all records in the last step, and return the offset of the last one."""
        self._ensure_leading(epoch)
        values: list[bytes] = []
        size = HEADER_SIZE
        for record, version in records:
            try:
                value = encode_metadata_record(record, version)
            except UnencodableMessage as error:
                raise UnrecordableChange(error) from error
            values.append(value)
            size += len(value) + _RECORD_OVERHEAD
            if size > BATCH_BYTES_MAX:
                raise UnrecordableChange(
                    UnencodableMessage(
                        f"it takes more than {BATCH_BYTES_MAX} bytes, the most that are written in"
                        " one piece: ask for less at a time"
                    )
                )
            yield
        now_ms = self._clock.now_ms()
        data: bytearray | None = None
        if len(values) > _FEW_RECORDS:
            builder = BatchBuilder(partition_leader_epoch=epoch)
            for value in values:
                builder.append(now_ms, None, value)
                yield
            data = builder.build()
        self._ensure_leading(epoch)
        plain = [record for record, _ in records]
        if data is not None:
            self._ensure_room(2 if self._open else 1)
            self._finish_open()
            self._add_finished(data, plain, epoch, now_ms)
        elif plain:
            self._share(values, plain, size, epoch, now_ms)
        self._on_accepted()
        return self.next_offset - 1

    def _ensure_leading(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"this node does not lead the quorum in epoch {epoch}"
            )

    def _ensure_room(self, batches: int) -> None:
        if len(self._finished) + batches > _FINISHED_MAX:
            raise QuorumBusy

    def _share(
        self,
        values: Sequence[bytes],
        records: Sequence[MetadataRecord],
        size: int,
        epoch: int,
        now_ms: int,
    ) -> None:
        """Put a few records into the batch that is open, or into a new one."""
        self._ensure_room(1)
        if self._open is not None and self._open.size + size > BATCH_BYTES_MAX:
            self._ensure_room(2)
            self._finish_open()
        if self._open is None:
            self._open = _OpenBatch(epoch, now_ms, self._clock.monotonic_ms())
        shared = self._open
        shared.builder.append_all(shared.timestamp, [(None, value) for value in values])
        shared.records += records
        shared.size += size
        self._count += len(records)

    def _finish_open(self) -> None:
        shared, self._open = self._open, None
        if shared is not None:
            self._count -= len(shared.records)
            builder = shared.builder
            epoch = builder.partition_leader_epoch
            self._add_finished(builder.build(), shared.records, epoch, shared.timestamp)

    def _add_finished(
        self, data: bytearray, records: Sequence[MetadataRecord], epoch: int, timestamp: int
    ) -> None:
        last_offset = self.next_offset + len(records) - 1
        batch = MetadataBatch(records, last_offset, epoch, len(data), (), timestamp)
        self._finished.append(Accepted(data, batch))
        self._count += len(records)

    def drain(self) -> list[Accepted]:
        """Return all that was accepted; it is to be written now, before anything else is."""
        self._finish_open()
        finished, self._finished, self._count = self._finished, [], 0
        return finished

    def drain_one(self) -> list[Accepted]:
        """Return the first batch only."""
        if not self._finished:
            self._finish_open()
        first, self._finished = self._finished[:1], self._finished[1:]
        self._count -= sum(len(each.batch.records) for each in first)
        return first
