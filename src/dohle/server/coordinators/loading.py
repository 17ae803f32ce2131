"""Replaying a coordinator's partition into its machine, a piece at a time.

Other clients are served in between: the time for one piece is bounded, and other tasks run after
each. Records of types that this release does not know are skipped, as Kafka does.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, sleep
from collections.abc import Callable

from dohle.coordination.effects import Machine, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.apis import Coordinator
from dohle.protocol.errors import UnknownRecordType
from dohle.protocol.record_framing import decode_coordinator_record
from dohle.records.batch import Batch, batches
from dohle.records.control import ControlRecordType, parse_control
from dohle.storage.log import Log

logger = logging.getLogger("dohle.server")

#: How long records are replayed, or timers carried out, before other tasks run.
SLICE_S = 0.005


async def load(
    loop: AbstractEventLoop,
    kind: Coordinator,
    log: Log,
    machine: Machine,
    *,
    read_bytes: int,
    is_wanted: Callable[[], bool],
) -> int:
    """Replay a log from its start to its end; return the number of records.

    It ends early when ``is_wanted`` returns False.
    """
    offset = log.log_start_offset
    count = 0
    slice_end = loop.time() + SLICE_S
    while is_wanted() and offset < log.log_end_offset:
        found = log.read(offset, read_bytes, min_one_batch=True).slice
        if found is None:
            break
        first_offset = offset
        for batch in batches(found.read()):
            if batch.next_offset <= offset:
                continue
            count += _replay(kind, batch, machine)
            offset = batch.next_offset
            if loop.time() >= slice_end:
                await sleep(0)
                if not is_wanted():
                    return count
                slice_end = loop.time() + SLICE_S
        if offset == first_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch found at offset {offset}")
    return count


def _replay(kind: Coordinator, batch: Batch, machine: Machine) -> int:
    producer = None
    if batch.is_transactional:
        producer = TransactionalProducer(batch.producer_id, batch.producer_epoch)
    count = 0
    for record in batch.records():
        count += 1
        if batch.is_control:
            type, _ = parse_control(record)
            if producer is not None and type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                is_commit = type is ControlRecordType.COMMIT
                machine.replay_end_transaction(producer, is_commit=is_commit)
            continue
        if record.key is None:
            logger.warning("ignoring the record at offset %d, which has no key", record.offset)
            continue
        try:
            decoded = decode_coordinator_record(kind, record.key, record.value)
        except UnknownRecordType as error:
            logger.warning("ignoring the record at offset %d: %s", record.offset, error)
            continue
        machine.replay(decoded, producer)
    return count
