"""What must be found in a log after a crash."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.core.uuid import random_uuid
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.storage import log_read
from dohle.storage.directory.manager import Identity
from dohle.storage.log import Log

PARTITION = TopicPartition(TopicName("t"), 0)
IDENTITY = Identity("cluster", BrokerId(1))
TOPIC_ID = random_uuid(random.Random(5))


@dataclass
class Expected:
    """What the log held when the process died, and what the step it was in may have changed."""

    contents: list[bytes] = field(default_factory=list)
    #: Batches of ``contents`` that are on the disk.
    flushed: int = 0
    #: A batch that was being appended.
    appending: bytes | None = None
    #: How many batches a truncation in progress was to leave.
    truncating_to: int | None = None
    exists: bool = False
    start: int = 0

    def check(self, found: list[bytes], *, power_lost: bool) -> None:
        longest = self.contents + ([self.appending] if self.appending is not None else [])
        shortest = self.flushed if power_lost else len(self.contents)
        if self.truncating_to is not None:
            shortest = min(shortest, self.truncating_to)
        # Segments below the log start may or may not have gone.
        gone = 0
        if found:
            gone = next(
                i for i, batch in enumerate(longest) if offset_of(batch) == offset_of(found[0])
            )
        assert gone == 0 or offset_of(longest[gone]) <= self.start
        assert found == longest[gone : gone + len(found)]
        if shortest > gone:
            assert gone + len(found) >= shortest


def offset_of(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def contents(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.segments.first.base_offset
    log.log_start_offset = offset
    while offset < log.log_end_offset:
        piece = log_read.read(log, offset, 1 << 20).slice
        assert piece is not None
        for batch in batches(piece.read()):
            found.append(bytes(batch.buffer))
            offset = batch.next_offset
    return found


def data_batch(
    number: int, *, sequence: int | None = None, transactional: bool = False
) -> bytearray:
    builder = BatchBuilder(
        producer_id=-1 if sequence is None else 7,
        producer_epoch=-1 if sequence is None else 0,
        base_sequence=-1 if sequence is None else sequence,
        is_transactional=transactional,
    )
    for record in range(1 + number % 3):
        builder.append(1_000 + number, b"k%d" % number, b"v" * (number * 7 % 40 + record))
    return builder.build()


def check_indexes(log: Log, found: list[bytes]) -> None:
    """Whatever was scanned or left alone: every segment's indexes tell what is in it."""
    read = list(batches(b"".join(found)))
    markers = [batch.base_offset for batch in read if batch.is_control]
    aborted = log_read.aborted_transactions(log.segments, log.log_start_offset, log.log_end_offset)
    assert [transaction.last_offset for transaction in aborted] == markers
    for segment in log.segments:
        end = next(
            (s.base_offset for s in log.segments if s.base_offset > segment.base_offset), None
        )
        within = [
            batch.max_timestamp
            for batch in read
            if segment.base_offset <= batch.base_offset and (end is None or batch.base_offset < end)
        ]
        assert segment.indexes.max_timestamp.timestamp == max(within, default=-1)


def check_producers(log: Log, expected: Expected) -> None:
    """However the state was rebuilt: it knows the last batch of the producer that is in the log."""
    end = log.log_end_offset
    appended = batches(b"".join([*expected.contents, expected.appending or b""]))
    sequences = [
        batch.base_sequence + batch.last_offset - batch.base_offset
        for batch in appended
        if batch.producer_id >= 0 and not batch.is_control and batch.next_offset <= end
    ]
    known = [entry.last_sequence for entry in log.producer_state.producers.values()]
    assert known == sequences[-1:]
