"""The batches of one partition: which may be sent next, and how a response affects the rest.

No I/O and no clock: times are passed in as milliseconds of any monotonic clock.

Rules it keeps:

- Batches are sent in the order in which they were started, and return to their place for a retry.
- An idempotent producer has several in flight, since the broker refuses batches out of sequence.
  Once one has failed, the rest come back too, and are sent again one at a time. Without idempotence
  only one is in flight, unless there is no response to wait for (acks 0).
- A sequence that may have a gap is abandoned: when nothing is in flight any more, the queue
  continues with a new identity from 0. A batch that may have been written under the old identity is
  not sent under the new one, since that could write it twice: it fails.
"""

from __future__ import annotations

from collections import deque

from dohle.client.errors import TimedOut, is_retriable
from dohle.client.producer.batch import ProducerBatch, ProducerIdentity
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.records.batch import sequence_after

#: Errors after which the batch may be in the log all the same.
_FATE_UNKNOWN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        # The disk has failed, or the leader has changed, behind what was written.
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class PartitionQueue:
    """The waiting batches, those in flight, and the sequence."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        #: Nothing is sent before this time, since no leader was known.
        self.not_before_ms = 0.0
        self.leader_failures = 0
        #: The identity for the next batch; None: the producer's current one.
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        #: Whether the sequence may have a gap.
        self.is_broken = False
        self._next_ordinal = 0

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting and not self.in_flight

    @property
    def open_batch(self) -> ProducerBatch | None:
        """The batch that accepts records now."""
        last = self.waiting[-1] if self.waiting else None
        return None if last is None or last.is_sealed else last

    def take_ordinal(self) -> int:
        """Return the position of the next batch."""
        self._next_ordinal += 1
        return self._next_ordinal

    def send_at_ms(self, linger_ms: int, in_flight_max: int) -> float | None:
        """Return when the first batch may be sent; None while responses must come first."""
        if not self.waiting:
            return None
        first = self.waiting[0]
        if self.in_flight:
            retrying = first.attempts or any(batch.attempts > 1 for batch in self.in_flight)
            if retrying or self.is_broken or len(self.in_flight) >= in_flight_max:
                return None
        is_full = first.is_sealed or len(self.waiting) > 1
        ready_at_ms = first.created_ms if is_full else first.created_ms + linger_ms
        return max(ready_at_ms, first.retry_at_ms, self.not_before_ms)

    def take(self, identity: ProducerIdentity | None) -> ProducerBatch:
        """Put the first batch in flight, with its sequence number if there is an identity."""
        batch = self.waiting.popleft()
        batch.is_sealed = True
        batch.attempts += 1
        self.leader_failures = 0
        self.in_flight.append(batch)
        if identity is not None and not batch.has_sequence:
            if self.identity is None:
                self.identity = identity
                self.next_sequence = 0
            batch.set_sequence(self.identity, self.next_sequence)
            self.next_sequence = sequence_after(self.next_sequence, batch.record_count)
        return batch

    def succeeded(self, batch: ProducerBatch) -> None:
        """Report that a broker has written the batch."""
        self.in_flight.remove(batch)

    def failed(
        self, batch: ProducerBatch, error: KafkaError, *, may_retry: bool, retry_at_ms: float
    ) -> bool:
        """Report an error; return whether the batch waits for a retry.

        If not, its outcome is the error, which the caller reports.
        """
        self.in_flight.remove(batch)
        code = error.code
        if code in _FATE_UNKNOWN:
            batch.fate_unknown = True
        out_of_order = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.has_sequence
        if out_of_order and self._follows_a_failure(batch):
            retry = may_retry
        else:
            retry = may_retry and is_retriable(error)
        retry = retry and not batch.done.done()
        if retry:
            batch.retry_at_ms = retry_at_ms
            self._put_back(batch)
        elif batch.has_sequence:
            self.is_broken = True
        return retry

    def expired(self, now_ms: float, delivery_timeout_ms: int) -> list[ProducerBatch]:
        """Remove and return the batches whose delivery timeout has passed.

        Those in flight keep their place until the response comes, but their callers wait no longer.
        """
        oldest_ms = now_ms - delivery_timeout_ms
        gone = []
        while self.waiting and self.waiting[0].created_ms <= oldest_ms:
            batch = self.waiting.popleft()
            if batch.has_sequence:
                self.is_broken = True
            gone.append(batch)
        error = TimedOut(
            f"the records for {self.partition} could not be delivered within "
            f"{delivery_timeout_ms} ms"
        )
        for batch in (*gone, *self.in_flight):
            if batch.created_ms <= oldest_ms:
                batch.fail(error)
        return gone

    def restart(self) -> list[ProducerBatch]:
        """Abandon a broken sequence; return the batches that failed with it.

        Only when nothing is in flight: then the fate of the rest is known, or known to be unknown.
        """
        assert self.is_broken
        assert not self.in_flight
        self.is_broken = False
        self.identity = None
        lost = [batch for batch in self.waiting if batch.has_sequence and batch.fate_unknown]
        for batch in lost:
            self.waiting.remove(batch)
            batch.fail(
                KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"records for {self.partition} may or may not have been written: an earlier "
                    "batch was lost, and sending them again could write them twice",
                )
            )
        for batch in self.waiting:
            if batch.has_sequence:
                batch.clear_sequence()
                batch.attempts = 0
        return lost

    def _follows_a_failure(self, batch: ProducerBatch) -> bool:
        """Tell whether another batch explains a gap in the sequence before this batch."""
        if self.is_broken:
            return True
        return any(
            other.has_sequence and other.ordinal < batch.ordinal
            for other in (*self.waiting, *self.in_flight)
        )

    def _put_back(self, batch: ProducerBatch) -> None:
        place = 0
        while place < len(self.waiting) and self.waiting[place].ordinal < batch.ordinal:
            place += 1
        self.waiting.insert(place, batch)
