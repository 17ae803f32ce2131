"""Replaying a coordinator's partition into its machine, in steps.

Other clients are served between two records. Records of types that this release does not know are
skipped, as Kafka does.
"""

from __future__ import annotations

import logging
from asyncio import Lock, Task
from collections.abc import Callable
from typing import Generic, TypeVar

from dohle.coordination.effects import CoordinatorMachine, Effects, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.protocol.apis import Coordinator
from dohle.protocol.errors import UnknownRecordType
from dohle.protocol.record_framing import decode_coordinator_record
from dohle.records.batch import Batch, batches
from dohle.records.control import ControlRecordType, parse_control
from dohle.server.coordinators.shard import Shard, ShardState
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.storage import log_read
from dohle.storage.log import Log

logger = logging.getLogger("dohle.server")

M = TypeVar("M", bound=CoordinatorMachine)

#: The most that is read in one step, whatever the buffer may be.
_READ_BYTES_MAX = 1024 * 1024


class Loader(Generic[M]):
    """Loads the logs of one coordinator."""

    def __init__(
        self,
        turns: Turns,
        kind: Coordinator,
        read_bytes: int,
        activate: Callable[[Shard[M], int, Effects], None],
        give_up: Callable[[Shard[M]], None],
    ) -> None:
        """Prepare; ``activate`` gets the number of records, and what follows from them."""
        self._turns = turns
        self._kind = kind
        self._read_bytes = read_bytes
        self._activate = activate
        self._give_up = give_up
        self._tasks: dict[Task[None], None] = {}
        # Logs are loaded one at a time: each takes a buffer, and a slice of every turn of the loop.
        self._turn = Lock()

    def load(self, shard: Shard[M]) -> None:
        """Bring a shard's machine to the end of its log, unless the shard is closed before."""
        task = self._turns.loop.create_task(self._load(shard))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def close(self) -> None:
        """Stop loading."""
        for task in self._tasks:
            task.cancel()

    async def _load(self, shard: Shard[M]) -> None:
        try:
            async with self._turn:
                records, effects = await Slices(self._turns).run(self._steps(shard))
            if not shard.is_leading:
                # It was not loaded to its end.
                self._give_up(shard)
            elif shard.state is ShardState.LOADING:
                self._activate(shard, records, effects)
        except Exception:
            if not shard.is_leading:
                # Its log may be cut by now, as its new leader says.
                self._give_up(shard)
                return
            # Its clients are told NOT_COORDINATOR; only this line says why.
            logger.exception(
                "%s could not be loaded: its groups or transactions have no coordinator until"
                " this broker is restarted or elected again",
                shard.partition.key,
            )
            self._give_up(shard)

    def _steps(self, shard: Shard[M]) -> PlainSteps[tuple[int, Effects]]:
        records = yield from replay_log(
            self._kind,
            shard.partition.log,
            shard.machine,
            read_bytes=self._read_bytes,
            is_wanted=lambda: shard.state is ShardState.LOADING and shard.is_leading,
        )
        return records, (yield from shard.machine.on_loaded())


def replay_log(
    kind: Coordinator,
    log: Log,
    machine: CoordinatorMachine,
    *,
    read_bytes: int,
    is_wanted: Callable[[], bool],
) -> PlainSteps[int]:
    """Replay a log from its start to its end; return the number of records.

    It ends early when ``is_wanted`` returns False.
    """
    offset = log.log_start_offset
    count = 0
    while is_wanted() and offset < log.log_end_offset:
        found = log_read.read(
            log, offset, min(read_bytes, _READ_BYTES_MAX), min_one_batch=True
        ).slice
        if found is None:
            break
        first_offset = offset
        for batch in batches(found.read()):
            if batch.next_offset <= offset:
                continue
            count += yield from _replay(kind, batch, machine)
            offset = batch.next_offset
            if not is_wanted():
                return count
        if offset == first_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch found at offset {offset}")
    return count


def _replay(kind: Coordinator, batch: Batch, machine: CoordinatorMachine) -> PlainSteps[int]:
    producer = None
    if batch.is_transactional:
        producer = TransactionalProducer(batch.producer_id, batch.producer_epoch)
    count = 0
    for record in batch.records():
        count += 1
        yield
        if batch.is_control:
            type, _ = parse_control(record)
            if producer is not None and type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                is_commit = type is ControlRecordType.COMMIT
                machine.replay_end_transaction(producer, is_commit=is_commit)
            continue
        if record.key is None:
            logger.warning(
                "%s coordinator: ignoring the record at offset %d, which has no key",
                kind,
                record.offset,
            )
            continue
        try:
            decoded = decode_coordinator_record(kind, record.key, record.value)
        except UnknownRecordType as error:
            logger.warning(
                "%s coordinator: ignoring the record at offset %d: %s", kind, record.offset, error
            )
            continue
        machine.replay(decoded, producer)
    return count
